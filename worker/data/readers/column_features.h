// The meaning of the columns of a CSV file, checked and ready to apply to records.
#ifndef PAWL_WORKER_DATA_READERS_CSV_FEATURES_H_
#define PAWL_WORKER_DATA_READERS_CSV_FEATURES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/limits.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/feature_key.h"
#include "worker/data/readers/csv_record_reader.h"

namespace pawl {

// One sample: the result of applying the features to a record.
struct CsvSample {
  float label = 0;
  std::vector<float> numerics;
  std::vector<uint64_t> keys;  // one for each categorical field
};

// Numeric columns become numerics; bucketized, categorical, hashed and crossed ones become fields;
// each in the order of the spec.
//
// Not thread-safe.
class CsvFeatures {
 public:
  static constexpr int kMaxFeatures = kMaxCsvColumns;

  // INVALID_ARGUMENT, naming the field of the job file, for a spec with no label or several, no
  // features, a duplicate name, no kind, a bad number or a cross of missing columns.
  static absl::StatusOr<CsvFeatures> Create(const CsvSpec& spec);

  DataShape shape() const { return shape_; }

  // How the files of this spec separate fields.
  CsvDialect dialect() const { return dialect_; }
  // Whether the first record of a file is a header line; otherwise it is a sample.
  bool has_header() const { return has_header_; }

  // Finds the columns by the first record of a file, which is `first`'s current record; all records
  // must have as many fields. INVALID_ARGUMENT for a missing or duplicate column.
  absl::Status Bind(const CsvRecordReader& first);

  // Overwrites *sample from the current record of `record`. INVALID_ARGUMENT naming file, line and
  // column. REQUIRES: Bind has succeeded.
  absl::Status Apply(const CsvRecordReader& record, CsvSample* sample) const;

 private:
  struct Feature {
    explicit Feature(const Column& spec)
        : column(spec),
          kind(spec.kind_case()),
          key(spec.name()),
          missing(spec.has_numeric() && spec.numeric().has_missing() ? spec.numeric().missing()
                                                                     : spec.bucketized().missing()),
          has_missing(spec.numeric().has_missing() || spec.bucketized().has_missing()) {}

    Column column;
    Column::KindCase kind;
    FeatureKey key;
    // The number that an empty field stands for.
    double missing;
    bool has_missing;
    // Index in the record; unused in a crossed feature.
    size_t source = 0;
    // Index in keys; for crossed features, of the combined columns.
    size_t field = 0;
    std::vector<size_t> crossed;
  };

  CsvFeatures() = default;

  absl::Status Add(const Column& column, const std::string& path);
  absl::Status ResolveCross(Feature* feature, const std::string& path);
  absl::Status BindOne(const CsvRecordReader& first, Feature* feature);
  // For kinds that are numbers.
  absl::Status ApplyNumber(const Feature& feature, absl::string_view text,
                           const CsvRecordReader& record, CsvSample* sample) const;

  CsvDialect dialect_;
  bool has_header_ = true;
  std::vector<Feature> features_;  // all but crossed ones, the label among them
  std::vector<Feature> crosses_;
  DataShape shape_;
  size_t bound_columns_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_CSV_FEATURES_H_
