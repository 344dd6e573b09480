#include "worker/data/readers/column_features.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/job/format_validation.h"
#include "server/optimizer/math/deterministic_math.h"
#include "worker/data/readers/text_input.h"

namespace pawl {
namespace {

// Above it adjacent integers are the same double, and so the same bucket.
constexpr double kMaxBucket = 9007199254740992.0;  // 2^53
constexpr size_t kMaxNumberText = 32;

// log(1 + n) for the counts that are most frequent; the same bits as without the table.
constexpr int kSmallCounts = 1024;
const std::array<double, kSmallCounts>& SmallLogs() {
  static const std::array<double, kSmallCounts> kLogs = [] {
    std::array<double, kSmallCounts> logs;
    for (int n = 0; n < kSmallCounts; ++n)
      logs[static_cast<size_t>(n)] = n <= 1 ? DeterministicLog1p(n) : DeterministicLog(1.0 + n);
    return logs;
  }();
  return kLogs;
}

// sign(x) * log(1 + |x|)
inline double SignedLog1p(double x) {
  if (x >= 0 && x < kSmallCounts) {
    const auto n = static_cast<int>(x);
    if (n == x) return SmallLogs()[static_cast<size_t>(n)];
  }
  const double magnitude = std::abs(x);
  const double log =
      magnitude <= 1 ? DeterministicLog1p(magnitude) : DeterministicLog(1 + magnitude);
  return x < 0 ? -log : log;
}

// Makes a label, weight or numeric of a number. False if the number is malformed.
inline bool Transform(const ColumnFeatures::Feature& feature, double number, float* result) {
  if (feature.is_numeric) {
    if (feature.log1p) number = SignedLog1p(number);
    number = (number - feature.mean) / feature.scale;
  } else if (feature.has_threshold) {
    number = number > feature.threshold ? 1 : 0;
  } else if (feature.kind == Column::kWeight && number < 0) {
    return false;
  }
  *result = static_cast<float>(number);
  return std::isfinite(*result);
}

// Returns false if x has no bucket.
bool BucketOf(const Column::Bucketized& bucketized, double x, int64_t* bucket) {
  if (bucketized.boundaries().empty()) {
    const double quotient = std::floor(x / bucketized.width());
    if (!(std::abs(quotient) <= kMaxBucket)) return false;
    *bucket = static_cast<int64_t>(quotient);
  } else {
    const auto& boundaries = bucketized.boundaries();
    *bucket = std::upper_bound(boundaries.begin(), boundaries.end(), x) - boundaries.begin();
  }
  return true;
}

// The text of a number as a category. REQUIRES: the number is finite.
absl::string_view TextOf(const ColumnValue& value, char (&buffer)[kMaxNumberText]) {
  char* const end = buffer + kMaxNumberText;
  std::to_chars_result result = {buffer, std::errc()};
  if (value.type == ColumnValue::Type::kInteger) {
    result = std::to_chars(buffer, end, value.integer);
  } else if (std::abs(value.number) <= kMaxBucket && value.number == std::floor(value.number)) {
    result = std::to_chars(buffer, end, static_cast<int64_t>(value.number));
  } else if (value.type == ColumnValue::Type::kFloat32) {
    result = std::to_chars(buffer, end, static_cast<float>(value.number));
  } else {
    result = std::to_chars(buffer, end, value.number);
  }
  return {buffer, static_cast<size_t>(result.ptr - buffer)};
}

// A value for messages.
std::string Shown(const ColumnValue& value) {
  switch (value.type) {
    case ColumnValue::Type::kAbsent:
      return "the value that is missing";
    case ColumnValue::Type::kText:
      return Quoted(value.text);
    case ColumnValue::Type::kInteger:
      return absl::StrCat(value.integer);
    default:
      return absl::StrCat(value.number);
  }
}

inline uint64_t CategoryKey(const ColumnFeatures::Feature& feature, absl::string_view text) {
  if (feature.has_missing_text && text.empty()) text = feature.missing_text;
  const uint64_t key = feature.key.OfCategory(text);
  return feature.buckets == 0 ? key : feature.key.OfHashed(key, feature.buckets);
}

// The value as a number, before transformations.
absl::Status ToNumber(const ColumnFeatures::Feature& feature, const ColumnValue& value,
                      double* number) {
  switch (value.type) {
    case ColumnValue::Type::kText:
      if (value.text.empty() && feature.has_missing) break;
      if (ParseNumber(value.text, number)) return absl::OkStatus();
      return MalformedColumn(
          feature, absl::StrCat(Quoted(value.text), " is not a number",
                                value.text.empty() && feature.kind != Column::kLabel &&
                                        feature.kind != Column::kWeight
                                    ? "; set `missing` of the column to the number that it "
                                      "stands for"
                                    : ""));
    case ColumnValue::Type::kFloat32:
    case ColumnValue::Type::kFloat64:
      *number = value.number;
      if (std::isfinite(*number)) return absl::OkStatus();
      return MalformedColumn(feature, absl::StrCat(Shown(value), " is not a finite number"));
    case ColumnValue::Type::kInteger:
      *number = static_cast<double>(value.integer);
      return absl::OkStatus();
    case ColumnValue::Type::kAbsent:
      if (feature.has_missing) break;
      return MalformedColumn(
          feature, feature.kind == Column::kLabel || feature.kind == Column::kWeight
                       ? "the sample has no value"
                       : "the sample has no value; set `missing` of the column to the number that "
                         "it stands for");
  }
  *number = feature.missing;
  return absl::OkStatus();
}

absl::Status ToFloat(const ColumnFeatures::Feature& feature, const ColumnValue& value,
                     float* result) {
  double number = 0;
  PAWL_RETURN_IF_ERROR(ToNumber(feature, value, &number));
  if (Transform(feature, number, result)) return absl::OkStatus();
  if (feature.kind == Column::kWeight && number < 0) {
    return MalformedColumn(
        feature, absl::StrCat(Shown(value), " is no weight; a weight is a number of at least 0"));
  }
  return MalformedColumn(feature, absl::StrCat(Shown(value), " is out of float32's range"));
}

// ToFloat for text, without the description of what is malformed.
inline bool TextToFloat(const ColumnFeatures::Feature& feature, absl::string_view text,
                        float* result) {
  double number = feature.missing;
  if (!(text.empty() && feature.has_missing) && !ParseNumber(text, &number)) return false;
  return Transform(feature, number, result);
}

absl::Status ToBucket(const ColumnFeatures::Feature& feature, const ColumnValue& value,
                      uint64_t* key) {
  double number = 0;
  int64_t bucket = 0;
  PAWL_RETURN_IF_ERROR(ToNumber(feature, value, &number));
  if (!BucketOf(feature.column.bucketized(), number, &bucket)) {
    return MalformedColumn(feature, absl::StrCat(Shown(value), " is too large for its buckets"));
  }
  *key = feature.key.OfBucket(bucket);
  return absl::OkStatus();
}

// Replaces *elements with the parts of `text` between separators.
void Split(absl::string_view text, absl::string_view separator,
           std::vector<absl::string_view>* elements) {
  elements->clear();
  if (text.empty()) return;
  for (;;) {
    const size_t end = text.find(separator);
    elements->push_back(text.substr(0, end));
    if (end == absl::string_view::npos) return;
    text.remove_prefix(end + separator.size());
  }
}

}  // namespace

absl::Status MalformedColumn(const ColumnFeatures::Feature& feature, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("column ", Quoted(feature.source_name()), ": ", what));
}

