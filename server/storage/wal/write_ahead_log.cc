#include "server/storage/wal/write_ahead_log.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "server/storage/wal/log_format.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How long the thread sleeps when it is not woken.
constexpr std::chrono::seconds kSleep{1};

}  // namespace

WriteAheadLog::WriteAheadLog(SnapshotStore& snapshots, WriteAheadLogOptions options,
                             RecoveredLog recovered, DurableCallback durable)
    : snapshots_(snapshots),
      env_(snapshots.env()),
      options_(std::move(options)),
      log_folder_(JoinPath(options_.data_folder, kLogFolder)),
      durable_(std::move(durable)),
      writer_(env_, {log_folder_, snapshots.job_id(), options_.sync, options_.segment_bytes},
              std::move(recovered.end)),
      first_group_records_(recovered.unsettled.size()) {
  {
    MutexLock lock(mu_);
    position_ = writer_.settled();
    segments_.assign(std::make_move_iterator(recovered.segments.begin()),
                     std::make_move_iterator(recovered.segments.end()));
    for (const RecoveredPartition& partition : recovered.partitions) {
      last_index_[partition.partition] = partition.last_index;
    }
    for (const auto& [partition, index] : recovered.released) released_[partition] = index;
    for (QueuedRecord& record : recovered.unsettled) Enqueue(std::move(record));
    to_write_ = queue_.size();
  }
  thread_ = std::thread([this] { Run(); });
}

WriteAheadLog::~WriteAheadLog() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void WriteAheadLog::Append(uint32_t partition, uint64_t index, uint64_t term, ByteView payload,
                           std::shared_ptr<const void> owner) {
  if (payload.size() > kMaxRecordPayloadBytes) std::abort();
  MutexLock lock(mu_);
  const auto [last, is_new] = last_index_.try_emplace(partition, index);
  if (!is_new && index <= last->second) std::abort();
  last->second = index;
  Enqueue({RecordType::kData, partition, index, term, std::move(payload), std::move(owner),
           std::nullopt, 0});
}

bool WriteAheadLog::HasRoom(uint64_t payload_bytes) const {
  MutexLock lock(mu_);
  return queued_bytes_ + CostOf(payload_bytes) <= options_.max_queued_bytes;
}

void WriteAheadLog::AppendReset(uint32_t partition, const LogReset& reset) {
  const auto payload = std::make_shared<const std::string>(EncodeResetMark(reset.mark));
  {
    MutexLock lock(mu_);
    last_index_[partition] = reset.index;
    Enqueue({RecordType::kTruncate, partition, reset.index, 0,
             ByteView(payload->data(), payload->size()), payload, std::nullopt, 0});
  }
  WriteQueued();
}

void WriteAheadLog::Enqueue(QueuedRecord record) {
  queued_bytes_ += CostOf(record.payload.size());
  queue_.push_back(std::move(record));
}

void WriteAheadLog::WriteQueued() {
  MutexLock lock(mu_);
  // The thread sleeps only while nothing is to be written, or until its next try.
  if (to_write_ == 0 && !queue_.empty()) changed_.NotifyAll();
  to_write_ = queue_.size();
}

void WriteAheadLog::Run() {
  std::vector<QueuedRecord> group;
  while (TakeGroup(group)) {
    bool ends_segment = false;
    {
      MutexLock lock(mu_);
      ends_segment = segment_ends_;
    }
    if (group.empty() && !ends_segment) {
      writer_.MarkSettled();
      marked_ = true;
      continue;
    }
    if (!Commit(group)) return;
    marked_ = false;
    const std::vector<DurableRecord> durable = Settle(group);
    // Frees the records' memory before their durability is acted on.
    group.clear();
    durable_(durable);
  }
  writer_.MarkSettled();
}

