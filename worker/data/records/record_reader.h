// Samples from Pawl's record files.
#ifndef PAWL_WORKER_DATA_RECORDS_RECORD_READER_H_
#define PAWL_WORKER_DATA_RECORDS_RECORD_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/readers/column_features.h"
#include "worker/data/readers/sample_reader.h"
#include "worker/data/records/byte_runs.h"
#include "worker/data/records/record_file.h"

namespace pawl {

// Reads a block at a time, and computes what the features make of each distinct value of a block
// once. A row with a value that is malformed for its column is a malformed sample; damage of a
// block ends the reading.
class RecordReader final : public SampleReader {
 public:
  // Reads a file from its start. INVALID_ARGUMENT naming the spec's field for a bad spec, or the
  // file if its head is damaged or it lacks a column. `source` must outlive the reader.
  static absl::StatusOr<std::unique_ptr<RecordReader>> Open(ByteSource& source,
                                                            const std::string& name,
                                                            const RecordSpec& spec);
  // Reads blocks from the midst of a file that begins with `head`. The source may end after any
  // block.
  static absl::StatusOr<std::unique_ptr<RecordReader>> OpenBehind(absl::string_view head,
                                                                  ByteSource& source,
                                                                  const std::string& name,
                                                                  const RecordSpec& spec,
                                                                  const SourceStart& start);

  const DataShape& shape() const { return features_.shape(); }

  absl::StatusOr<bool> Next(SampleStore* store) override;
  absl::StatusOr<bool> Skip() override;
  bool IsAtSample() const override { return is_at_sample_; }
  uint64_t offset() const override { return offset_; }
  uint64_t lines() const override { return row_before_ + row_; }
  bool IsAtBoundary() const override { return row_ == rows_; }
  uint64_t memory_bytes() const override;

 private:
  // The results of a feature for the distinct values of its column.
  struct Made {
    std::vector<uint64_t> keys;
    std::vector<float> numbers;
    // By value, whether it is malformed. Empty: none is.
    std::vector<bool> is_bad;
    uint64_t absent_key = 0;
    float absent_number = 0;
    bool is_absent_bad = false;
  };

  RecordReader(ColumnFeatures features, ByteSource& source, const std::string& name,
               const SourceStart& start);

  absl::Status ReadHead();
  absl::Status Bind();
  // Reads the next block if all rows of the current one are used. False after the last row.
  absl::StatusOr<bool> Advance();
  // Reads blocks up to one with rows. False at the end.
  absl::StatusOr<bool> ReadBlock();
  // Computes what the features make of the block's values.
  void Make();
  void MakeFeature(const ColumnFeatures::Feature& feature, Made* made) const;
  // Fills the tile with the rows from row_ on.
  void FillTile();
  void FillTile(const ColumnFeatures::Feature& feature, const Made& made);
  // Overwrites sample_ with row number `row`, which is in the tile.
  absl::Status Apply(uint32_t row);
  // Does so for one feature, without the tile.
  absl::Status ApplyFeature(const ColumnFeatures::Feature& feature, const Made& made, uint32_t row);
  // INVALID_ARGUMENT naming the file and the byte where the block begins.
  absl::Status MalformedBlock(absl::string_view what) const;

  ColumnFeatures features_;
  const std::string name_;
  const uint64_t start_offset_;
  // From the file's start: it must have the end of a file.
  const bool needs_end_;
  ByteRuns bytes_;
  std::vector<RecordColumn> columns_;

  // The current block.
  uint64_t block_offset_ = 0;  // in the file
  uint64_t offset_ = 0;        // behind it, in the source
  uint64_t row_before_;        // rows of the file before it
  uint32_t rows_ = 0;
  uint32_t row_ = 0;  // the next one
  std::string memory_;
  std::vector<RecordChunk> chunks_;
  std::vector<Made> made_;  // by feature
  bool is_made_ = false;

  // The next rows, whose parts come from one column after another: labels, weight and numerics; and
  // keys. Lists are not in it, and malformed rows only in part.
  uint32_t tile_begin_ = 0;
  uint32_t tile_end_ = 0;
  const size_t tile_numbers_;
  std::vector<float> tile_of_numbers_;
  std::vector<uint64_t> tile_of_keys_;
  std::vector<uint8_t> is_bad_row_;

  ColumnSample sample_;
  bool is_at_sample_ = false;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_RECORDS_RECORD_READER_H_
