#include "server/storage/snapshot/snapshot_store.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr absl::string_view kSuffix = ".snap";
constexpr absl::string_view kTemporarySuffix = ".tmp";
constexpr absl::string_view kStoredSuffix = ".stored";

std::string FileName(uint32_t partition, uint64_t index) {
  return absl::StrFormat("p%06d-%020d%s", partition, index, kSuffix);
}

// Parses the name of a snapshot, stored or not. Sets everything but the path.
bool ParseFileName(absl::string_view name, SnapshotStore::Snapshot& snapshot) {
  if (absl::ConsumeSuffix(&name, kStoredSuffix)) {
    const size_t dot = name.rfind('.');
    uint64_t mark = 0;
    if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(dot + 1), &mark))
      return false;
    snapshot.stored_mark = mark;
    name = name.substr(0, dot);
  }
  const size_t dash = name.find('-');
  return absl::StartsWith(name, "p") && absl::EndsWith(name, kSuffix) &&
         dash != absl::string_view::npos &&
         absl::SimpleAtoi(name.substr(1, dash - 1), &snapshot.partition) &&
         absl::SimpleAtoi(name.substr(dash + 1, name.size() - dash - 1 - kSuffix.size()),
                          &snapshot.index) &&
         name == FileName(snapshot.partition, snapshot.index);
}

}  // namespace

SnapshotWriter::~SnapshotWriter() {
  // If it cannot be deleted now, the next start deletes it.
  if (!kept_) store_.env_.Delete(temporary_).IgnoreError();
  if (!kept_) store_.Forget(*this);
}

absl::Status SnapshotWriter::Store() {
  PAWL_RETURN_IF_ERROR(file_->Finish().status());
  PAWL_FAILPOINT("snapshot.stored");
  return store_.Store(*this);
}

absl::StatusOr<uint64_t> SnapshotWriter::Commit() {
  PAWL_RETURN_IF_ERROR(file_->Finish().status());
  PAWL_FAILPOINT("snapshot.written");
  PAWL_ASSIGN_OR_RETURN(const uint64_t releasable, store_.Commit(*this));
  kept_ = true;
  return releasable;
}

SnapshotStore::SnapshotStore(Env& env, absl::string_view data_folder, uint64_t job_id)
    : env_(env), folder_(JoinPath(data_folder, kSnapshotFolder)), job_id_(job_id) {}

absl::Status SnapshotStore::Open() {
  PAWL_RETURN_IF_ERROR(env_.MakeFolder(folder_));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(FolderOf(folder_)));
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.List(folder_));
  MutexLock lock(mu_);
  snapshots_.clear();
  found_stored_.clear();
  for (const std::string& name : names) {
    Snapshot snapshot;
    snapshot.path = JoinPath(folder_, name);
    if (ParseFileName(name, snapshot)) {
      if (snapshot.stored_mark.has_value()) {
        found_stored_.push_back(std::move(snapshot));
      } else {
        snapshots_[{snapshot.partition, snapshot.index}] = {std::nullopt, snapshot.path};
      }
    } else if (absl::EndsWith(name, kTemporarySuffix)) {
      PAWL_RETURN_IF_ERROR(env_.Delete(snapshot.path));
    }
  }
  // A process that died may have renamed a snapshot without syncing its name.
  return SyncNames();
}

absl::Status SnapshotStore::SyncNames() {
  unsynced_ = true;
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(folder_));
  unsynced_ = false;
  return absl::OkStatus();
}

std::vector<SnapshotStore::Snapshot> SnapshotStore::List() const {
  MutexLock lock(mu_);
  std::vector<Snapshot> result;
  for (const auto& [key, file] : snapshots_) result.push_back({key.first, key.second, file.path});
  return result;
}

