#include "client_lib/job/format_validation.h"

#include <cmath>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

using Columns = google::protobuf::RepeatedPtrField<Column>;

constexpr size_t kMaxSeparatorBytes = 16;

std::string Printable(absl::string_view text) {
  constexpr size_t kMaxShownBytes = 40;
  return absl::StrCat(absl::CHexEscape(text.substr(0, kMaxShownBytes)),
                      text.size() > kMaxShownBytes ? "..." : "");
}

class ColumnValidator {
 public:
  // `csv` is null for records. `list`: the field that has the columns.
  ColumnValidator(const Columns& columns, const CsvSpec* csv, absl::string_view list)
      : columns_(columns), csv_(csv), list_(list) {}

  absl::StatusOr<DataFeatures> Validate() {
    if (columns_.empty()) {
      return Invalid(list_, " is empty; ", csv_ != nullptr ? "a CSV file needs" : "records need",
                     " a label column and at least one feature");
    }
    if (columns_.size() > kMaxCsvColumns) {
      return Invalid(list_, " has ", columns_.size(), " entries; at most ", kMaxCsvColumns,
                     " are possible");
    }
    features_.labels = 0;
    for (int i = 0; i < columns_.size(); ++i) PAWL_RETURN_IF_ERROR(ValidateColumn(i));
    if (features_.labels == 0)
      return Invalid(list_, " has 0 label columns; it must have at least one");
    if (features_.labels > kMaxLabels) {
      return Invalid(list_, " has ", features_.labels, " label columns; at most ", kMaxLabels,
                     " are possible");
    }
    if (weights_ > 1) return Invalid(list_, " has ", weights_, " weight columns; at most one");
    if (features_.numerics + features_.fields == 0) {
      return Invalid(list_, " has a label and no feature; add a column of another kind");
    }
    for (int i = 0; i < columns_.size(); ++i) {
      if (columns_[i].has_crossed()) PAWL_RETURN_IF_ERROR(ValidateCross(i));
      PAWL_RETURN_IF_ERROR(ValidateDomain(i));
    }
    return features_;
  }

 private:
  static bool IsField(const Column& column) {
    return column.has_bucketized() || column.has_categorical() || column.has_hashed() ||
           column.has_crossed();
  }

  std::string Where(int i) const {
    const std::string& name = columns_[i].name();
    return absl::StrCat(list_, "[", i, "]",
                        name.empty() ? "" : absl::StrCat(" (", Printable(name), ")"));
  }

  absl::Status ValidateColumn(int i) {
    const Column& column = columns_[i];
    const std::string where = Where(i);
    if (column.name().empty()) {
      return Invalid(where, ".name is empty; set it to the column's name in the ",
                     csv_ != nullptr ? "header line" : "records");
    }
    PAWL_RETURN_IF_ERROR(ValidatePlace(column, where));
    PAWL_RETURN_IF_ERROR(ValidateKind(column, where));
    PAWL_RETURN_IF_ERROR(ValidateList(column, where));
    if (!names_.emplace(column.name(), i).second) {
      return Invalid(
          where, ": the name is used twice; to use a column twice, use two names with one source");
    }
    features_.labels += column.has_label();
    features_.numerics += column.has_numeric();
    features_.fields += IsField(column);
    weights_ += column.has_weight();
    return absl::OkStatus();
  }

  // Where a column is found: by name or by position.
  absl::Status ValidatePlace(const Column& column, const std::string& where) const {
    if (column.has_crossed() && !column.source().empty())
      return Invalid(where, ".source is set; a crossed feature has only crossed.columns");
    if (column.has_crossed() && column.position() != 0)
      return Invalid(where, ".position is set; a crossed feature has only crossed.columns");
    if (csv_ == nullptr && column.position() != 0) {
      return Invalid(where, ".position is ", column.position(),
                     "; columns of records are found by their names; leave it out");
    }
    if (column.position() != 0 && !column.source().empty())
      return Invalid(where, " has both source and position; leave one out");
    if (column.position() > kMaxCsvColumns) {
      return Invalid(where, ".position is ", column.position(), "; at most ", kMaxCsvColumns,
                     " are possible");
    }
    if (csv_ != nullptr && csv_->no_header() && column.position() == 0 && !column.has_crossed()) {
      return Invalid(where, " has no position; without a header line (data.csv.no_header) columns ",
                     "are found by their numbers, from 1");
    }
    return absl::OkStatus();
  }

