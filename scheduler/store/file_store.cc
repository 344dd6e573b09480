#include "scheduler/store/file_store.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "scheduler/store/state_log.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// The pause between two attempts to lock.
constexpr std::chrono::milliseconds kCampaignInterval{50};

// Creates the folders durably, even if an earlier process died before it synced their names.
absl::Status MakeFolders(Env& env, const std::string& folder) {
  const std::string parent = FolderOf(folder);
  absl::Status made = env.MakeFolder(folder);
  if (absl::IsNotFound(made) && parent != folder) {
    PAWL_RETURN_IF_ERROR(MakeFolders(env, parent));
    made = env.MakeFolder(folder);
  }
  PAWL_RETURN_IF_ERROR(made);
  const absl::Status synced = env.SyncFolder(parent);
  // This process has not written to a parent that it may not open.
  return absl::IsPermissionDenied(synced) ? absl::OkStatus() : synced;
}

// The error of an operation on a file: if the disk fails, the stored state need not be damaged, and
// may be written or read later.
absl::Status IoError(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::UnavailableError(status.message());
}

}  // namespace

FileStore::FileStore(FileStoreOptions options, Env& env)
    : options_(std::move(options)), env_(env) {}

std::string FileStore::Describe() const { return absl::StrCat("file:", options_.folder); }

absl::Status FileStore::Campaign(MonotonicTime deadline) {
  if (leader_) return absl::OkStatus();
  loaded_ = false;
  log_.reset();
  log_bytes_.reset();
  lock_.reset();
  PAWL_RETURN_IF_ERROR(IoError(MakeFolders(env_, options_.folder)));
  while (true) {
    absl::StatusOr<std::unique_ptr<FolderLock>> lock = env_.LockFolder(options_.folder);
    if (lock.ok()) {
      lock_ = *std::move(lock);
      leader_ = true;
      return absl::OkStatus();
    }
    if (!absl::IsUnavailable(lock.status())) return IoError(lock.status());
    const MonotonicTime next = Clock::Real().Now() + kCampaignInterval;
    if (next >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(Describe(), ": another process leads: ", lock.status().message()));
    }
    std::this_thread::sleep_until(next);
  }
}

absl::Status FileStore::CheckLeader() const {
  if (leader_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(Describe(), ": this process is not the leader"));
}

absl::StatusOr<std::optional<StoredState>> FileStore::Load() {
  PAWL_RETURN_IF_ERROR(CheckLeader());
  loaded_ = false;
  log_.reset();
  newest_ = Newest();
  const std::string path = log_path();
  // The returned state must be durable, but its writer may have died before it synced. An empty
  // folder must stay empty, too: a rename may not be synced yet.
  PAWL_RETURN_IF_ERROR(IoError(env_.SyncFolder(options_.folder)));
  absl::StatusOr<std::unique_ptr<WritableFile>> log = env_.OpenForAppend(path);
  if (absl::IsNotFound(log.status())) {
    log_bytes_ = 0;
    loaded_ = true;
    return std::nullopt;
  }
  if (!log.ok()) return IoError(log.status());
  PAWL_RETURN_IF_ERROR(IoError((*log)->Sync()));
  uint64_t bytes = 0;
  absl::StatusOr<StateLog> parsed = ReadLog(&bytes);
  if (!parsed.ok()) return parsed.status();
  if (parsed->end < bytes) {
    spdlog::warn(
        "{}: the last {} bytes, from offset {} on, are an interrupted write and are ignored; the "
        "newest revision is {}",
        path, bytes - parsed->end, parsed->end, parsed->newest.revision);
  }
  newest_ = {parsed->newest.revision, parsed->newest.state.size(),
             Crc32c(0, parsed->newest.state.data(), parsed->newest.state.size())};
  log_bytes_ = bytes;
  loaded_ = true;
  return std::move(parsed->newest);
}

