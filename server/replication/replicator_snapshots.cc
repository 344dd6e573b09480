#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/transport.h"
#include "server/replication/log_entry.h"
#include "server/replication/replicator.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// A snapshot that is ahead of its rate by less than this is not paused.
constexpr std::chrono::milliseconds kLeastPause{5};
constexpr std::chrono::milliseconds kPushesWaitedLately{500};
// No transfer is expected to take longer.
constexpr double kLongestTransferS = 86400;

// Whether the follower refused the snapshot itself, for example because its disk is full. The other
// errors pass, or mean that it needs another snapshot or none.
bool IsRefusal(const absl::Status& status) {
  return !status.ok() && !IsTransientError(status) && !absl::IsAborted(status) &&
         !absl::IsOutOfRange(status) && !absl::IsFailedPrecondition(status);
}

}  // namespace

// One snapshot in transfer to one follower.
struct Replicator::Install {
  Attempt attempt;
  std::string address;
  uint64_t primary_since = 0;
  // Its Read is called under `mu`.
  HeldSnapshot snapshot;
  // The term of the snapshot's last change.
  uint64_t log_term = 0;
  MonotonicTime started_at;
  RecentRate rate{/*least_seconds=*/0.1, /*weight=*/0.25};
  // The piece in flight, which is sent again if it fails; its offset in the snapshot; whether it is
  // the last one; and the checksum of everything up to its end.
  std::shared_ptr<const std::string> piece = std::make_shared<const std::string>();
  bool is_last = false;
  uint64_t offset = 0;
  uint32_t crc = 0;
  MonotonicTime piece_sent;
  // For the present piece.
  uint32_t failed_tries = 0;
  MonotonicTime first_try;

  void NextPiece(size_t size) {
    offset += piece->size();
    {
      MutexLock lock(mu);
      Read(size);
      piece = std::make_shared<const std::string>(ahead.substr(0, size));
      ahead.erase(0, piece->size());
      is_last = snapshot.at_end() && ahead.empty();
    }
    crc = Crc32c(crc, piece->data(), piece->size());
    failed_tries = 0;
  }
  // Runs while the previous piece is in flight, and perhaps after it was answered.
  void ReadAhead(size_t size) {
    MutexLock lock(mu);
    Read(size);
  }

 private:
  void Read(size_t size) PAWL_REQUIRES(mu) {
    if (ahead.size() < size && !snapshot.at_end()) snapshot.Read(size - ahead.size(), ahead);
  }

  Mutex mu;
  // Read ahead and not sent yet; a read may return more than a piece.
  std::string ahead PAWL_GUARDED_BY(mu);
};

void Replicator::QueueSnapshot(uint32_t partition) {
  MutexLock lock(mu_);
  if (std::find(snapshot_queue_.begin(), snapshot_queue_.end(), partition) == snapshot_queue_.end())
    snapshot_queue_.push_back(partition);
}

void Replicator::RequireSnapshot(Replica& replica, Follower& follower) {
  replica.RequireSnapshot(follower);
  QueueSnapshot(replica.index);
}

void Replicator::StartTransfers() {
  for (;;) {
    std::optional<QueuedGoBack> goes_back;
    uint32_t partition = 0;
    {
      MutexLock lock(mu_);
      if (closed_ || transfers_ >= kMaxTransfers) return;
      // Go-backs come first, since pushes to their partitions may wait for them.
      goes_back = TakeGoBack();
      if (!goes_back.has_value()) {
        if (snapshot_queue_.empty() || (sends_snapshot_ && is_limited_)) return;
        partition = snapshot_queue_.front();
        snapshot_queue_.pop_front();
        sends_snapshot_ = true;
      }
      ++transfers_;
    }
    if (goes_back.has_value()) {
      const Server server = goes_back->attempt.server;
      if (SendGoBack(*std::move(goes_back))) continue;
      MutexLock lock(mu_);
      if (const auto peer = peers_.find(server); peer != peers_.end())
        peer->second.goes_back = false;
      --transfers_;
      continue;
    }
    const std::shared_ptr<Replica> replica = owner_.FindReplica(partition);
    if (replica != nullptr && StartInstall(replica)) continue;
    MutexLock lock(mu_);
    sends_snapshot_ = false;
    --transfers_;
  }
}

