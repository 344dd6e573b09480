#include "client_lib/base/testing/fault_env.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// The unit in which a disk writes.
constexpr uint64_t kSectorBytes = 512;
// How often a blocked sync checks whether it may continue.
constexpr std::chrono::seconds kHeldSyncLook{1};

absl::Status NoPower() { return absl::UnavailableError("the machine has no power"); }

}  // namespace

// An open file. It fails if it was opened in an earlier incarnation.
class FaultEnv::Writer final : public WritableFile {
 public:
  Writer(FaultEnv& env, std::string path, std::shared_ptr<File> file, uint64_t incarnation)
      : env_(env),
        path_(std::move(path)),
        file_(std::move(file)),
        incarnation_(incarnation),
        size_(file_->contents.size()) {}

  absl::Status Append(absl::Span<const Fragment> fragments) override {
    MutexLock lock(env_.mu_);
    bool last = false;
    PAWL_RETURN_IF_ERROR(Begin(last));
    if (undefined_tail_)
      return absl::FailedPreconditionError(
          absl::StrCat("append to ", path_, ": not truncated since a failed append"));
    std::string bytes;
    for (const Fragment& fragment : fragments) bytes.append(fragment.data(), fragment.size());
    const uint64_t used = env_.Used();
    const uint64_t room = env_.capacity_ - std::min(env_.capacity_, used);
    absl::Status status;
    uint64_t taken = bytes.size();
    if (last) {
      taken = env_.Random(bytes.size() + 1);
      status = NoPower();
    } else if (TakeFailure(env_.failing_appends_)) {
      taken = env_.Random(bytes.size() + 1);
      status = FileError("write", path_, EIO);
    } else if (bytes.size() > room) {
      taken = room;
      status = FileError("write", path_, ENOSPC);
    }
    file_->contents.append(bytes, 0, taken);
    if (status.ok()) {
      size_ += bytes.size();
    } else {
      undefined_tail_ = true;
    }
    return status;
  }

  absl::Status Sync() override {
    MutexLock lock(env_.mu_);
    while (env_.holds_syncs_)
      env_.syncs_go_.WaitUntil(env_.mu_, std::chrono::steady_clock::now() + kHeldSyncLook);
    bool last = false;
    PAWL_RETURN_IF_ERROR(Begin(last));
    ++env_.syncs_;
    if (TakeFailure(env_.failing_syncs_)) {
      file_->sync_failed = true;
      broken_ = FileError("sync", path_, EIO);
      return broken_;
    }
    if (!file_->sync_failed && (!last || env_.Random(2) == 0)) {
      file_->durable.resize(file_->agrees);
      file_->durable.append(file_->contents, file_->agrees);
      file_->agrees = file_->durable.size();
    }
    return last ? NoPower() : absl::OkStatus();
  }

  absl::Status Truncate(uint64_t size) override {
    MutexLock lock(env_.mu_);
    bool last = false;
    PAWL_RETURN_IF_ERROR(Begin(last));
    if (last) return NoPower();
    if (size > file_->contents.size()) std::abort();
    file_->contents.resize(size);
    file_->agrees = std::min(file_->agrees, size);
    size_ = size;
    undefined_tail_ = false;
    return absl::OkStatus();
  }

  absl::Status Close() override { return absl::OkStatus(); }
  uint64_t size() const override { return size_; }

 private:
  absl::Status Begin(bool& last) PAWL_REQUIRES(env_.mu_) {
    PAWL_RETURN_IF_ERROR(env_.Begin(last));
    if (incarnation_ != env_.incarnation_)
      return absl::UnavailableError(absl::StrCat(path_, ": opened by a process that has died"));
    return broken_;
  }

  FaultEnv& env_;
  const std::string path_;
  const std::shared_ptr<File> file_;
  const uint64_t incarnation_;
  uint64_t size_;
  bool undefined_tail_ = false;
  absl::Status broken_;
};

class FaultEnv::Reader final : public ReadableFile {
 public:
  Reader(FaultEnv& env, std::shared_ptr<File> file) : env_(env), file_(std::move(file)) {}

  absl::StatusOr<size_t> Read(uint64_t offset, absl::Span<char> out) const override {
    MutexLock lock(env_.mu_);
    PAWL_RETURN_IF_ERROR(env_.CheckPower());
    if (offset >= file_->contents.size()) return 0;
    return file_->contents.copy(out.data(), out.size(), offset);
  }

  absl::StatusOr<uint64_t> Size() const override {
    MutexLock lock(env_.mu_);
    PAWL_RETURN_IF_ERROR(env_.CheckPower());
    return file_->contents.size();
  }

