#include "worker/data/stream/indexed_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/data_files.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr std::chrono::milliseconds kLockInterval{100};

// A file that only one process writes. The lock ends with the process.
class LockedFile {
 public:
  LockedFile() = default;
  ~LockedFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  // False if another process, or thread, holds the lock, or has just removed the file.
  absl::StatusOr<bool> TryLock(const std::string& path) {
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) return FileError("create", path, errno);
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return false;
      return FileError("lock", path, errno);
    }
    struct stat locked, present;
    return fstat(descriptor_, &locked) == 0 && stat(path.c_str(), &present) == 0 &&
           locked.st_ino == present.st_ino && locked.st_dev == present.st_dev;
  }

 private:
  int descriptor_ = -1;
};

absl::Status HasChanged(const IndexedFile& file, const FileVersion& now) {
  return absl::FailedPreconditionError(absl::StrCat(
      file.path, ": has changed since its index ", file.index_path, " was made (it had ",
      file.index.version.bytes, " bytes and has ", now.bytes,
      now.bytes == file.index.version.bytes ? ", of another time" : "",
      "). If that is intended, run `pawl-worker --make_index --job=FILE`, and start the job anew"));
}

class FileOpener {
 public:
  FileOpener(const Data& spec, const IndexOptions& options)
      : spec_(spec), options_(options), settings_(IndexSettings(spec)) {}

  // False if another process is making the index.
  absl::StatusOr<bool> Open(const std::string& path, IndexedFile* file) {
    file->path = path;
    file->index_path = IndexPathOf(path, options_.dir, settings_);
    PAWL_ASSIGN_OR_RETURN(const bool has_index, Load(file));
    if (has_index) return true;
    LockedFile lock;
    // Hidden: folders and globs do not stand for it.
    const size_t name = file->index_path.rfind('/') + 1;
    const std::string temporary =
        absl::StrCat(file->index_path.substr(0, name), ".", file->index_path.substr(name), ".tmp");
    const absl::StatusOr<bool> locked = lock.TryLock(temporary);
    if (!locked.ok()) {
      return absl::Status(
          locked.status().code(),
          absl::StrCat(path, ": its index cannot be made: ", locked.status().message(),
                       "; name a folder for indexes (--index_dir)"));
    }
    if (!*locked) return false;
    // Another process may have made it meanwhile.
    PAWL_ASSIGN_OR_RETURN(const bool is_made, Load(file));
    if (is_made) {
      unlink(temporary.c_str());
      return true;
    }
    if (absl::Status made = Make(file, temporary); !made.ok()) {
      unlink(temporary.c_str());
      return made;
    }
    return true;
  }

 private:
  // False if there is no index, or an outdated one that may be replaced.
  absl::StatusOr<bool> Load(IndexedFile* file) {
    const absl::StatusOr<std::string> bytes =
        ReadWholeFile(Env::Real(), file->index_path, kMaxIndexBytes);
    if (absl::IsNotFound(bytes.status())) return false;
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<BlockIndex> index = DecodeBlockIndex(*bytes, &file->dictionaries_begin);
    if (!index.ok()) {
      if (options_.refresh) return false;
      return absl::DataLossError(absl::StrCat(file->index_path, ": ", index.status().message(),
                                              "; delete it to have it made again"));
    }
    file->index = *std::move(index);
    PAWL_ASSIGN_OR_RETURN(const FileVersion now, VersionOf(file->path));
    if (now == file->index.version && file->index.settings == settings_) return true;
    if (!options_.refresh) return HasChanged(*file, now);
    spdlog::info("{} has changed; its index is made again", file->path);
    return false;
  }