absl::StatusOr<StateLog> FileStore::ReadLog(uint64_t* bytes) const {
  const uint64_t max_bytes =
      std::max<uint64_t>(options_.max_log_bytes, kStateLogHeaderBytes + kMaxStateRecordBytes);
  const absl::StatusOr<std::string> contents = ReadWholeFile(env_, log_path(), max_bytes);
  if (absl::IsResourceExhausted(contents.status()))
    return absl::DataLossError(contents.status().message());
  PAWL_RETURN_IF_ERROR(IoError(contents.status()));
  *bytes = contents->size();
  absl::StatusOr<StateLog> parsed = ParseStateLog(*contents);
  if (!parsed.ok()) {
    return Annotate(parsed.status(),
                    absl::StrCat(log_path(), " (move it away to start without a state)"));
  }
  return parsed;
}

absl::StatusOr<std::optional<StoredState>> FileStore::Peek() {
  // A record that the leader is writing looks like an interrupted write.
  uint64_t bytes = 0;
  absl::StatusOr<StateLog> log = ReadLog(&bytes);
  if (absl::IsNotFound(log.status())) return std::nullopt;
  if (!log.ok()) return log.status();
  return std::move(log->newest);
}

absl::Status FileStore::CheckLogIsOurs() {
  if (!log_bytes_.has_value()) return absl::OkStatus();
  const absl::StatusOr<uint64_t> bytes = env_.FileSize(log_path());
  if (!bytes.ok() && !absl::IsNotFound(bytes.status())) return IoError(bytes.status());
  if ((bytes.ok() ? *bytes : 0) == *log_bytes_) return absl::OkStatus();
  absl::Status why = absl::AbortedError(
      absl::StrCat(Describe(), ": the leadership is lost: another process has written ", log_path(),
                   "; was the lock file removed while this one ran?"));
  leader_ = false;
  spdlog::error("{}", why.ToString());
  if (lost_) lost_(why);
  return why;
}

absl::Status FileStore::Save(uint64_t revision, absl::string_view state) {
  PAWL_RETURN_IF_ERROR(CheckState(revision, state));
  PAWL_RETURN_IF_ERROR(CheckLeader());
  if (!loaded_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(), ": a new leader must Load before its first Save"));
  }
  PAWL_RETURN_IF_ERROR(CheckLogIsOurs());
  const uint32_t crc = Crc32c(0, state.data(), state.size());
  if (revision == newest_.revision && state.size() == newest_.bytes && crc == newest_.crc)
    return absl::OkStatus();
  if (revision <= newest_.revision) return NotNewer(Describe(), revision, newest_.revision);

  std::string record;
  AppendStateRecord(revision, state, record);
  const bool fits = log_ != nullptr && log_->size() + record.size() <= options_.max_log_bytes;
  if (const absl::Status status = fits ? Append(record) : Rewrite(record); !status.ok()) {
    log_.reset();
    log_bytes_.reset();
    return IoError(status);
  }
  newest_ = {revision, state.size(), crc};
  return absl::OkStatus();
}

absl::Status FileStore::Append(absl::string_view record) {
  PAWL_RETURN_IF_ERROR(log_->Append(record));
  PAWL_FAILPOINT("scheduler_state.appended");
  PAWL_RETURN_IF_ERROR(log_->Sync());
  log_bytes_ = log_->size();
  return absl::OkStatus();
}

absl::Status FileStore::Rewrite(absl::string_view record) {
  log_.reset();
  const WritableFile::Fragment fragments[] = {
      WritableFile::Fragment(kStateLogMagic, sizeof(kStateLogMagic)),
      WritableFile::Fragment(record.data(), record.size())};
  PAWL_RETURN_IF_ERROR(WriteFileDurably(env_, log_path(), fragments));
  log_bytes_ = kStateLogHeaderBytes + record.size();
  // If opening fails, the next Save rewrites the log, too.
  if (auto log = env_.OpenForAppend(log_path()); log.ok()) log_ = *std::move(log);
  return absl::OkStatus();
}

}  // namespace pawl
