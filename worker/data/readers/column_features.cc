#include "worker/data/readers/csv_features.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "server/optimizer/math/deterministic_math.h"
#include "worker/data/readers/text_input.h"

namespace pawl {
namespace {

// Above it adjacent integers are the same double, and so the same bucket.
constexpr double kMaxBucket = 9007199254740992.0;  // 2^53

absl::Status BadSpec(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status CheckNumbers(const Column& column, const std::string& path) {
  switch (column.kind_case()) {
    case Column::kLabel:
      if (!std::isfinite(column.label().greater_than()))
        return BadSpec(path, "label.greater_than is not finite");
      break;
    case Column::kNumeric:
      if (!std::isfinite(column.numeric().mean()))
        return BadSpec(path, "numeric.mean is not finite");
      if (!std::isfinite(column.numeric().scale()))
        return BadSpec(path, "numeric.scale is not finite");
      if (!std::isfinite(column.numeric().missing()))
        return BadSpec(path, "numeric.missing is not finite");
      break;
    case Column::kBucketized: {
      const Column::Bucketized& bucketized = column.bucketized();
      const auto& boundaries = bucketized.boundaries();
      if (!std::isfinite(bucketized.missing()))
        return BadSpec(path, "bucketized.missing is not finite");
      if ((bucketized.width() != 0) == !boundaries.empty()) {
        return BadSpec(path, "bucketized needs either a width or boundaries");
      }
      if (!std::isfinite(bucketized.width()) || bucketized.width() < 0) {
        return BadSpec(
            path, absl::StrCat("bucketized.width is ", bucketized.width(), "; it must be above 0"));
      }
      for (int i = 0; i < boundaries.size(); ++i) {
        if (!std::isfinite(boundaries[i]) || (i > 0 && boundaries[i] <= boundaries[i - 1])) {
          return BadSpec(path, absl::StrCat("bucketized.boundaries[", i, "] is ", boundaries[i],
                                            "; boundaries must be finite and ascending"));
        }
      }
      break;
    }
    case Column::kHashed:
      if (column.hashed().buckets() == 0)
        return BadSpec(path, "hashed.buckets is 0; it must be at least 1");
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

// sign(x) * log(1 + |x|)
double SignedLog1p(double x) {
  const double magnitude = std::abs(x);
  const double log =
      magnitude <= 1 ? DeterministicLog1p(magnitude) : DeterministicLog(1 + magnitude);
  return x < 0 ? -log : log;
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

}  // namespace

absl::StatusOr<CsvFeatures> CsvFeatures::Create(const CsvSpec& spec) {
  if (spec.columns().empty())
    return BadSpec("data.csv.columns", "is empty; CSV data needs a column spec");
  if (spec.columns_size() > kMaxFeatures) {
    return BadSpec("data.csv.columns",
                   absl::StrCat("has ", spec.columns_size(), "; the limit is ", kMaxFeatures));
  }
  CsvFeatures features;
  const std::string& delimiter = spec.delimiter();
  if (delimiter.size() > 1 || delimiter == "\"" || delimiter == "\n" || delimiter == "\r") {
    return BadSpec("data.csv.delimiter",
                   absl::StrCat("is ", Quoted(delimiter),
                                "; it must be one byte that is neither a quote nor a line end"));
  }
  if (!delimiter.empty()) features.dialect_.delimiter = delimiter[0];
  features.dialect_.quotes = !spec.no_quotes();
  features.has_header_ = !spec.no_header();
  absl::flat_hash_set<std::string> names;
  std::vector<std::string> cross_paths;
  int labels = 0;
  for (int i = 0; i < spec.columns_size(); ++i) {
    const Column& column = spec.columns(i);
    const std::string path = absl::StrCat("data.csv.columns[", i, "] ", Quoted(column.name()));
    if (column.name().empty()) return BadSpec(path, "name is empty");
    if (!names.insert(column.name()).second) {
      return BadSpec(path, "the name is used twice; to use one column twice set source");
    }
    if (spec.no_header() && !column.has_crossed() && column.position() == 0) {
      return BadSpec(path, "has no position; without a header line columns are found by position");
    }
    if (column.position() > static_cast<uint32_t>(kMaxFeatures)) {
      return BadSpec(
          path, absl::StrCat("position is ", column.position(), "; the limit is ", kMaxFeatures));
    }
    if (column.position() != 0 && !column.source().empty())
      return BadSpec(path, "has both source and position");
    labels += column.has_label() ? 1 : 0;
    if (column.has_crossed()) cross_paths.push_back(path);
    PAWL_RETURN_IF_ERROR(features.Add(column, path));
  }
  if (labels != 1) {
    return BadSpec("data.csv.columns",
                   absl::StrCat("has ", labels, " columns of kind label; it must have one"));
  }
  if (features.shape_.numeric_count + features.shape_.field_count == 0) {
    return BadSpec("data.csv.columns", "has a label but no features");
  }
  for (size_t i = 0; i < features.crosses_.size(); ++i) {
    PAWL_RETURN_IF_ERROR(features.ResolveCross(&features.crosses_[i], cross_paths[i]));
  }
  return features;
}

absl::Status CsvFeatures::Add(const Column& column, const std::string& path) {
  PAWL_RETURN_IF_ERROR(CheckNumbers(column, path));
  Feature feature(column);
  switch (column.kind_case()) {
    case Column::kLabel:
    case Column::kWeight:
      break;
    case Column::kNumeric:
      feature.field = shape_.numeric_count++;
      break;
    case Column::kBucketized:
    case Column::kCategorical:
    case Column::kHashed:
    case Column::kCrossed:
      feature.field = shape_.field_count++;
      break;
    case Column::KIND_NOT_SET:
      return BadSpec(path,
                     "has no kind: label, numeric, bucketized, categorical, hashed or crossed");
  }
  (column.has_crossed() ? crosses_ : features_).push_back(std::move(feature));
  return absl::OkStatus();
}

absl::Status CsvFeatures::ResolveCross(Feature* feature, const std::string& path) {
  const Column::Crossed& crossed = feature->column.crossed();
  if (crossed.columns_size() < 2) return BadSpec(path, "crossed needs at least two columns");
  if (crossed.columns_size() > kMaxFeatures) {
    return BadSpec(path, absl::StrCat("crossed.columns has ", crossed.columns_size(),
                                      "; the limit is ", kMaxFeatures));
  }
  if (!feature->column.source().empty() || feature->column.position() != 0) {
    return BadSpec(path, absl::StrCat(feature->column.source().empty() ? "position" : "source",
                                      " is set; a crossed feature has no column"));
  }
  for (const std::string& name : crossed.columns()) {
    const auto found = std::find_if(features_.begin(), features_.end(), [&](const Feature& other) {
      return other.column.name() == name;
    });
    if (found == features_.end() || found->column.has_label() || found->column.has_numeric()) {
      return BadSpec(
          path,
          absl::StrCat("crossed.columns has ", Quoted(name),
                       ", which is not a bucketized, categorical or hashed column of the spec"));
    }
    feature->crossed.push_back(found->field);
  }
  return absl::OkStatus();
}

absl::Status CsvFeatures::Bind(const CsvRecordReader& first) {
  bound_columns_ = first.fields().size();
  for (Feature& feature : features_) PAWL_RETURN_IF_ERROR(BindOne(first, &feature));
  return absl::OkStatus();
}

absl::Status CsvFeatures::BindOne(const CsvRecordReader& first, Feature* feature) {
  const std::vector<absl::string_view>& names = first.fields();
  const Column& column = feature->column;
  if (column.position() != 0) {
    if (column.position() > names.size()) {
      return first.MalformedRecord(absl::StrCat("column ", Quoted(column.name()),
                                                " is at position ", column.position(),
                                                ", but the line has ", names.size(), " fields"));
    }
    feature->source = column.position() - 1;
    return absl::OkStatus();
  }
  const std::string& source = column.source().empty() ? column.name() : column.source();
  const auto found = std::find(names.begin(), names.end(), source);
  if (found == names.end()) {
    constexpr size_t kMaxShownNames = 20;
    const size_t shown = std::min(names.size(), kMaxShownNames);
    return first.MalformedRecord(absl::StrCat(
        "column ", Quoted(source), " is not in the header, which has ",
        absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", ",
                      [](std::string* out, absl::string_view name) { *out += Quoted(name); }),
        shown < names.size() ? ", ..." : ""));
  }
  feature->source = static_cast<size_t>(found - names.begin());
  const auto again = std::find(found + 1, names.end(), source);
  if (again != names.end()) {
    return first.MalformedField(static_cast<size_t>(again - names.begin()),
                                absl::StrCat("column ", Quoted(source), " is in the header twice"));
  }
  return absl::OkStatus();
}

absl::Status CsvFeatures::Apply(const CsvRecordReader& record, CsvSample* sample) const {
  const std::vector<absl::string_view>& texts = record.fields();
  if (texts.size() != bound_columns_) {
    return record.MalformedRecord(
        absl::StrCat("the line has ", texts.size(), " fields, but ",
                     has_header_ ? "the header has " : "the first line has ", bound_columns_));
  }
  sample->numerics.resize(shape_.numeric_count);
  sample->keys.resize(shape_.field_count);
  std::vector<uint64_t>& keys = sample->keys;
  for (const Feature& feature : features_) {
    const absl::string_view text = texts[feature.source];
    if (feature.kind == Column::kCategorical) {
      keys[feature.field] = feature.key.OfCategory(text);
    } else if (feature.kind == Column::kHashed) {
      keys[feature.field] =
          feature.key.OfHashed(feature.key.OfCategory(text), feature.column.hashed().buckets());
    } else {
      PAWL_RETURN_IF_ERROR(ApplyNumber(feature, text, record, sample));
    }
  }
  for (const Feature& feature : crosses_) {
    uint64_t combined[kMaxFeatures];
    for (size_t i = 0; i < feature.crossed.size(); ++i) combined[i] = keys[feature.crossed[i]];
    const uint64_t key = feature.key.OfCross(absl::MakeConstSpan(combined, feature.crossed.size()));
    const uint64_t buckets = feature.column.crossed().buckets();
    keys[feature.field] = buckets == 0 ? key : feature.key.OfHashed(key, buckets);
  }
  return absl::OkStatus();
}

absl::Status CsvFeatures::ApplyNumber(const Feature& feature, absl::string_view text,
                                      const CsvRecordReader& record, CsvSample* sample) const {
  const Column& column = feature.column;
  const auto malformed = [&](absl::string_view what) {
    return record.MalformedField(
        feature.source,
        absl::StrCat("column ", Quoted(column.source().empty() ? column.name() : column.source()),
                     ": ", what));
  };
  double number = feature.missing;
  if (!(text.empty() && feature.has_missing) && !ParseNumber(text, &number)) {
    const bool may_be_missing = feature.kind != Column::kLabel && text.empty();
    return malformed(absl::StrCat(
        Quoted(text), " is not a number",
        may_be_missing ? "; set `missing` of the column to the number that it stands for" : ""));
  }
  switch (feature.kind) {
    case Column::kBucketized: {
      int64_t bucket = 0;
      if (!BucketOf(column.bucketized(), number, &bucket))
        return malformed(absl::StrCat(Quoted(text), " is too large for its buckets"));
      sample->keys[feature.field] = feature.key.OfBucket(bucket);
      return absl::OkStatus();
    }
    case Column::kLabel:
      if (!column.label().has_greater_than()) break;
      sample->label = number > column.label().greater_than() ? 1.0f : 0.0f;
      return absl::OkStatus();
    default: {
      if (column.numeric().log1p()) number = SignedLog1p(number);
      const double scale = column.numeric().scale();
      number = (number - column.numeric().mean()) / (scale == 0 ? 1 : scale);
      break;
    }
  }
  const float narrow = static_cast<float>(number);
  if (!std::isfinite(narrow))
    return malformed(absl::StrCat(Quoted(text), " is out of float32's range"));
  (feature.kind == Column::kLabel ? sample->label : sample->numerics[feature.field]) = narrow;
  return absl::OkStatus();
}

}  // namespace pawl