bool WriteAheadLog::TakeGroup(std::vector<QueuedRecord>& group) {
  MutexLock lock(mu_);
  while (to_write_ == 0) {
    if (stopping_) {
      if (queue_.empty()) return false;
      to_write_ = queue_.size();
      break;
    }
    if (segment_ends_) return true;
    const auto now = std::chrono::steady_clock::now();
    if (marked_) {
      changed_.WaitUntil(mu_, now + kSleep);
    } else if (!changed_.WaitUntil(mu_, now + options_.idle_interval) && to_write_ == 0 &&
               !stopping_) {
      return true;
    }
  }
  uint64_t bytes = 0;
  for (; to_write_ > 0; --to_write_) {
    bytes += CostOf(queue_.front().payload.size());
    if (group.size() >= std::max<size_t>(first_group_records_, 1) &&
        bytes > options_.max_group_bytes)
      break;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  first_group_records_ = 0;
  return true;
}

bool WriteAheadLog::Commit(std::vector<QueuedRecord>& group) {
  bool retried = false;
  std::optional<std::chrono::steady_clock::time_point> fails_since;
  while (true) {
    {
      MutexLock lock(mu_);
      if (std::exchange(segment_ends_, false)) writer_.EndSegment();
    }
    absl::Status status = writer_.WriteGroup(absl::MakeSpan(group));
    // A full disk stalls the job, and no other message says why.
    if (!status.ok() && !fails_since.has_value()) {
      fails_since = std::chrono::steady_clock::now();
      spdlog::error("the log in {} cannot be written and is retried; pushes wait: {}", log_folder_,
                    status.ToString());
    } else if (status.ok() && fails_since.has_value()) {
      const std::chrono::duration<double> failed = std::chrono::steady_clock::now() - *fails_since;
      spdlog::info("the log in {} can be written again after {:.1f} s", log_folder_,
                   failed.count());
    }
    MutexLock lock(mu_);
    FollowWriter();
    status_ = status;
    if (status.ok()) return true;
    ++figures_.failures;
    for (SegmentUse& use : segments_) {
      if (use.segment == writer_.failed_sync()) use.sync_failed = true;
    }
    // A new segment may help at once; space does not come back at once.
    if (!absl::IsResourceExhausted(status) && !std::exchange(retried, true)) continue;
    const auto next_try = std::chrono::steady_clock::now() + options_.retry_interval;
    while (!stopping_ && changed_.WaitUntil(mu_, next_try)) {
    }
    if (stopping_) return false;
  }
}

void WriteAheadLog::FollowWriter() {
  const LogPosition position = writer_.settled();
  position_ = position;
  if (position.segment == 0) return;
  if (segments_.empty() || segments_.back().segment != position.segment) {
    segments_.push_back({position.segment, 0, {}, false});
  }
  segments_.back().bytes = position.offset;
}

std::vector<DurableRecord> WriteAheadLog::Settle(const std::vector<QueuedRecord>& group) {
  std::vector<DurableRecord> durable;
  // Where in `durable` a partition is, since its last reset.
  absl::flat_hash_map<uint32_t, size_t> places;
  // The resets in `durable` and their positions.
  std::vector<std::pair<LogReset, uint64_t>> resets;
  uint64_t cost = 0, payload_bytes = 0;
  for (const QueuedRecord& record : group) {
    cost += CostOf(record.payload.size());
    payload_bytes += record.payload.size();
    if (record.IsReset()) {
      std::string payload(record.payload.size(), '\0');
      record.payload.CopyTo(payload.data());
      const LogReset reset = *DecodeReset(record.type, record.index, payload);
      const LogPosition position{writer_.settled().segment, record.offset};
      snapshots_.Reset(record.partition, reset, position);
      places.erase(record.partition);
      durable.push_back({record.partition, reset.index, true});
      resets.emplace_back(reset, position.Pack());
      continue;
    }
    const auto [place, is_new] = places.try_emplace(record.partition, durable.size());
    if (is_new) durable.push_back({record.partition, 0, false});
    durable[place->second].index = record.index;
  }
  // Files that cannot be deleted or renamed now are handled before the segment with the resets is
  // deleted, or by the next recovery.
  const bool has_pending_resets = !resets.empty() && !snapshots_.ApplyResets().ok();
  MutexLock lock(mu_);
  auto next_reset = resets.begin();
  for (const DurableRecord& entry : durable) {
    if (entry.is_reset) {
      const auto& [reset, position] = *next_reset++;
      for (SegmentUse& use : segments_) use.Reset(entry.partition, reset);
      released_.erase(entry.partition);
      last_reset_[entry.partition] = position;
    }
    if (entry.index > 0) segments_.back().last_index[entry.partition] = entry.index;
  }
  segments_.back().has_pending_resets = segments_.back().has_pending_resets || has_pending_resets;
  queued_bytes_ -= cost;
  figures_.records += group.size();
  figures_.payload_bytes += payload_bytes;
  ++figures_.groups;
  return durable;
}

std::vector<SegmentUse> WriteAheadLog::Segments() const {
  MutexLock lock(mu_);
  return {segments_.begin(), segments_.end()};
}

uint64_t WriteAheadLog::Released(uint32_t partition) const {
  MutexLock lock(mu_);
  const auto released = released_.find(partition);
  return released == released_.end() ? 0 : released->second;
}

void WriteAheadLog::EndSegment() {
  MutexLock lock(mu_);
  // A log without a segment has none to end.
  if (segments_.empty()) return;
  segment_ends_ = true;
  changed_.NotifyAll();
}

absl::Status WriteAheadLog::Release(uint32_t partition, uint64_t index,
                                    LogPosition start_position) {
  {
    MutexLock lock(mu_);
    const auto reset = last_reset_.find(partition);
    if (reset != last_reset_.end() && start_position.Pack() <= reset->second)
      return absl::OkStatus();
    uint64_t& released = released_[partition];
    released = std::max(released, index);
  }
  return DeleteUnneeded();
}

absl::Status WriteAheadLog::DeleteUnneeded() {
  MutexLock release_lock(release_mu_);
  while (true) {
    uint64_t oldest = 0;
    bool has_pending_resets = false;
    {
      MutexLock lock(mu_);
      if (segments_.size() < 2) return absl::OkStatus();
      for (const auto& [holder, last_index] : segments_.front().last_index) {
        const auto released = released_.find(holder);
        if (released == released_.end() || released->second < last_index) return absl::OkStatus();
      }
      oldest = segments_.front().segment;
      has_pending_resets = segments_.front().has_pending_resets;
    }
    if (has_pending_resets) PAWL_RETURN_IF_ERROR(snapshots_.ApplyResets());
    // One by one, so that a crash never leaves a hole.
    if (PAWL_FAILPOINT("log.delete")) return absl::DataLossError("failpoint log.delete");
    const auto set_being_deleted = [this](bool is) {
      MutexLock lock(mu_);
      segments_.front().is_being_deleted = is;
    };
    set_being_deleted(true);
    absl::Status status = env_.Delete(JoinPath(log_folder_, SegmentFileName(oldest)));
    if (!status.ok() && !absl::IsNotFound(status)) {
      set_being_deleted(false);
      return status;
    }
    PAWL_FAILPOINT("log.deleted");
    PAWL_RETURN_IF_ERROR(env_.SyncFolder(log_folder_));
    MutexLock lock(mu_);
    segments_.pop_front();
  }
}

std::vector<uint32_t> WriteAheadLog::PartitionsOfOldestSegment() const {
  MutexLock lock(mu_);
  std::vector<uint32_t> holders;
  if (segments_.size() < 2) return holders;
  for (const auto& [partition, last_index] : segments_.front().last_index) {
    const auto released = released_.find(partition);
    if (released == released_.end() || released->second < last_index) holders.push_back(partition);
  }
  return holders;
}

absl::Status WriteAheadLog::status() const {
  MutexLock lock(mu_);
  // Not shared with the log's thread: ThreadSanitizer does not see how the system's Abseil counts
  // references.
  return absl::Status(status_.code(), status_.message());
}

LogPosition WriteAheadLog::DurablePosition() const {
  MutexLock lock(mu_);
  return position_;
}

WriteAheadLogFigures WriteAheadLog::figures() const {
  MutexLock lock(mu_);
  WriteAheadLogFigures figures = figures_;
  figures.queued_bytes = queued_bytes_;
  figures.segments = segments_.size();
  for (const SegmentUse& use : segments_) figures.segment_bytes += use.bytes;
  return figures;
}

}  // namespace pawl
