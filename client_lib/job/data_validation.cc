#include "client_lib/job/data_validation.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/data_files.h"

namespace pawl {
namespace {

absl::Status ValidateFile(const std::string& field, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return Invalid(field, ": ", path, " is a folder, not a file");
  // Opening a pipe would wait for a writer.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return Invalid(field, ": ", path, " is not a regular file");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (file) return absl::OkStatus();
  const std::string text = absl::StrCat(field, ": cannot open ", path, ": ", std::strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(text) : absl::InvalidArgumentError(text);
}

absl::Status ValidateDataFile(const std::string& field, const std::string& path,
                              DataFormat format) {
  PAWL_RETURN_IF_ERROR(ValidateFile(field, path));
  if (format != IDX) return absl::OkStatus();
  const std::filesystem::path images(path);
  const std::string labels =
      absl::StrReplaceAll(images.filename().string(), {{"images-idx3", "labels-idx1"}});
  if (labels == images.filename().string()) {
    return Invalid(
        field, ": ", path,
        " has no \"images-idx3\" in its name, from which the name of the label file is derived");
  }
  return ValidateFile(absl::StrCat(field, " (labels)"), (images.parent_path() / labels).string());
}

// Where a column is found: by name or by position.
absl::Status ValidateColumnPlace(const CsvSpec& csv, const Column& column,
                                 const std::string& where) {
  if (column.position() != 0 && !column.source().empty()) {
    return Invalid(where, " has both source and position; leave one out");
  }
  if (column.position() != 0 && column.has_crossed()) {
    return Invalid(where, ".position is set; a crossed feature has only crossed.columns");
  }
  if (column.position() > kMaxCsvColumns) {
    return Invalid(where, ".position is ", column.position(), "; at most ", kMaxCsvColumns,
                   " are possible");
  }
  if (csv.no_header() && column.position() == 0 && !column.has_crossed()) {
    return Invalid(where, " has no position; without a header line (data.csv.no_header) columns ",
                   "are found by their numbers, from 1");
  }
  return absl::OkStatus();
}

absl::Status ValidateCsv(const CsvSpec& csv, DataFeatures& features) {
  if (csv.delimiter().size() > 1 || csv.delimiter() == "\"" || csv.delimiter() == "\n" ||
      csv.delimiter() == "\r") {
    return Invalid(
        "data.csv.delimiter must be one byte that is neither a quote nor a line end, such as "
        "\"\\t\"");
  }
  if (csv.columns_size() == 0) {
    return Invalid(
        "data.csv.columns is empty; a CSV file needs a label column and at least one feature");
  }
  if (csv.columns_size() > kMaxCsvColumns) {
    return Invalid("data.csv.columns has ", csv.columns_size(), " entries; at most ",
                   kMaxCsvColumns, " are possible");
  }
  int labels = 0;
  // Column name to whether the column is categorical.
  absl::flat_hash_map<std::string, bool> categorical;
  for (int i = 0; i < csv.columns_size(); ++i) {
    const Column& column = csv.columns(i);
    const std::string where =
        absl::StrCat("data.csv.columns[", i, "]",
                     column.name().empty() ? "" : absl::StrCat(" (", column.name(), ")"));
    if (column.name().empty())
      return Invalid(where, ".name is empty; set it to the column's name in the header line");
    PAWL_RETURN_IF_ERROR(ValidateColumnPlace(csv, column, where));
    bool is_categorical = false;
    switch (column.kind_case()) {
      case Column::kLabel:
        ++labels;
        if (column.label().has_greater_than() && !std::isfinite(column.label().greater_than())) {
          return Invalid(where, ".label.greater_than is not a finite number");
        }
        break;
      case Column::kNumeric:
        if (!std::isfinite(column.numeric().mean()) || !std::isfinite(column.numeric().scale()) ||
            column.numeric().scale() < 0) {
          return Invalid(where, ".numeric: mean is ", column.numeric().mean(), " and scale ",
                         column.numeric().scale(),
                         "; both must be finite, scale at least 0 (0 means 1)");
        }
        if (!std::isfinite(column.numeric().missing()))
          return Invalid(where, ".numeric.missing is not a finite number");
        ++features.numerics;
        break;
      case Column::kBucketized: {
        const Column::Bucketized& buckets = column.bucketized();
        if (!std::isfinite(buckets.missing()))
          return Invalid(where, ".bucketized.missing is not a finite number");
        if ((buckets.width() != 0) == (buckets.boundaries_size() > 0)) {
          return Invalid(where, ".bucketized: set either width or boundaries");
        }
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
        is_categorical = true;
        break;
      }
      case Column::kCategorical:
        is_categorical = true;
        break;
      case Column::kHashed:
        if (column.hashed().buckets() == 0)
          return Invalid(where, ".hashed.buckets is 0; it must be at least 1");
        is_categorical = true;
        break;
      case Column::kCrossed:
        if (!column.source().empty()) {
          return Invalid(where, ".source is set; a crossed feature has only crossed.columns");
        }
        is_categorical = true;
        break;
      case Column::kWeight:
        break;
      case Column::KIND_NOT_SET:
        return Invalid(
            where,
            " has no kind; set one of label, numeric, bucketized, categorical, hashed, crossed");
    }
    if (!categorical.emplace(column.name(), is_categorical && !column.has_crossed()).second) {
      return Invalid(
          where, ": the name is used twice; to use a column twice, use two names with one source");
    }
    features.fields += is_categorical;
  }
  if (labels != 1)
    return Invalid("data.csv.columns has ", labels, " label columns; it must have exactly one");
  if (features.numerics + features.fields == 0) {
    return Invalid("data.csv.columns has a label and no feature; add a column of another kind");
  }
  for (int i = 0; i < csv.columns_size(); ++i) {
    const Column& column = csv.columns(i);
    if (!column.has_crossed()) continue;
    const std::string where =
        absl::StrCat("data.csv.columns[", i, "] (", column.name(), ").crossed.columns");
    if (column.crossed().columns_size() < 2) {
      return Invalid(where, " has ", column.crossed().columns_size(),
                     " entries; crossing needs at least 2");
    }
    absl::flat_hash_set<std::string> crossed;
    for (const std::string& name : column.crossed().columns()) {
      const auto it = categorical.find(name);
      if (it == categorical.end())
        return Invalid(where, " names '", name, "', which is not in data.csv.columns");
      if (!it->second) {
        return Invalid(where, " names '", name,
                       "', which is not bucketized, categorical or hashed");
      }
      if (!crossed.insert(name).second) return Invalid(where, " names '", name, "' twice");
    }
  }
  return absl::OkStatus();
}

// The settings of streamed data.
absl::Status ValidateStreaming(const Data& data) {
  if (data.window_samples() == 0) {
    if (data.block_bytes() == 0 && data.data_id().empty()) return absl::OkStatus();
    return Invalid(data.block_bytes() != 0 ? "data.block_bytes" : "data.data_id",
                   " is set, but data.window_samples is not; set it to stream the data");
  }
  if (data.window_samples() > kMaxWindowSamples) {
    return Invalid("data.window_samples is ", data.window_samples(), "; at most ",
                   kMaxWindowSamples, " are possible");
  }
  if (data.block_bytes() != 0 &&
      (data.block_bytes() < kMinBlockBytes || data.block_bytes() > kMaxBlockBytes)) {
    return Invalid("data.block_bytes is ", data.block_bytes(), "; it must be between ",
                   kMinBlockBytes, " and ", kMaxBlockBytes, ", or 0 for the default");
  }
  if (data.format() == IDX)
    return Invalid("data.window_samples is set, but IDX data cannot be streamed; leave it out");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DataFeatures> ValidateData(const Data& data) {
  DataFeatures features;
  for (const std::string& path : data.train()) {
    if (path.empty()) return Invalid("data.train has an empty entry; it must name a file");
  }
  for (const std::string& path : data.eval()) {
    if (path.empty()) return Invalid("data.eval has an empty entry; it must name a file");
  }
  if (data.train().empty())
    return Invalid("data.train is empty; it must name the files with the training samples");
  PAWL_RETURN_IF_ERROR(ValidateStreaming(data));
  if (data.format() != CSV && data.has_csv()) {
    return Invalid("data.csv is set, but data.format is ", DataFormat_Name(data.format()),
                   "; set format: CSV");
  }
  if (data.format() != LIBSVM && data.libsvm_fields() != 0) {
    return Invalid("data.libsvm_fields is ", data.libsvm_fields(), ", but data.format is ",
                   DataFormat_Name(data.format()), "; leave it out");
  }
  if (data.libsvm_fields() > kMaxFields) {
    return Invalid("data.libsvm_fields is ", data.libsvm_fields(), "; at most ", kMaxFields,
                   " are possible");
  }
  switch (data.format()) {
    case LIBSVM:
      // Only the file determines the number of fields.
      features.fields = data.libsvm_fields() == 0 ? 2 : data.libsvm_fields();
      break;
    case CSV:
      PAWL_RETURN_IF_ERROR(ValidateCsv(data.csv(), features));
      break;
    case IDX:
      features.numerics = 1;
      break;
    default:
      return Invalid("data.format is not set; it must be LIBSVM, CSV or IDX");
  }
  return features;
}

absl::Status ValidateDataFiles(const Data& data) {
  for (const auto& [field, paths] :
       {std::pair("data.train", &data.train()), std::pair("data.eval", &data.eval())}) {
    PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          ExpandDataFiles(field, *paths, data.format()));
    for (const std::string& file : files)
      PAWL_RETURN_IF_ERROR(ValidateDataFile(field, file, data.format()));
  }
  return absl::OkStatus();
}

}  // namespace pawl