  absl::Status ValidateKind(const Column& column, const std::string& where) const {
    switch (column.kind_case()) {
      case Column::kLabel:
        if (!std::isfinite(column.label().greater_than()))
          return Invalid(where, ".label.greater_than is not a finite number");
        return absl::OkStatus();
      case Column::kNumeric:
        if (!std::isfinite(column.numeric().mean()) || !std::isfinite(column.numeric().scale()) ||
            column.numeric().scale() < 0) {
          return Invalid(where, ".numeric: mean is ", column.numeric().mean(), " and scale ",
                         column.numeric().scale(),
                         "; both must be finite, scale at least 0 (0 means 1)");
        }
        if (!std::isfinite(column.numeric().missing()))
          return Invalid(where, ".numeric.missing is not a finite number");
        return absl::OkStatus();
      case Column::kBucketized:
        return ValidateBuckets(column.bucketized(), where);
      case Column::kHashed:
        if (column.hashed().buckets() == 0)
          return Invalid(where, ".hashed.buckets is 0; it must be at least 1");
        return absl::OkStatus();
      case Column::kCategorical:
      case Column::kCrossed:
      case Column::kWeight:
        return absl::OkStatus();
      case Column::KIND_NOT_SET:
        break;
    }
    return Invalid(where,
                   " has no kind; set one of label, numeric, bucketized, categorical, hashed, "
                   "crossed, weight");
  }