bool Replicator::StartInstall(const std::shared_ptr<Replica>& replica) {
  auto install = std::make_shared<Install>();
  bool more = false;
  std::optional<MonotonicDuration> pause;
  {
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary()) return false;
    const MonotonicTime now = clock_.Now();
    for (Follower& follower : replica->followers) {
      if (follower.state != Follower::State::kNeedsSnapshot) continue;
      if (follower.failed_installs > 0 && !follower.install_from.has_value()) {
        pause = GrowingPause(follower.failed_installs, kSnapshotRetryInterval,
                             kMaxSnapshotRetryInterval);
        follower.install_from = now + *pause;
      }
      if (follower.install_from.has_value() && now < *follower.install_from) continue;
      if (install->attempt.replica != nullptr) {
        more = true;
        break;
      }
      HeldSnapshot snapshot = HoldSnapshot(*replica->partition);
      if (snapshot.approximate_bytes() > options_.max_snapshot_bytes) {
        spdlog::error(
            "partition {} cannot be copied to {}: its snapshot has {} bytes, and the limit is {}",
            replica->index, follower.node, snapshot.approximate_bytes(),
            options_.max_snapshot_bytes);
        // Pushes wait for it until it is dropped.
        if (follower.is_synchronous) follower.NoteRefusedInstall(now);
        replica->RestartSnapshot(follower);
        continue;
      }
      follower.attempt = ++attempts_;
      install->attempt = {replica, {follower.node, follower.incarnation}, follower.attempt};
      install->address = follower.stream->address();
      install->primary_since = replica->primary_since;
      install->snapshot = std::move(snapshot);
      install->log_term = replica->partition->terms().TermOf(replica->partition->log_index());
      install->started_at = now;
      follower.state = Follower::State::kInstalling;
    }
  }
  if (more) QueueSnapshot(replica->index);
  if (pause.has_value()) {
    transport_.After(*pause, [this, partition = replica->index] {
      QueueSnapshot(partition);
      Pump();
    });
  }
  if (install->attempt.replica == nullptr) return false;
  SendNextPiece(install);
  return true;
}

void Replicator::SendNextPiece(const std::shared_ptr<Install>& install) {
  install->NextPiece(options_.snapshot_piece_bytes);
  install->first_try = clock_.Now();
  const bool is_last = install->is_last;
  SendPiece(install);
  if (!is_last) return install->ReadAhead(options_.snapshot_piece_bytes);
  // The follower may take long to load and write the whole snapshot.
  {
    MutexLock lock(mu_);
    sends_snapshot_ = false;
  }
  StartTransfers();
}

void Replicator::SendPiece(const std::shared_ptr<Install>& install) {
  InstallSnapshotRequest request;
  *request.mutable_header() = owner_.Header();
  request.set_partition(install->attempt.replica->index);
  request.set_primary_since(install->primary_since);
  request.set_log_index(install->snapshot.log_index());
  request.set_log_term(install->log_term);
  request.set_offset(install->offset);
  request.set_last(install->is_last);
  request.set_crc32c(install->crc);
  const MonotonicDuration timeout =
      kSnapshotPieceDeadline + (request.last() ? TransferTime(install->snapshot.approximate_bytes())
                                               : MonotonicDuration::zero());
  install->piece_sent = clock_.Now();
  transport_.Call(
      install->address, Method::kInstallSnapshot,
      EncodeInstallSnapshotRequest(
          request, ByteView(install->piece->data(), install->piece->size()), install->piece),
      timeout, [this, install](absl::Status status, IncomingMessage) { OnPiece(install, status); });
}

void Replicator::OnPiece(const std::shared_ptr<Install>& install, const absl::Status& status) {
  const MonotonicTime now = clock_.Now();
  if (!status.ok()) return OnPieceFailed(install, status);
  const size_t bytes = install->piece->size();
  {
    MutexLock lock(mu_);
    if (const auto peer = peers_.find(install->attempt.server); peer != peers_.end()) {
      peer->second.installs_fail_since.reset();
    }
    pace_.OnPiece(bytes, install->piece_sent, now);
    figures_.snapshot_bytes += bytes;
  }
  if (install->is_last) return EndInstall(install, status);
  const uint64_t sent = install->offset + bytes;
  install->rate.Sample(sent, now);
  const double bytes_per_s = install->rate.bytes_per_s().value_or(
      static_cast<double>(sent) / Seconds(now - install->started_at));
  const double rest = std::max(
      0.0, static_cast<double>(install->snapshot.approximate_bytes()) - static_cast<double>(sent));
  const auto left = std::chrono::duration_cast<MonotonicDuration>(std::chrono::duration<double>(
      rest == 0 ? 0 : std::min(rest / bytes_per_s, kLongestTransferS)));
  // Then a follower with a log writes the whole snapshot before it answers; that takes about as
  // long again if its disk is no faster than the transfer.
  const auto written =
      install->attempt.replica->logs ? now - install->started_at + left : MonotonicDuration::zero();
  bool pushes_wait = false;
  if (!IsWanted(*install, now + left + written, /*fails=*/false, &pushes_wait)) {
    return EndInstall(install, absl::AbortedError("the follower no longer needs the snapshot"));
  }
  MonotonicDuration pause = MonotonicDuration::zero();
  const bool is_busy =
      options_.processor_pressure != nullptr && options_.processor_pressure() > kBusyShare;
  {
    MutexLock lock(mu_);
    if (is_limited_) {
      // While pushes wait for the snapshot, it does not yield to them.
      const double spare =
          is_busy ? std::min(pace_.bytes_per_s(), kBusyRepairBytesPerS) : pace_.bytes_per_s();
      const double rate = pushes_wait ? static_cast<double>(options_.repair_bytes_per_s) : spare;
      next_piece_ =
          std::max(next_piece_, now) +
          std::chrono::nanoseconds(static_cast<int64_t>(1e9 * static_cast<double>(bytes) / rate));
      pause = next_piece_ - now;
    }
  }
  if (pause < kLeastPause) return SendNextPiece(install);
  transport_.After(pause, [this, install, end = now + left] {
    // The server may be gone by then.
    if (!IsWanted(*install, end, /*fails=*/false)) {
      return EndInstall(install, absl::AbortedError("the follower no longer needs the snapshot"));
    }
    SendNextPiece(install);
  });
}