std::vector<SnapshotStore::Snapshot> SnapshotStore::ListAll() const {
  std::vector<Snapshot> result = List();
  MutexLock lock(mu_);
  result.insert(result.end(), found_stored_.begin(), found_stored_.end());
  std::stable_sort(result.begin(), result.end(), [](const Snapshot& a, const Snapshot& b) {
    return std::pair(a.partition, a.index) < std::pair(b.partition, b.index);
  });
  return result;
}

SnapshotStore::Snapshot SnapshotStore::Of(uint32_t partition, uint64_t index) const {
  MutexLock lock(mu_);
  return {partition, index, snapshots_.at({partition, index}).path};
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotStore::Begin(const BlockFileId& id,
                                                                     std::string temporary) {
  absl::StatusOr<std::unique_ptr<BlockFileWriter>> file =
      BlockFileWriter::Create(env_, temporary, id);
  if (!file.ok()) {
    // On a full disk the file may exist without its header.
    env_.Delete(temporary).IgnoreError();
    return file.status();
  }
  return std::unique_ptr<SnapshotWriter>(
      new SnapshotWriter(*this, std::move(temporary), *std::move(file), id));
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotStore::Begin(uint32_t partition,
                                                                     uint64_t index,
                                                                     LogPosition position) {
  std::string temporary;
  {
    MutexLock lock(mu_);
    temporary = absl::StrCat(PathOf(partition, index), ".", ++temporaries_, kTemporarySuffix);
  }
  return Begin({BlockFileKind::kSnapshot, job_id_, partition, index, position.Pack()},
               std::move(temporary));
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotStore::BeginStored(uint32_t partition,
                                                                           uint64_t index,
                                                                           LogPosition position) {
  const std::string path = StoredPathOf(partition, index, position.Pack());
  {
    MutexLock lock(mu_);
    if (!storing_.insert(path).second)
      return absl::UnavailableError(absl::StrCat(path, " is being written"));
  }
  auto writer = Begin({BlockFileKind::kSnapshot, job_id_, partition, index, position.Pack()}, path);
  if (!writer.ok()) {
    MutexLock lock(mu_);
    storing_.erase(path);
  }
  return writer;
}

void SnapshotStore::Forget(const SnapshotWriter& writer) {
  MutexLock lock(mu_);
  storing_.erase(writer.temporary_);
}

absl::Status SnapshotStore::Store(const SnapshotWriter&) {
  MutexLock lock(mu_);
  return SyncNames();
}

absl::StatusOr<std::unique_ptr<BlockFileReader>> SnapshotStore::OpenToRead(
    const Snapshot& snapshot) const {
  return BlockFileReader::Open(env_, snapshot.path, IdOf(snapshot));
}

absl::StatusOr<uint64_t> SnapshotStore::Commit(const SnapshotWriter& writer) {
  const BlockFileId& id = writer.id_;
  // Held while renaming: a reset either sees the file or prevents the renaming.
  MutexLock lock(mu_);
  if (const auto it = last_reset_.find(id.partition);
      it != last_reset_.end() && id.mark <= it->second) {
    return absl::AbortedError(absl::StrCat("the log of partition ", id.partition,
                                           " was reset while its snapshot was being written"));
  }
  if (PAWL_FAILPOINT("snapshot.rename")) return absl::DataLossError("failpoint snapshot.rename");
  const std::string path = PathOf(id.partition, id.index);
  PAWL_RETURN_IF_ERROR(env_.Rename(writer.temporary_, path));
  void_.erase(path);
  File& file = snapshots_[{id.partition, id.index}];
  const bool is_new = file.path.empty();
  if (!is_new && file.path != path) void_.insert(file.path);
  file = {id.mark, path};
  // Only now may an older one be deleted.
  if (absl::Status status = SyncNames(); !status.ok()) {
    // A previous snapshot of the same index is needed, and reappears if this one is lost.
    if (is_new && env_.Delete(path).ok()) snapshots_.erase({id.partition, id.index});
    return absl::UnknownError(absl::StrCat(path, " may not be durable: ", status.message()));
  }
  PAWL_FAILPOINT("snapshot.renamed");
  auto begin = snapshots_.lower_bound({id.partition, 0});
  auto end = snapshots_.upper_bound({id.partition, std::numeric_limits<uint64_t>::max()});
  size_t count = std::distance(begin, end);
  while (count > kSnapshotsKept) {
    // A snapshot that cannot be deleted is retried with the next one; this one exists.
    const absl::Status deleted = env_.Delete(begin->second.path);
    if (!deleted.ok() && !absl::IsNotFound(deleted)) break;
    begin = snapshots_.erase(begin);
    --count;
  }
  return count < kSnapshotsKept ? 0 : begin->first.second;
}

void SnapshotStore::Reset(uint32_t partition, const LogReset& reset, LogPosition position) {
  MutexLock lock(mu_);
  last_reset_[partition] = position.Pack();
  for (auto it = snapshots_.lower_bound({partition, 0});
       it != snapshots_.end() && it->first.first == partition;) {
    const auto& [mark, path] = it->second;
    // Snapshots of an earlier incarnation of this process are older than anything it writes.
    if ((mark.has_value() && *mark > position.Pack()) || !reset.Voids(it->first.second)) {
      ++it;
      continue;
    }
    void_.insert(path);
    it = snapshots_.erase(it);
  }
  if (reset.mark.has_value()) {
    const std::string stored = StoredPathOf(partition, reset.index, *reset.mark);
    snapshots_[{partition, reset.index}] = {reset.mark, stored};
    storing_.erase(stored);
  }
}

absl::Status SnapshotStore::ApplyResets() {
  MutexLock lock(mu_);
  return FinishResets();
}

absl::Status SnapshotStore::FinishResets() {
  for (auto& [key, file] : snapshots_) {
    const std::string path = PathOf(key.first, key.second);
    if (file.path == path) continue;
    PAWL_RETURN_IF_ERROR(env_.Rename(file.path, path));
    unsynced_ = true;
    file.path = path;
    void_.erase(path);
  }
  while (!void_.empty()) {
    const absl::Status status = env_.Delete(*void_.begin());
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    unsynced_ = true;
    void_.erase(void_.begin());
  }
  // A name that could not be made durable and was withdrawn must not outlive the record of a reset
  // either.
  return unsynced_ ? SyncNames() : absl::OkStatus();
}

absl::Status SnapshotStore::Adopt(const Snapshot& stored) {
  MutexLock lock(mu_);
  snapshots_[{stored.partition, stored.index}] = {std::nullopt, stored.path};
  return FinishResets();
}

absl::Status SnapshotStore::Delete(const Snapshot& snapshot) {
  MutexLock lock(mu_);
  const absl::Status deleted = env_.Delete(snapshot.path);
  if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
  const auto file = snapshots_.find({snapshot.partition, snapshot.index});
  if (file != snapshots_.end() && file->second.path == snapshot.path) snapshots_.erase(file);
  return SyncNames();
}

absl::Status SnapshotStore::Verify(const Snapshot& snapshot,
                                   absl::FunctionRef<bool()> should_continue) const {
  return VerifyBlockFile(env_, snapshot.path, IdOf(snapshot), should_continue).status();
}

absl::Status SnapshotStore::DeleteIfDamaged(const Snapshot& snapshot) {
  const absl::Status status = Verify(snapshot);
  return absl::IsDataLoss(status) || absl::IsNotFound(status) ? Delete(snapshot) : status;
}

BlockFileId SnapshotStore::IdOf(const Snapshot& snapshot) const {
  return {BlockFileKind::kSnapshot, job_id_, snapshot.partition, snapshot.index, 0};
}

std::string SnapshotStore::PathOf(uint32_t partition, uint64_t index) const {
  return JoinPath(folder_, FileName(partition, index));
}

std::string SnapshotStore::StoredPathOf(uint32_t partition, uint64_t index, uint64_t mark) const {
  return absl::StrCat(PathOf(partition, index), ".", mark, kStoredSuffix);
}

}  // namespace pawl