  absl::Status ValidateBuckets(const Column::Bucketized& buckets, const std::string& where) const {
    if (!std::isfinite(buckets.missing()))
      return Invalid(where, ".bucketized.missing is not a finite number");
    if ((buckets.width() != 0) == (buckets.boundaries_size() > 0))
      return Invalid(where, ".bucketized: set either width or boundaries");
    if (!std::isfinite(buckets.width()) || buckets.width() < 0) {
      return Invalid(where, ".bucketized.width is ", buckets.width(), "; it must be above 0");
    }
    for (int b = 0; b < buckets.boundaries_size(); ++b) {
      if (!std::isfinite(buckets.boundaries(b)) ||
          (b > 0 && buckets.boundaries(b) <= buckets.boundaries(b - 1))) {
        return Invalid(where, ".bucketized.boundaries[", b, "] is ", buckets.boundaries(b),
                       "; boundaries must be finite and ascend");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ValidateList(const Column& column, const std::string& where) const {
    if (!column.has_list()) return absl::OkStatus();
    if (!column.has_categorical() && !column.has_hashed()) {
      return Invalid(where, ".list is set; only categorical and hashed columns can be lists");
    }
    if (column.categorical().has_missing() || column.hashed().has_missing()) {
      return Invalid(where, " has both list and missing; an empty field is an empty list; leave ",
                     "missing out");
    }
    if (column.list().max_length() > kMaxListLength) {
      return Invalid(where, ".list.max_length is ", column.list().max_length(), "; at most ",
                     kMaxListLength, " elements of a list are used");
    }
    const std::string& separator = column.list().separator();
    if (csv_ == nullptr) {
      if (separator.empty()) return absl::OkStatus();
      return Invalid(where,
                     ".list.separator is set, but the elements of a list in records are values of "
                     "their own; leave it out");
    }
    if (separator.empty() || separator.size() > kMaxSeparatorBytes) {
      return Invalid(where, ".list.separator has ", separator.size(), " bytes; it must have 1 to ",
                     kMaxSeparatorBytes, ", such as \"|\"");
    }
    const absl::string_view delimiter =
        csv_->delimiter().empty() ? absl::string_view(",") : csv_->delimiter();
    if (csv_->no_quotes() && absl::StrContains(separator, delimiter)) {
      return Invalid(where, ".list.separator contains the delimiter of fields, which ends the ",
                     "list's field; use another one");
    }
    return absl::OkStatus();
  }

  absl::Status ValidateCross(int i) const {
    const Column& column = columns_[i];
    const std::string where = absl::StrCat(Where(i), ".crossed.columns");
    if (column.crossed().columns_size() < 2) {
      return Invalid(where, " has ", column.crossed().columns_size(),
                     " entries; crossing needs at least 2");
    }
    absl::flat_hash_set<std::string> crossed;
    for (const std::string& name : column.crossed().columns()) {
      const std::string shown = Printable(name);
      const auto it = names_.find(name);
      if (it == names_.end())
        return Invalid(where, " names '", shown, "', which is not in ", list_);
      const Column& other = columns_[it->second];
      if (!IsField(other) || other.has_crossed()) {
        return Invalid(where, " names '", shown,
                       "', which is not bucketized, categorical or hashed");
      }
      if (other.has_list())
        return Invalid(where, " names '", shown, "', which is a list; lists cannot be crossed");
      if (!crossed.insert(name).second) return Invalid(where, " names '", shown, "' twice");
    }
    return absl::OkStatus();
  }

  // Columns of one domain must make the same keys.
  absl::Status ValidateDomain(int i) {
    const Column& column = columns_[i];
    if (!IsField(column) || column.has_crossed()) {
      if (!column.domain().empty()) {
        return Invalid(Where(i), ".domain is set; only bucketized, categorical and hashed columns ",
                       "have one");
      }
      if (!column.has_crossed()) return absl::OkStatus();
    }
    const std::string& domain = column.domain().empty() ? column.name() : column.domain();
    const auto [it, inserted] = domains_.emplace(domain, i);
    if (inserted) return absl::OkStatus();
    const Column& first = columns_[it->second];
    bool is_same = first.kind_case() == column.kind_case() && !first.has_crossed();
    if (column.has_hashed())
      is_same = is_same && first.hashed().buckets() == column.hashed().buckets();
    if (column.has_bucketized()) {
      const Column::Bucketized &a = first.bucketized(), &b = column.bucketized();
      is_same = is_same && a.width() == b.width() && a.boundaries_size() == b.boundaries_size();
      for (int k = 0; is_same && k < a.boundaries_size(); ++k)
        is_same = a.boundaries(k) == b.boundaries(k);
    }
    if (is_same) return absl::OkStatus();
    return Invalid(Where(i), " has the domain '", Printable(domain), "' of ", Where(it->second),
                   ", but another kind or other buckets, and so other keys; make them alike or ",
                   "change .domain");
  }

  const Columns& columns_;
  const CsvSpec* const csv_;
  const absl::string_view list_;
  DataFeatures features_;
  int weights_ = 0;
  absl::flat_hash_map<std::string, int> names_;
  // The first column of each domain.
  absl::flat_hash_map<std::string, int> domains_;
};

}  // namespace

absl::StatusOr<DataFeatures> ValidateCsvSpec(const CsvSpec& csv) {
  const std::string& delimiter = csv.delimiter();
  if (delimiter.size() > 1 || delimiter == "\"" || delimiter == "\n" || delimiter == "\r") {
    return Invalid("data.csv.delimiter is '", Printable(delimiter),
                   "'; it must be one byte that is neither a quote nor a line end, such as "
                   "\"\\t\"");
  }
  return ColumnValidator(csv.columns(), &csv, "data.csv.columns").Validate();
}

absl::StatusOr<DataFeatures> ValidateRecordSpec(const RecordSpec& records) {
  return ColumnValidator(records.columns(), nullptr, "data.records.columns").Validate();
}

absl::StatusOr<DataFeatures> ValidateFormat(const Data& data) {
  const bool has_records = data.format() == TFRECORD || data.format() == RECORDS;
  if (data.format() != CSV && data.has_csv()) {
    return Invalid("data.csv is set, but data.format is ", DataFormat_Name(data.format()),
                   "; set format: CSV");
  }
  if (!has_records && data.has_records()) {
    return Invalid("data.records is set, but data.format is ", DataFormat_Name(data.format()),
                   "; set format: TFRECORD or RECORDS");
  }
  if (data.format() != LIBSVM && data.libsvm_fields() != 0) {
    return Invalid("data.libsvm_fields is ", data.libsvm_fields(), ", but data.format is ",
                   DataFormat_Name(data.format()), "; leave it out");
  }
  if (data.libsvm_fields() > kMaxFields) {
    return Invalid("data.libsvm_fields is ", data.libsvm_fields(), "; at most ", kMaxFields,
                   " are possible");
  }
  DataFeatures features;
  switch (data.format()) {
    case LIBSVM:
      // Only the file determines the number of fields.
      features.fields = data.libsvm_fields() == 0 ? 2 : data.libsvm_fields();
      return features;
    case CSV:
      return ValidateCsvSpec(data.csv());
    case TFRECORD:
    case RECORDS:
      return ValidateRecordSpec(data.records());
    case IDX:
      features.numerics = 1;
      return features;
    default:
      return Invalid("data.format is not set; it must be LIBSVM, CSV, TFRECORD, RECORDS or IDX");
  }
}

}  // namespace pawl
