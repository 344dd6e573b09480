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

// Whether a folder or glob stands for the file of this name.
bool IsDataFile(absl::string_view name, DataFormat format) {
  if (absl::StartsWith(name, ".") || absl::StartsWith(name, "_") ||
      absl::EndsWith(name, kDataIndexSuffix) || absl::EndsWith(name, kUnfinishedIndexSuffix)) {
    return false;
  }
  return format != IDX || absl::StrContains(name, "images-idx3");
}

absl::Status FilesOfFolder(const std::string& field, const std::string& folder, DataFormat format,
                           std::vector<std::string>* files) {
  std::error_code error;
  const size_t before = files->size();
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && IsDataFile(entry->path().filename().string(), format)) {
      files->push_back(entry->path().string());
    }
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
  const int result = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> names;
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) names.push_back(found.gl_pathv[i]);
  globfree(&found);
  const size_t before = files->size();
  for (std::string& name : names) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(name, ignored) &&
        IsDataFile(std::filesystem::path(name).filename().string(), format)) {
      files->push_back(std::move(name));
    }
  }
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
    if (!seen.insert(std::filesystem::path(file).lexically_normal().string()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", file, " is named twice; its samples would count twice"));
    }
  }
  return files;
}

}  // namespace pawl