ColumnFeatures::Feature::Feature(const Column& spec)
    : column(spec),
      kind(spec.kind_case()),
      is_numeric(spec.has_numeric()),
      is_list(spec.has_list()),
      has_missing(spec.numeric().has_missing() || spec.bucketized().has_missing()),
      has_missing_text(spec.categorical().has_missing() || spec.hashed().has_missing()),
      missing(spec.has_numeric() ? spec.numeric().missing() : spec.bucketized().missing()),
      missing_text(spec.has_hashed() ? spec.hashed().missing() : spec.categorical().missing()),
      key(spec.domain().empty() ? spec.name() : spec.domain()),
      log1p(spec.numeric().log1p()),
      mean(spec.numeric().mean()),
      scale(spec.numeric().scale() == 0 ? 1 : spec.numeric().scale()),
      has_threshold(spec.label().has_greater_than()),
      threshold(spec.label().greater_than()),
      buckets(spec.has_hashed() ? spec.hashed().buckets() : spec.crossed().buckets()) {
  if (spec.list().max_length() != 0) max_length = spec.list().max_length();
}

absl::StatusOr<ColumnFeatures> ColumnFeatures::Create(const CsvSpec& spec) {
  PAWL_RETURN_IF_ERROR(ValidateCsvSpec(spec).status());
  return Create(spec.columns());
}

absl::StatusOr<ColumnFeatures> ColumnFeatures::Create(const RecordSpec& spec) {
  PAWL_RETURN_IF_ERROR(ValidateRecordSpec(spec).status());
  return Create(spec.columns());
}

