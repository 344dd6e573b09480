#include "client_lib/security/tls/memory_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"

namespace pawl {
namespace {

// The files that are not in use now, by FileKey of their folder.
struct Unused {
  Mutex mu;
  absl::flat_hash_map<std::string, std::vector<std::unique_ptr<MemoryFiles>>> files
      PAWL_GUARDED_BY(mu);
};

// Never destroyed: leases may end after main.
Unused& TheUnused() {
  static auto* const unused = new Unused;
  return *unused;
}

}  // namespace

absl::Status MemoryFile::Replace(absl::string_view content) {
  const int descriptor = memfd_create(name_, MFD_CLOEXEC);
  if (descriptor < 0) return FileError("create", name_, errno);
  absl::Status status = WriteAll(descriptor, content);
  if (status.ok() && descriptor_ < 0) {
    descriptor_ = descriptor;
    return status;
  }
  if (status.ok() && dup3(descriptor, descriptor_, O_CLOEXEC) < 0)
    status = FileError("replace", name_, errno);
  close(descriptor);
  return status;
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

absl::Status MemoryFile::WriteAll(int descriptor, absl::string_view content) const {
  while (!content.empty()) {
    const ssize_t count = write(descriptor, content.data(), content.size());
    if (count < 0) return FileError("write", name_, errno);
    content.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

MemoryFilesLease::MemoryFilesLease(const std::string& folder) : key_(FileKey(folder)) {
  Unused& unused = TheUnused();
  MutexLock lock(unused.mu);
  if (auto& of_folder = unused.files[key_]; of_folder.empty()) {
    files_ = std::make_unique<MemoryFiles>();
  } else {
    files_ = std::move(of_folder.back());
    of_folder.pop_back();
  }
}

MemoryFilesLease::~MemoryFilesLease() {
  Unused& unused = TheUnused();
  MutexLock lock(unused.mu);
  unused.files[key_].push_back(std::move(files_));
}

std::string FileKey(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return path;
  return absl::StrCat(status.st_dev, ":", status.st_ino);
}

}  // namespace pawl