 private:
  FaultEnv& env_;
  const std::shared_ptr<File> file_;
};

class FaultEnv::Lock final : public FolderLock {
 public:
  Lock(FaultEnv& env, std::string folder, uint64_t incarnation)
      : env_(env), folder_(std::move(folder)), incarnation_(incarnation) {}
  ~Lock() override {
    MutexLock lock(env_.mu_);
    if (incarnation_ == env_.incarnation_) env_.locked_.erase(folder_);
  }

 private:
  FaultEnv& env_;
  const std::string folder_;
  const uint64_t incarnation_;
};

void FaultEnv::CutPower() {
  MutexLock lock(mu_);
  powered_ = false;
}

void FaultEnv::CutPowerAfter(int64_t operations) {
  MutexLock lock(mu_);
  operations_left_ = operations;
}

void FaultEnv::RestorePower() {
  MutexLock lock(mu_);
  powered_ = true;
  operations_left_ = std::numeric_limits<int64_t>::max();
  ++incarnation_;
  locked_.clear();
  // Each folder keeps its own prefix of the changes.
  absl::btree_map<std::string, uint64_t> changes;
  for (const NameChange& change : unsynced_changes_) ++changes[change.folder];
  for (auto& [folder, count] : changes) count = Random(count + 1);
  for (const NameChange& change : unsynced_changes_) {
    uint64_t& left = changes[change.folder];
    if (left == 0) continue;
    --left;
    ApplyTo(durable_names_, change);
  }
  unsynced_changes_.clear();
  names_ = durable_names_;
  // Erases the content of lost folders. Sorted order puts a folder before its content.
  for (auto it = names_.begin(); it != names_.end();) {
    const std::string folder = FolderOf(it->first);
    it = folder == "/" || names_.contains(folder) ? std::next(it) : names_.erase(it);
  }
  durable_names_ = names_;
  for (auto& [path, entry] : names_) {
    if (entry.file != nullptr) LoseUnsynced(*entry.file);
  }
}

void FaultEnv::KillProcesses() {
  MutexLock lock(mu_);
  powered_ = true;
  operations_left_ = std::numeric_limits<int64_t>::max();
  ++incarnation_;
  locked_.clear();
}

void FaultEnv::LoseUnsynced(File& file) {
  // An unsynced truncation may or may not survive.
  if (file.agrees < file.durable.size() && Random(2) == 0) file.contents = file.durable;
  file.contents.replace(0, file.agrees, file.durable, 0, file.agrees);
  const uint64_t kept = file.agrees;
  const uint64_t unsynced = file.contents.size() - kept;
  switch (Random(5)) {
    case 0:
      file.contents.resize(file.contents.size() - unsynced);
      break;
    case 1:
      file.contents.resize(file.contents.size() - Random(unsynced + 1));
      break;
    case 2:
      std::fill(file.contents.end() - unsynced, file.contents.end(), '\0');
      break;
    case 3:
      for (uint64_t at = kept; at < file.contents.size();) {
        const uint64_t end =
            std::min<uint64_t>(file.contents.size(), (at / kSectorBytes + 1) * kSectorBytes);
        if (Random(2) == 0)
          std::fill(file.contents.begin() + at, file.contents.begin() + end, '\0');
        at = end;
      }
      break;
    default:
      break;
  }
  file.durable = file.contents;
  file.agrees = file.contents.size();
  file.sync_failed = false;
}

void FaultEnv::SetCapacity(uint64_t bytes) {
  MutexLock lock(mu_);
  capacity_ = bytes;
}

uint64_t FaultEnv::UsedBytes() const {
  MutexLock lock(mu_);
  return Used();
}

void FaultEnv::FailAppends(int count) {
  MutexLock lock(mu_);
  failing_appends_ = count;
}

void FaultEnv::FailSyncs(int count) {
  MutexLock lock(mu_);
  failing_syncs_ = count;
}

void FaultEnv::HoldSyncs() {
  MutexLock lock(mu_);
  holds_syncs_ = true;
}

void FaultEnv::ReleaseSyncs() {
  MutexLock lock(mu_);
  holds_syncs_ = false;
  syncs_go_.NotifyAll();
}

void FaultEnv::FailFolderSyncs(int count) {
  MutexLock lock(mu_);
  failing_folder_syncs_ = count;
}

void FaultEnv::FailDeletions(int count) {
  MutexLock lock(mu_);
  failing_deletions_ = count;
}

