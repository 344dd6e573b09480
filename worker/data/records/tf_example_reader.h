// TFRecord files of tf.Example messages.
#ifndef PAWL_WORKER_DATA_RECORDS_TF_EXAMPLE_READER_H_
#define PAWL_WORKER_DATA_RECORDS_TF_EXAMPLE_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/readers/column_features.h"
#include "worker/data/readers/sample_reader.h"
#include "worker/data/records/byte_runs.h"

namespace pawl {

class TfExample;
class TfFeature;

// A record is its length (uint64), the masked CRC32C of that, the message, and the masked CRC32C of
// the message; integers are little-endian. Every record is a sample. A feature that a message lacks
// is an empty field.
//
// A record whose message is damaged or is not as the columns need it is a malformed sample. If the
// head of a record is damaged, the rest of the file cannot be read.
class TfExampleReader final : public SampleReader {
 public:
  static constexpr uint64_t kMaxRecordBytes = 16 << 20;

  // INVALID_ARGUMENT naming the spec's field for a bad spec. `source` must outlive the reader.
  static absl::StatusOr<std::unique_ptr<TfExampleReader>> Open(ByteSource& source,
                                                               const std::string& name,
                                                               const RecordSpec& spec,
                                                               const SourceStart& start = {});

  ~TfExampleReader() override;
  const DataShape& shape() const { return features_.shape(); }

  absl::StatusOr<bool> Next(SampleStore* store) override;
  absl::StatusOr<bool> Skip() override;
  bool IsAtSample() const override { return is_at_sample_; }
  uint64_t offset() const override { return bytes_.offset(); }
  uint64_t lines() const override { return records_; }
  uint64_t memory_bytes() const override;

 private:
  TfExampleReader(ColumnFeatures features, ByteSource& source, const std::string& name,
                  const SourceStart& start);

  // Reads the next record. False after the last.
  absl::StatusOr<bool> NextRecord(absl::string_view* message);
  absl::Status CheckMessage(absl::string_view message) const;
  // Overwrites sample_.
  absl::Status Apply(absl::string_view message);
  absl::Status ApplyFeature(const ColumnFeatures::Feature& feature, const TfFeature* values);
  // INVALID_ARGUMENT naming file, record and the byte where the record begins.
  absl::Status Malformed(absl::string_view what) const;

  ColumnFeatures features_;
  // The place in found_ of each feature that a column reads.
  absl::flat_hash_map<std::string, size_t> places_;
  std::vector<const TfFeature*> found_;
  const std::string name_;
  const uint64_t start_offset_;
  ByteRuns bytes_;
  // Reused, so that parsing rarely allocates memory.
  const std::unique_ptr<TfExample> example_;
  ColumnSample sample_;
  uint64_t records_;
  // Where the current record begins in the file.
  uint64_t record_offset_ = 0;
  bool is_at_sample_ = false;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_RECORDS_TF_EXAMPLE_READER_H_
