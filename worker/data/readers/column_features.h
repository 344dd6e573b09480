// The meaning of a job's columns, ready to apply to the values of a sample in any format.
#ifndef PAWL_WORKER_DATA_READERS_COLUMN_FEATURES_H_
#define PAWL_WORKER_DATA_READERS_COLUMN_FEATURES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/feature_key.h"
#include "worker/data/sample_store.h"

namespace pawl {

// A value of a column. The formats differ in types, and the same value means the same in each:
//
// 1. A number is used as a double, a text as the decimal number that it is.
// 2. A category is a text. A whole number has the text of its decimal digits ("5", "-12"), another
//    number the shortest decimal that reads back as the same number of its type ("0.1").
// 3. A value that is absent is an empty field.
struct ColumnValue {
  enum class Type : uint8_t { kAbsent, kText, kFloat32, kFloat64, kInteger };

  static ColumnValue Text(absl::string_view text) { return {Type::kText, text, 0, 0}; }
  static ColumnValue Float32(float number) { return {Type::kFloat32, {}, number, 0}; }
  static ColumnValue Float64(double number) { return {Type::kFloat64, {}, number, 0}; }
  static ColumnValue Integer(int64_t integer) { return {Type::kInteger, {}, 0, integer}; }

  Type type = Type::kAbsent;
  absl::string_view text = {};
  double number = 0;
  int64_t integer = 0;
};

// The values of a sample's columns.
struct ColumnSample {
  struct List {
    size_t begin;
    size_t end;
  };

  std::vector<float> labels;
  float weight = 1;
  std::vector<float> numerics;
  std::vector<uint64_t> keys;  // of each categorical field that is not a list
  std::vector<List> lists;     // of each list: its part of list_keys
  std::vector<uint64_t> list_keys;
  std::vector<absl::string_view> elements;  // scratch
};

// Numeric columns become numerics; bucketized, categorical, hashed and crossed ones become fields;
// labels become labels; each in the order of the spec.
//
// A reader sets `source` of each feature, applies the features to one sample after another, and
// appends the result to its store. Errors begin with the name of the column; the reader adds the
// place.
//
// Immutable except for `source`, hence thread-safe.
class ColumnFeatures {
 public:
  struct Feature {
    explicit Feature(const Column& spec);

    // The column that is read.
    const std::string& source_name() const {
      return column.source().empty() ? column.name() : column.source();
    }
    // Whether it makes keys. Otherwise it makes a number: a label, a weight or a numeric.
    bool IsField() const {
      return kind != Column::kLabel && kind != Column::kWeight && !is_numeric;
    }

    Column column;
    Column::KindCase kind;
    bool is_numeric;
    bool is_list;
    // Whether an empty field stands for a value: a number, or a text.
    bool has_missing;
    bool has_missing_text;
    double missing;
    std::string missing_text;
    FeatureKey key;
    // For numbers.
    bool log1p;
    double mean;
    double scale;
    bool has_threshold;
    double threshold;
    // 0: not hashed.
    uint64_t buckets;
    size_t max_length = kMaxListLength;
    // For the reader: where the column is.
    size_t source = 0;
    // Index in labels, numerics or keys.
    size_t field = 0;
    // Index in lists.
    size_t list = 0;
    // For crossed features: indices in keys.
    std::vector<size_t> crossed;
  };

  // INVALID_ARGUMENT, naming the field of the job file, for an invalid spec (format_validation.h).
  static absl::StatusOr<ColumnFeatures> Create(const CsvSpec& spec);
  static absl::StatusOr<ColumnFeatures> Create(const RecordSpec& spec);

  const DataShape& shape() const { return shape_; }
  bool has_weights() const { return has_weights_; }
  bool has_lists() const { return list_count_ > 0; }

  // All features but the crossed ones, labels and weight among them.
  std::vector<Feature>& features() { return features_; }
  const std::vector<Feature>& features() const { return features_; }

  // Makes the sample ready for the values of another one.
  void Clear(ColumnSample* sample) const;

  // Overwrites *sample with what all features make of the fields of a line, by their sources.
  // After an error *bad_source is that of the malformed field.
  absl::Status ApplyTexts(absl::Span<const absl::string_view> fields, ColumnSample* sample,
                          size_t* bad_source) const;

  // Sets what a feature that is not a list makes of a value.
  absl::Status Set(const Feature& feature, const ColumnValue& value, ColumnSample* sample) const {
    if (feature.IsField()) return KeyOf(feature, value, &sample->keys[feature.field]);
    return NumberOf(feature, value, PlaceOf(feature, sample));
  }
  // Sets what a list makes of its elements; element i is value_of(i).
  template <typename ValueOf>
  absl::Status SetList(const Feature& feature, size_t count, const ValueOf& value_of,
                       ColumnSample* sample) const {
    ColumnSample::List& list = sample->lists[feature.list];
    list.begin = sample->list_keys.size();
    for (size_t i = count - std::min(count, feature.max_length); i < count; ++i) {
      uint64_t key = 0;
      PAWL_RETURN_IF_ERROR(KeyOf(feature, value_of(i), &key));
      sample->list_keys.push_back(key);
    }
    list.end = sample->list_keys.size();
    return absl::OkStatus();
  }
  // Sets the keys of the crossed features, once all others are set.
  void Cross(ColumnSample* sample) const;

  // Appends the sample to a store of this shape.
  void Append(const ColumnSample& sample, SampleStore* store) const;

  // The number that a feature makes of a value, for readers of whole columns.
  absl::Status NumberOf(const Feature& feature, const ColumnValue& value, float* number) const;
  absl::Status KeyOf(const Feature& feature, const ColumnValue& value, uint64_t* key) const;
  // Where the number of a feature is in a sample. REQUIRES: it is not a field.
  static float* PlaceOf(const Feature& feature, ColumnSample* sample) {
    if (feature.kind == Column::kWeight) return &sample->weight;
    return feature.is_numeric ? &sample->numerics[feature.field] : &sample->labels[feature.field];
  }

 private:
  ColumnFeatures() = default;

  // REQUIRES: the columns are valid.
  static ColumnFeatures Create(const google::protobuf::RepeatedPtrField<Column>& columns);

  std::vector<Feature> features_;
  std::vector<Feature> crosses_;
  DataShape shape_;
  bool has_weights_ = false;
  size_t list_count_ = 0;
  // By field: the index in `lists` of a list, otherwise -1.
  std::vector<int> list_of_field_;
};

// INVALID_ARGUMENT naming the feature's column.
absl::Status MalformedColumn(const ColumnFeatures::Feature& feature, absl::string_view what);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_COLUMN_FEATURES_H_
