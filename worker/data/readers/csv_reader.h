// Reads samples from a file of separated values.
#ifndef PAWL_WORKER_DATA_READERS_CSV_READER_H_
#define PAWL_WORKER_DATA_READERS_CSV_READER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/readers/column_features.h"
#include "worker/data/readers/csv_record_reader.h"
#include "worker/data/readers/sample_reader.h"
#include "worker/data/sample_store.h"

namespace pawl {

class CsvReader final : public SampleReader {
 public:
  // Reads a file from its start. INVALID_ARGUMENT naming the spec's field for a bad spec, or file,
  // line and column of a header that lacks a column, or of the first record of a file without a
  // header that begins with kMaxUnboundRecords malformed ones. `source` must outlive the reader.
  static absl::StatusOr<std::unique_ptr<CsvReader>> Open(ByteSource& source,
                                                         const std::string& name,
                                                         const CsvSpec& spec);
  // Reads records from the midst of a file, which begins with `head` (at least its first record).
  // `lines_before`: the lines of the file before the source's first one.
  static absl::StatusOr<std::unique_ptr<CsvReader>> OpenBehind(absl::string_view head,
                                                               ByteSource& source,
                                                               const std::string& name,
                                                               const CsvSpec& spec,
                                                               uint64_t lines_before);

  const DataShape& shape() const { return shape_; }

  absl::StatusOr<bool> Next(SampleStore* store) override;
  absl::StatusOr<bool> Skip() override;
  bool IsAtSample() const override { return is_at_sample_; }
  uint64_t offset() const override { return records_.offset(); }
  uint64_t lines() const override { return records_.line_number(); }
  bool IsAtBoundary() const override {
    return !records_.is_within_line() && unbound_.empty() && !has_record_;
  }

 private:
  // Malformed records before the first one that has the columns, in a file without a header.
  static constexpr size_t kMaxUnboundRecords = 1000;

  CsvReader(ColumnFeatures features, const CsvSpec& spec, ByteSource& source,
            const std::string& name, uint64_t lines_before);

  // Finds the columns by the current record; all records must have as many fields.
  absl::Status Bind();
  absl::Status BindOne(ColumnFeatures::Feature* feature) const;
  // Overwrites sample_ from the current record.
  absl::Status Apply();

  ColumnFeatures features_;
  const DataShape shape_;
  const bool has_header_;
  size_t bound_columns_ = 0;
  CsvRecordReader records_;
  ColumnSample sample_;
  // The errors of the malformed records before the current one that Next has not returned.
  std::deque<absl::Status> unbound_;
  // The current record is that of Bind, is a sample and has not been used.
  bool has_record_ = false;
  bool is_at_sample_ = false;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_CSV_READER_H_