std::string FaultEnv::Contents(const std::string& path) const {
  MutexLock lock(mu_);
  const absl::StatusOr<std::shared_ptr<File>> file = Find(path);
  if (!file.ok()) std::abort();
  return (*file)->contents;
}

void FaultEnv::SetContents(const std::string& path, const std::string& contents) {
  MutexLock lock(mu_);
  auto file = std::make_shared<File>();
  file->contents = file->durable = contents;
  file->agrees = contents.size();
  names_[path] = durable_names_[path] = Entry{file};
}

bool FaultEnv::Rot(const std::string& path, uint64_t offset) {
  MutexLock lock(mu_);
  const absl::StatusOr<std::shared_ptr<File>> file = Find(path);
  if (!file.ok() || *file == nullptr || offset >= (*file)->durable.size()) return false;
  (*file)->durable[offset] ^= 1;
  return true;
}

void FaultEnv::DropCached(const std::string& path) {
  MutexLock lock(mu_);
  if (const absl::StatusOr<std::shared_ptr<File>> file = Find(path); file.ok())
    ReadFromDisk(**file);
}

void FaultEnv::ReadFromDisk(File& file) {
  // After a failed sync nothing counts as unsynced, although the disk does not have it.
  const size_t known = file.sync_failed ? file.contents.size() : file.agrees;
  const size_t on_disk = std::min(known, file.durable.size());
  file.contents.replace(0, on_disk, file.durable, 0, on_disk);
  std::fill(file.contents.begin() + static_cast<ptrdiff_t>(on_disk),
            file.contents.begin() + static_cast<ptrdiff_t>(known), '\0');
}

