#include "server/storage/snapshot_store.h"

#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr absl::string_view kSuffix = ".snap";
constexpr absl::string_view kTemporarySuffix = ".tmp";

std::string FileName(uint32_t partition, uint64_t index) {
  return absl::StrFormat("p%06d-%020d%s", partition, index, kSuffix);
}

bool ParseFileName(absl::string_view name, uint32_t& partition, uint64_t& index) {
  const size_t dash = name.find('-');
  return absl::StartsWith(name, "p") && absl::EndsWith(name, kSuffix) && dash != absl::string_view::npos &&
         absl::SimpleAtoi(name.substr(1, dash - 1), &partition) &&
         absl::SimpleAtoi(name.substr(dash + 1, name.size() - dash - 1 - kSuffix.size()), &index) &&
         name == FileName(partition, index);
}

}  // namespace

SnapshotWriter::~SnapshotWriter() {
  // What cannot be deleted now is deleted at the next start.
  if (!committed_) store_.env_.Delete(temporary_).IgnoreError();
}

absl::StatusOr<uint64_t> SnapshotWriter::Commit() {
  PAWL_RETURN_IF_ERROR(file_->Finish().status());
  PAWL_FAILPOINT("snapshot.written");
  PAWL_ASSIGN_OR_RETURN(const uint64_t releasable, store_.Commit(*this));
  committed_ = true;
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
  for (const std::string& name : names) {
    uint32_t partition = 0;
    uint64_t index = 0;
    if (ParseFileName(name, partition, index)) {
      snapshots_[{partition, index}] = std::nullopt;
    } else if (absl::EndsWith(name, kTemporarySuffix)) {
      PAWL_RETURN_IF_ERROR(env_.Delete(JoinPath(folder_, name)));
    }
  }
  // A process that died may have renamed a snapshot and not synced its name.
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
  for (const auto& [key, mark] : snapshots_) {
    result.push_back({key.first, key.second, PathOf(key.first, key.second)});
  }
  return result;
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotStore::Begin(uint32_t partition, uint64_t index,
                                                                     LogPosition position) {
  std::string temporary;
  {
    MutexLock lock(mu_);
    temporary = absl::StrCat(PathOf(partition, index), ".", ++temporaries_, kTemporarySuffix);
  }
  const BlockFileId id{BlockFileKind::kSnapshot, job_id_, partition, index, position.Pack()};
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<BlockFileWriter> file, BlockFileWriter::Create(env_, temporary, id));
  return std::unique_ptr<SnapshotWriter>(new SnapshotWriter(*this, std::move(temporary), std::move(file), id));
}

absl::StatusOr<std::unique_ptr<BlockFileReader>> SnapshotStore::OpenToRead(const Snapshot& snapshot) const {
  return BlockFileReader::Open(env_, snapshot.path, IdOf(snapshot));
}

absl::StatusOr<uint64_t> SnapshotStore::Commit(const SnapshotWriter& writer) {
  const BlockFileId& id = writer.id_;
  // Held during the renaming: a drop either sees the file or prevents it.
  MutexLock lock(mu_);
  if (const auto it = dropped_.find(id.partition); it != dropped_.end() && id.mark <= it->second) {
    return absl::AbortedError(absl::StrCat("partition ", id.partition, " was dropped while its snapshot was being written"));
  }
  if (PAWL_FAILPOINT("snapshot.rename")) return absl::DataLossError("failpoint snapshot.rename");
  PAWL_RETURN_IF_ERROR(env_.Rename(writer.temporary_, PathOf(id.partition, id.index)));
  const bool is_new = snapshots_.insert_or_assign({id.partition, id.index}, id.mark).second;
  // Only now may an older one go.
  if (absl::Status status = SyncNames(); !status.ok()) {
    const std::string path = PathOf(id.partition, id.index);
    // One of the same index that was there before is needed, and is there again if this one is not.
    if (is_new && env_.Delete(path).ok()) snapshots_.erase({id.partition, id.index});
    return absl::UnknownError(absl::StrCat("it is not known whether ", path, " is durable: ", status.message()));
  }
  PAWL_FAILPOINT("snapshot.renamed");
  auto begin = snapshots_.lower_bound({id.partition, 0});
  auto end = snapshots_.upper_bound({id.partition, std::numeric_limits<uint64_t>::max()});
  size_t count = std::distance(begin, end);
  while (count > kSnapshotsKept) {
    // One that cannot be deleted is tried again with the next snapshot: this one is there.
    const absl::Status deleted = env_.Delete(PathOf(id.partition, begin->first.second));
    if (!deleted.ok() && !absl::IsNotFound(deleted)) break;
    begin = snapshots_.erase(begin);
    --count;
  }
  return count < kSnapshotsKept ? 0 : begin->first.second;
}

absl::Status SnapshotStore::Drop(uint32_t partition, LogPosition position) {
  MutexLock lock(mu_);
  dropped_[partition] = position.Pack();
  return DeleteDropped(partition, position.Pack());
}

absl::Status SnapshotStore::RepeatDrops() {
  MutexLock lock(mu_);
  for (const auto& [partition, position] : dropped_) {
    PAWL_RETURN_IF_ERROR(DeleteDropped(partition, position));
  }
  return absl::OkStatus();
}

absl::Status SnapshotStore::DeleteDropped(uint32_t partition, uint64_t packed_position) {
  bool deleted = false;
  auto it = snapshots_.lower_bound({partition, 0});
  while (it != snapshots_.end() && it->first.first == partition) {
    // Those of an earlier life of this process are older than anything that it writes.
    if (it->second.has_value() && *it->second > packed_position) {
      ++it;
      continue;
    }
    absl::Status status = env_.Delete(PathOf(partition, it->first.second));
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    it = snapshots_.erase(it);
    deleted = true;
  }
  // Also one that could not be made durable, and was taken back, must not outlive the record of the drop.
  return deleted || unsynced_ ? SyncNames() : absl::OkStatus();
}

absl::Status SnapshotStore::Delete(const Snapshot& snapshot) {
  MutexLock lock(mu_);
  PAWL_RETURN_IF_ERROR(env_.Delete(snapshot.path));
  snapshots_.erase({snapshot.partition, snapshot.index});
  return SyncNames();
}

absl::Status SnapshotStore::Verify(const Snapshot& snapshot) const {
  return VerifyBlockFile(env_, snapshot.path, IdOf(snapshot)).status();
}

absl::Status SnapshotStore::DeleteIfDamaged(const Snapshot& snapshot) {
  absl::Status status = Verify(snapshot);
  if (absl::IsDataLoss(status)) status = Delete(snapshot);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

BlockFileId SnapshotStore::IdOf(const Snapshot& snapshot) const {
  return {BlockFileKind::kSnapshot, job_id_, snapshot.partition, snapshot.index, 0};
}

std::string SnapshotStore::PathOf(uint32_t partition, uint64_t index) const {
  return JoinPath(folder_, FileName(partition, index));
}

}  // namespace pawl
