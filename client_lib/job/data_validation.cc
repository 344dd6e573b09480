#include "client_lib/job/data_validation.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

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

// The settings of streamed data.
absl::Status ValidateStreaming(const Data& data) {
  if (data.window_samples() == 0) {
    if (data.block_bytes() == 0 && data.data_id().empty() && !data.stream_eval())
      return absl::OkStatus();
    return Invalid(data.block_bytes() != 0   ? "data.block_bytes"
                   : !data.data_id().empty() ? "data.data_id"
                                             : "data.stream_eval",
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
  if (data.stream_eval() && data.eval().empty())
    return Invalid("data.stream_eval is set, but data.eval is empty; set it or leave both out");
  if (data.format() == IDX)
    return Invalid("data.window_samples is set, but IDX data cannot be streamed; leave it out");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DataFeatures> ValidateData(const Data& data) {
  for (const std::string& path : data.train()) {
    if (path.empty()) return Invalid("data.train has an empty entry; it must name a file");
  }
  for (const std::string& path : data.eval()) {
    if (path.empty()) return Invalid("data.eval has an empty entry; it must name a file");
  }
  if (data.train().empty())
    return Invalid("data.train is empty; it must name the files with the training samples");
  PAWL_RETURN_IF_ERROR(ValidateStreaming(data));
  return ValidateFormat(data);
}

absl::Status ValidateDataFiles(const Data& data, bool evaluation_only) {
  for (const auto& [field, paths] :
       {std::pair("data.train", &data.train()), std::pair("data.eval", &data.eval())}) {
    if (evaluation_only && paths == &data.train()) continue;
    PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          ExpandDataFiles(field, *paths, data.format()));
    for (const std::string& file : files)
      PAWL_RETURN_IF_ERROR(ValidateDataFile(field, file, data.format()));
  }
  return absl::OkStatus();
}

}  // namespace pawl