void Replicator::OnPieceFailed(const std::shared_ptr<Install>& install,
                               const absl::Status& status) {
  const MonotonicTime now = clock_.Now();
  const bool may_pass = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (may_pass) {
    MutexLock lock(mu_);
    if (const auto peer = peers_.find(install->attempt.server); peer != peers_.end()) {
      // Tries are never as far apart: an older failure is of a learner that was dropped since.
      if (!peer->second.installs_fail_since.has_value() ||
          install->piece_sent - peer->second.install_failed_at >
              kMaxSnapshotRetryInterval + kPieceTriesTimeout) {
        peer->second.installs_fail_since = install->piece_sent;
      }
      peer->second.install_failed_at = now;
    }
  }
  // The last piece is answered only when the follower has written the whole snapshot. After that it
  // answers quickly, so its tries count from the first answer.
  if (install->failed_tries == 0 && install->is_last) install->first_try = now;
  const MonotonicDuration pause =
      GrowingPause(++install->failed_tries, kSnapshotRetryInterval, kMaxPieceRetryInterval);
  if (!may_pass || now + pause - install->first_try > kPieceTriesTimeout)
    return EndInstall(install, status);
  if (!IsWanted(*install, MonotonicTime::max(), /*fails=*/true)) return EndInstall(install, status);
  OnFailure(install->attempt.server, status);
  transport_.After(pause, [this, install, status] {
    if (!IsWanted(*install, MonotonicTime::max(), /*fails=*/true))
      return EndInstall(install, status);
    SendPiece(install);
  });
}

bool Replicator::IsWanted(const Install& install, MonotonicTime end, bool fails,
                          bool* pushes_wait) {
  MutexLock lock(install.attempt.replica->mu);
  Follower* const follower =
      Find(*install.attempt.replica, install.attempt, Follower::State::kInstalling);
  if (follower == nullptr) return false;
  follower->install_end = end;
  follower->install_fails = fails;
  if (pushes_wait != nullptr) {
    const MonotonicTime waited_at = install.attempt.replica->pushes_waited_at;
    *pushes_wait =
        waited_at != MonotonicTime::min() && clock_.Now() - waited_at < kPushesWaitedLately;
  }
  return true;
}

void Replicator::EndInstall(const std::shared_ptr<Install>& install, const absl::Status& status) {
  const std::shared_ptr<Replica>& replica = install->attempt.replica;
  {
    MutexLock lock(mu_);
    if (!install->is_last) sends_snapshot_ = false;
    --transfers_;
    if (closed_) return;
  }
  bool again = false;
  {
    MutexLock lock(replica->mu);
    if (Follower* const follower = Find(*replica, install->attempt, Follower::State::kInstalling)) {
      if (status.ok()) {
        ++figures_.by_snapshot;
        follower->failed_installs = 0;
        follower->refused_installs = 0;
        follower->snapshot_bytes_per_s = install->rate.bytes_per_s();
        follower->install_from.reset();
        follower->asked_at = install->snapshot.log_index();
        BeginCatchUp(replica, *follower, install->snapshot.log_index());
      } else {
        if (IsRefusal(status)) follower->NoteRefusedInstall(clock_.Now());
        replica->RestartSnapshot(*follower);
      }
    }
    for (const Follower& other : replica->followers)
      again = again || other.state == Follower::State::kNeedsSnapshot;
  }
  if (!status.ok()) {
    OnFailure(install->attempt.server, status);
    spdlog::warn("snapshot of partition {} to {}: {}; it is sent again", replica->index,
                 install->attempt.server.first, status.ToString());
  }
  if (again) QueueSnapshot(replica->index);
  owner_.OnAdvanced(replica);
  Pump();
}

}  // namespace pawl