ColumnFeatures ColumnFeatures::Create(const google::protobuf::RepeatedPtrField<Column>& columns) {
  ColumnFeatures result;
  result.shape_.label_count = 0;
  for (const Column& column : columns) {
    Feature feature(column);
    if (feature.kind == Column::kLabel) {
      feature.field = result.shape_.label_count++;
    } else if (feature.kind == Column::kWeight) {
      result.has_weights_ = true;
    } else if (feature.is_numeric) {
      feature.field = result.shape_.numeric_count++;
    } else {
      feature.field = result.shape_.field_count++;
      result.list_of_field_.push_back(feature.is_list ? static_cast<int>(result.list_count_) : -1);
      if (feature.is_list) feature.list = result.list_count_++;
    }
    (column.has_crossed() ? result.crosses_ : result.features_).push_back(std::move(feature));
  }
  for (Feature& cross : result.crosses_) {
    for (const std::string& name : cross.column.crossed().columns()) {
      const auto found =
          std::find_if(result.features_.begin(), result.features_.end(),
                       [&](const Feature& other) { return other.column.name() == name; });
      cross.crossed.push_back(found->field);
    }
  }
  return result;
}

void ColumnFeatures::Clear(ColumnSample* sample) const {
  sample->labels.resize(shape_.label_count);
  sample->numerics.resize(shape_.numeric_count);
  sample->keys.resize(shape_.field_count);
  sample->lists.resize(list_count_);
  sample->list_keys.clear();
}

absl::Status ColumnFeatures::NumberOf(const Feature& feature, const ColumnValue& value,
                                      float* number) const {
  return ToFloat(feature, value, number);
}

absl::Status ColumnFeatures::KeyOf(const Feature& feature, const ColumnValue& value,
                                   uint64_t* key) const {
  if (feature.kind == Column::kBucketized) return ToBucket(feature, value, key);
  switch (value.type) {
    case ColumnValue::Type::kAbsent:
    case ColumnValue::Type::kText:
      *key = CategoryKey(feature, value.text);
      return absl::OkStatus();
    case ColumnValue::Type::kFloat32:
    case ColumnValue::Type::kFloat64:
      if (!std::isfinite(value.number))
        return MalformedColumn(feature, absl::StrCat(Shown(value), " is not a finite number"));
      break;
    case ColumnValue::Type::kInteger:
      break;
  }
  char buffer[kMaxNumberText];
  *key = CategoryKey(feature, TextOf(value, buffer));
  return absl::OkStatus();
}

absl::Status ColumnFeatures::ApplyTexts(absl::Span<const absl::string_view> fields,
                                        ColumnSample* sample, size_t* bad_source) const {
  Clear(sample);
  for (const Feature& feature : features_) {
    const absl::string_view text = fields[feature.source];
    absl::Status status;
    switch (feature.kind) {
      case Column::kCategorical:
      case Column::kHashed:
        if (!feature.is_list) {
          sample->keys[feature.field] = CategoryKey(feature, text);
          continue;
        }
        Split(text, feature.column.list().separator(), &sample->elements);
        status = SetList(
            feature, sample->elements.size(),
            [sample](size_t i) { return ColumnValue::Text(sample->elements[i]); }, sample);
        break;
      case Column::kBucketized:
        status = ToBucket(feature, ColumnValue::Text(text), &sample->keys[feature.field]);
        break;
      default: {
        float* const place = PlaceOf(feature, sample);
        if (TextToFloat(feature, text, place)) continue;
        status = ToFloat(feature, ColumnValue::Text(text), place);
        break;
      }
    }
    if (!status.ok()) {
      *bad_source = feature.source;
      return status;
    }
  }
  Cross(sample);
  return absl::OkStatus();
}

void ColumnFeatures::Cross(ColumnSample* sample) const {
  for (const Feature& feature : crosses_) {
    uint64_t combined[kMaxCsvColumns];
    for (size_t i = 0; i < feature.crossed.size(); ++i)
      combined[i] = sample->keys[feature.crossed[i]];
    const uint64_t key = feature.key.OfCross(absl::MakeConstSpan(combined, feature.crossed.size()));
    sample->keys[feature.field] =
        feature.buckets == 0 ? key : feature.key.OfHashed(key, feature.buckets);
  }
}

void ColumnFeatures::Append(const ColumnSample& sample, SampleStore* store) const {
  store->labels.insert(store->labels.end(), sample.labels.begin(), sample.labels.end());
  if (has_weights_) store->sample_weights.push_back(sample.weight);
  store->numerics.insert(store->numerics.end(), sample.numerics.begin(), sample.numerics.end());
  if (!has_lists()) {
    store->AddEntries(sample.keys);
    return;
  }
  if (store->sample_begin.empty()) store->sample_begin.push_back(0);
  for (size_t field = 0; field < shape_.field_count; ++field) {
    const int number = list_of_field_[field];
    if (number < 0) {
      store->AddEntry(sample.keys[field]);
      store->field_counts.push_back(1);
      continue;
    }
    const ColumnSample::List& list = sample.lists[static_cast<size_t>(number)];
    store->AddEntries(
        absl::MakeConstSpan(sample.list_keys).subspan(list.begin, list.end - list.begin));
    store->field_counts.push_back(static_cast<uint16_t>(list.end - list.begin));
  }
  store->sample_begin.push_back(store->entry_count());
}

}  // namespace pawl