  absl::Status Make(IndexedFile* file, const std::string& temporary) {
    std::string dictionaries;
    PAWL_ASSIGN_OR_RETURN(file->index, MakeBlockIndex(spec_, file->path, &dictionaries));
    const absl::StatusOr<std::string> bytes = EncodeBlockIndex(file->index, dictionaries);
    if (!bytes.ok()) return Annotate(bytes.status(), file->path);
    PAWL_ASSIGN_OR_RETURN(auto decoded, DecodeBlockIndex(*bytes, &file->dictionaries_begin));
    Env& env = Env::Real();
    // The locked file is written and renamed, so that the lock goes with it.
    PAWL_ASSIGN_OR_RETURN(const auto out, env.Create(temporary));
    PAWL_RETURN_IF_ERROR(out->Append(*bytes));
    PAWL_RETURN_IF_ERROR(out->Sync());
    PAWL_RETURN_IF_ERROR(out->Close());
    PAWL_RETURN_IF_ERROR(env.Rename(temporary, file->index_path));
    spdlog::info("made the index of {}: {} samples in {} blocks", file->path, file->index.samples(),
                 file->index.blocks.size());
    return absl::OkStatus();
  }

  const Data& spec_;
  const IndexOptions& options_;
  const uint64_t settings_;
};

}  // namespace

std::string IndexPathOf(const std::string& path, const std::string& dir, uint64_t settings) {
  const std::string version = absl::StrFormat("%08x", settings & 0xffffffff);
  if (dir.empty()) return absl::StrCat(path, ".", version, kDataIndexSuffix);
  // Files of several folders may have the same name.
  const std::string place = absl::StrFormat("%016x", XXH64(path.data(), path.size(), 0));
  return JoinPath(dir, absl::StrCat(path.substr(path.rfind('/') + 1), ".", place, ".", version,
                                    kDataIndexSuffix));
}

absl::StatusOr<std::vector<IndexedFile>> OpenIndexedFiles(const Data& spec,
                                                          const std::vector<std::string>& paths,
                                                          const IndexOptions& options) {
  FileOpener opener(spec, options);
  std::vector<IndexedFile> files(paths.size());
  std::vector<char> is_done(paths.size(), 0);
  Mutex mu;
  absl::Status status;
  bool has_logged = false;
  MonotonicTime give_up_at = Clock::Real().Now() + kMaxIndexWait;
  // One pass after another, until no file is left that another process works on.
  for (;;) {
    std::atomic<size_t> next{0};
    std::atomic<bool> has_failed{false};
    std::atomic<bool> is_waiting{false};
    std::atomic<bool> has_progress{false};
    const auto run = [&] {
      for (size_t i = next++; i < paths.size() && !has_failed; i = next++) {
        if (is_done[i] != 0) continue;
        const absl::StatusOr<bool> opened = opener.Open(paths[i], &files[i]);
        if (!opened.ok()) {
          const MutexLock lock(mu);
          has_failed = true;
          status.Update(opened.status());
        } else if (*opened) {
          is_done[i] = 1;
          has_progress = true;
        } else {
          is_waiting = true;
        }
      }
    };
    const size_t threads =
        std::min<size_t>(paths.size(), std::max(std::thread::hardware_concurrency(), 1u));
    std::vector<std::thread> pool;
    try {
      for (size_t i = 1; i < threads; ++i) pool.emplace_back(run);
    } catch (const std::system_error& error) {
      spdlog::warn("cannot start {} threads that make indexes of data files: {}", threads - 1,
                   error.what());
    }
    run();
    for (std::thread& thread : pool) thread.join();
    if (has_failed) return status;
    if (!is_waiting) return files;
    if (!std::exchange(has_logged, true))
      spdlog::info("waiting for indexes of data files that another process makes");
    const MonotonicTime now = Clock::Real().Now();
    if (has_progress) give_up_at = now + kMaxIndexWait;
    if (now >= give_up_at) {
      const size_t left =
          static_cast<size_t>(std::find(is_done.begin(), is_done.end(), 0) - is_done.begin());
      return absl::DeadlineExceededError(
          absl::StrCat(paths[left], ": another process has been making its index for ",
                       kMaxIndexWait.count(), " hours"));
    }
    std::this_thread::sleep_for(kLockInterval);
  }
}

std::string DataId(const std::vector<IndexedFile>& files) {
  uint64_t hash = 0;
  for (const IndexedFile& file : files) {
    const uint64_t identity = file.index.Identity();
    hash = XXH64(&identity, sizeof(identity), hash);
  }
  return absl::StrFormat("%016x", hash);
}

}  // namespace pawl