uint64_t FaultEnv::syncs() const {
  MutexLock lock(mu_);
  return syncs_;
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultEnv::Create(const std::string& path) {
  MutexLock lock(mu_);
  bool last = false;
  PAWL_RETURN_IF_ERROR(Begin(last));
  PAWL_RETURN_IF_ERROR(CheckFolder(path));
  if (capacity_ <= Used()) return FileError("open", path, ENOSPC);
  if (const auto it = names_.find(path); it != names_.end() && it->second.file == nullptr) {
    return FileError("open", path, EISDIR);
  }
  auto file = std::make_shared<File>();
  Change({FolderOf(path), {}, {{path, Entry{file}}}});
  if (last) return NoPower();
  return std::make_unique<Writer>(*this, path, std::move(file), incarnation_);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultEnv::OpenForAppend(const std::string& path) {
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(CheckPower());
  PAWL_ASSIGN_OR_RETURN(std::shared_ptr<File> file, Find(path));
  return std::make_unique<Writer>(*this, path, std::move(file), incarnation_);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> FaultEnv::OpenForRead(const std::string& path) {
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(CheckPower());
  PAWL_ASSIGN_OR_RETURN(std::shared_ptr<File> file, Find(path));
  return std::make_unique<Reader>(*this, std::move(file));
}

absl::Status FaultEnv::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(mu_);
  bool last = false;
  PAWL_RETURN_IF_ERROR(Begin(last));
  PAWL_RETURN_IF_ERROR(CheckFolder(to));
  const auto found = names_.find(from);
  if (found == names_.end()) return FileError("rename", from, ENOENT);
  NameChange change{FolderOf(to), {from}, {{to, found->second}}};
  if (found->second.file == nullptr) {
    const std::string inside = from + "/";
    for (const auto& [path, entry] : names_) {
      if (path.compare(0, inside.size(), inside) != 0) continue;
      change.erased.push_back(path);
      change.set.emplace(absl::StrCat(to, path.substr(from.size())), entry);
    }
  }
  Change(std::move(change));
  return last ? NoPower() : absl::OkStatus();
}

absl::Status FaultEnv::Delete(const std::string& path) {
  MutexLock lock(mu_);
  bool last = false;
  PAWL_RETURN_IF_ERROR(Begin(last));
  PAWL_RETURN_IF_ERROR(Find(path).status());
  if (TakeFailure(failing_deletions_)) return FileError("delete", path, EIO);
  Change({FolderOf(path), {path}, {}});
  return last ? NoPower() : absl::OkStatus();
}

absl::Status FaultEnv::MakeFolder(const std::string& path) {
  MutexLock lock(mu_);
  bool last = false;
  PAWL_RETURN_IF_ERROR(Begin(last));
  if (path == "/") return absl::OkStatus();
  PAWL_RETURN_IF_ERROR(CheckFolder(path));
  if (const auto it = names_.find(path); it != names_.end()) {
    return it->second.file == nullptr ? absl::OkStatus() : FileError("make folder", path, EEXIST);
  }
  Change({FolderOf(path), {}, {{path, Entry{}}}});
  return last ? NoPower() : absl::OkStatus();
}

absl::Status FaultEnv::DeleteFolder(const std::string& path) {
  MutexLock lock(mu_);
  bool last = false;
  PAWL_RETURN_IF_ERROR(Begin(last));
  const auto it = names_.find(path);
  if (it == names_.end()) return FileError("delete folder", path, ENOENT);
  if (it->second.file != nullptr) return FileError("delete folder", path, ENOTDIR);
  for (const auto& [other, entry] : names_) {
    if (FolderOf(other) == path) return FileError("delete folder", path, ENOTEMPTY);
  }
  Change({FolderOf(path), {path}, {}});
  return last ? NoPower() : absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FaultEnv::List(const std::string& folder) {
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(CheckPower());
  if (const auto it = names_.find(folder);
      folder != "/" && (it == names_.end() || it->second.file != nullptr)) {
    return FileError("list", folder, ENOENT);
  }
  std::vector<std::string> names;
  for (const auto& [path, entry] : names_) {
    if (FolderOf(path) == folder) names.push_back(path.substr(path.rfind('/') + 1));
  }
  return names;
}

absl::Status FaultEnv::SyncFolder(const std::string& folder) {
  MutexLock lock(mu_);
  bool last = false;
  PAWL_RETURN_IF_ERROR(Begin(last));
  if (folder != "/" && !names_.contains(folder)) return FileError("sync", folder, ENOENT);
  if (TakeFailure(failing_folder_syncs_)) return FileError("sync", folder, EIO);
  if (last) return NoPower();
  std::vector<NameChange> others;
  for (NameChange& change : unsynced_changes_) {
    if (change.folder == folder) {
      ApplyTo(durable_names_, change);
    } else {
      others.push_back(std::move(change));
    }
  }
  unsynced_changes_ = std::move(others);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FaultEnv::FileSize(const std::string& path) {
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(CheckPower());
  // A folder has some size.
  if (const auto found = names_.find(path); found != names_.end() && found->second.file == nullptr)
    return 0;
  PAWL_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Find(path));
  return file->contents.size();
}

absl::StatusOr<std::unique_ptr<FolderLock>> FaultEnv::LockFolder(const std::string& folder) {
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(CheckPower());
  if (folder != "/" && !names_.contains(folder)) return FileError("lock", folder, ENOENT);
  if (!locked_.insert(folder).second) {
    return absl::UnavailableError(
        absl::StrCat("the folder ", folder, " is in use by another process"));
  }
  return std::make_unique<Lock>(*this, folder, incarnation_);
}

absl::Status FaultEnv::CheckPower() const { return powered_ ? absl::OkStatus() : NoPower(); }

absl::Status FaultEnv::Begin(bool& last) {
  PAWL_RETURN_IF_ERROR(CheckPower());
  if (operations_left_ == std::numeric_limits<int64_t>::max()) return absl::OkStatus();
  if (operations_left_ > 0) {
    --operations_left_;
    return absl::OkStatus();
  }
  powered_ = false;
  last = true;
  return absl::OkStatus();
}

absl::Status FaultEnv::CheckFolder(const std::string& path) const {
  const std::string folder = FolderOf(path);
  if (folder == "/") return absl::OkStatus();
  const auto it = names_.find(folder);
  if (it == names_.end() || it->second.file != nullptr) return FileError("open", path, ENOENT);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<FaultEnv::File>> FaultEnv::Find(const std::string& path) const {
  const auto it = names_.find(path);
  if (it == names_.end()) return FileError("open", path, ENOENT);
  if (it->second.file == nullptr) return FileError("open", path, EISDIR);
  return it->second.file;
}

bool FaultEnv::TakeFailure(int& count) {
  if (count == 0) return false;
  --count;
  return true;
}

void FaultEnv::Change(NameChange change) {
  ApplyTo(names_, change);
  unsynced_changes_.push_back(std::move(change));
}

void FaultEnv::ApplyTo(Names& names, const NameChange& change) {
  for (const std::string& path : change.erased) names.erase(path);
  for (const auto& [path, entry] : change.set) names[path] = entry;
}

uint64_t FaultEnv::Used() const {
  uint64_t used = 0;
  for (const auto& [path, entry] : names_) {
    if (entry.file != nullptr) used += entry.file->contents.size();
  }
  return used;
}

uint64_t FaultEnv::Random(uint64_t below) { return random_() % below; }

}  // namespace pawl
