#include "client_lib/job/data_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// Appends the path if a folder or glob stands for it. An error names it: a file that cannot be
// examined might have samples.
absl::Status AddDataFile(const std::string& field, const std::filesystem::path& path,
                         DataFormat format, std::vector<std::string>* files) {
  const std::string name = path.filename().string();
  if (absl::StartsWith(name, ".") || absl::StartsWith(name, "_") ||
      absl::EndsWith(name, kDataIndexSuffix) ||
      (format == IDX && !absl::StrContains(name, "images-idx3"))) {
    return absl::OkStatus();
  }
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::none || type == std::filesystem::file_type::not_found) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": cannot examine ", path.string(), ": ", error.message()));
  }
  if (type == std::filesystem::file_type::regular) files->push_back(path.string());
  return absl::OkStatus();
}

absl::Status FilesOfFolder(const std::string& field, const std::string& folder, DataFormat format,
                           std::vector<std::string>* files) {
  std::error_code error;
  const size_t before = files->size();
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    PAWL_RETURN_IF_ERROR(AddDataFile(field, entry->path(), format, files));
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": cannot list ", folder, ": ", error.message()));
  }
  if (files->size() == before)
    return absl::NotFoundError(absl::StrCat(field, ": the folder ", folder, " has no data files"));
  std::sort(files->begin() + static_cast<std::ptrdiff_t>(before), files->end());
  return absl::OkStatus();
}

absl::Status FilesOfGlob(const std::string& field, const std::string& pattern, DataFormat format,
                         std::vector<std::string>* files) {
  glob_t found = {};
  const int result = glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  std::vector<std::string> names;
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) names.push_back(found.gl_pathv[i]);
  globfree(&found);
  if (result != 0 && result != GLOB_NOMATCH) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": cannot list ", pattern, ": a folder cannot be read"));
  }
  const size_t before = files->size();
  for (const std::string& name : names)
    PAWL_RETURN_IF_ERROR(AddDataFile(field, name, format, files));
  if (files->size() == before)
    return absl::NotFoundError(absl::StrCat(field, ": no file matches ", pattern));
  std::sort(files->begin() + static_cast<std::ptrdiff_t>(before), files->end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandDataFiles(
    const std::string& field, const google::protobuf::RepeatedPtrField<std::string>& paths,
    DataFormat format) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      PAWL_RETURN_IF_ERROR(FilesOfFolder(field, path, format, &files));
    } else if (path.find_first_of("*?[") == std::string::npos ||
               std::filesystem::exists(path, error)) {
      files.push_back(path);
    } else {
      PAWL_RETURN_IF_ERROR(FilesOfGlob(field, path, format, &files));
    }
  }
  absl::flat_hash_set<std::string> seen;
  for (const std::string& file : files) {
    // A link names the same file. One that does not exist is refused when it is opened.
    std::error_code error;
    const std::filesystem::path path = std::filesystem::weakly_canonical(file, error);
    if (!seen.insert(error ? file : path.string()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", file, " is named twice; its samples would count twice"));
    }
  }
  return files;
}

}  // namespace pawl
