#include "deploy/pawlctl/cluster/out_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"

namespace pawl {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kLockName = ".pawlctl-run";
// The files of a run, which the next run removes.
constexpr const char* kMade[] = {"job.pbtxt", "scheduler.addr", "metrics.json", "logs", "data",
                                 "tls",       "tensorboard",    "curve.jsonl"};

absl::Status FileError(absl::string_view what, const std::string& path, int error) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("cannot ", what, " ", path, " (choose another folder with --out)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutFolder>> OutFolder::Open(const std::string& given_path) {
  std::error_code error;
  const std::string path = fs::absolute(given_path, error).lexically_normal();
  if (error) return FileError("find", given_path, error.value());
  fs::create_directories(path, error);
  if (error) return FileError("make the folder", path, error.value());

  const std::string lock_path = absl::StrCat(path, "/", kLockName);
  // The lock file marks a folder whose contents a run may remove.
  if (!fs::exists(lock_path, error)) {
    for (const char* name : kMade) {
      if (fs::exists(fs::path(path) / name, error)) {
        return absl::FailedPreconditionError(
            absl::StrCat(path, "/", name,
                         " exists and was not made by pawlctl run, which would remove it: choose "
                         "another --out"));
      }
    }
  }
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return FileError("write", lock_path, errno);
  // From here on its destructor frees the lock.
  std::unique_ptr<OutFolder> folder(new OutFolder(path, lock));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "another pawlctl run uses ", path, ": wait for its end or choose another --out"));
  }
  for (const char* name : kMade) {
    fs::remove_all(fs::path(path) / name, error);
    if (error) return FileError("remove", absl::StrCat(path, "/", name), error.value());
  }
  for (const char* name : {"logs", "data"}) {
    fs::create_directory(fs::path(path) / name, error);
    if (error) return FileError("make the folder", absl::StrCat(path, "/", name), error.value());
  }
  return folder;
}

OutFolder::~OutFolder() { close(lock_); }

std::string OutFolder::log(absl::string_view node) const {
  return absl::StrCat(path_, "/logs/", node, ".log");
}

std::string OutFolder::data(absl::string_view process) const {
  return absl::StrCat(path_, "/data/", process);
}

std::string OutFolder::tls(absl::string_view role) const {
  return absl::StrCat(path_, "/tls/", role);
}

absl::Status OutFolder::Write(const std::string& path, absl::string_view content) const {
  return WriteFileDurably(Env::Real(), path, content);
}

}  // namespace pawl
