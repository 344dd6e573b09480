#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/transport.h"
#include "server/replication/replicator.h"
#include "spdlog/spdlog.h"

namespace pawl {

void Replicator::ChooseCatchUp(const std::shared_ptr<Replica>& replica, Follower& follower,
                               const ReplicaPosition& position, AfterAnswer& after) {
  if (position.follows_since() == 0 && position.log_index() > 0) {
    if (auto attempt = PrepareAskLater(replica, follower))
      after.ask_later.push_back(*std::move(attempt));
    return;
  }
  TermHistory terms;
  for (const auto& run : position.terms()) terms.Begin(run.first_index(), run.term());
  const uint64_t last = position.log_index();
  const uint64_t shared =
      LastSharedIndex(replica->partition->terms(), replica->partition->log_index(), terms, last);
  follower.found_index = last;
  if (position.follows_since() == replica->primary_since && shared == last) {
    BeginCatchUp(replica, follower, last);
    const bool is_done = follower.state != Follower::State::kCatchingUp &&
                         follower.state != Follower::State::kNeedsSnapshot;
    if (is_done && last < follower.asked_at) ++figures_.by_tail;
    return;
  }
  const bool has_rest =
      log_ != nullptr || tail_.Find(replica->index, shared + 1, follower.asked_at).has_value();
  if (position.follows_since() != replica->primary_since || shared == 0 ||
      !position.can_go_back() || !has_rest || follower.failed_go_backs >= kMaxGoBacks) {
    spdlog::debug(
        "{} is at change {} of partition {}, and shares those up to {} with this server: it gets a "
        "snapshot",
        follower.node, last, replica->index, shared);
    return RequireSnapshot(*replica, follower);
  }
  follower.state = Follower::State::kGoingBack;
  follower.attempt = ++attempts_;
  GoBackRequest request;
  request.set_partition(replica->index);
  request.set_primary_since(replica->primary_since);
  request.set_index(shared);
  request.set_last_index(last);
  request.set_last_term(terms.TermOf(last));
  MutexLock lock(mu_);
  go_back_queue_.push_back({{replica, {follower.node, follower.incarnation}, follower.attempt},
                            follower.stream->address(),
                            std::move(request)});
}

std::optional<Replicator::Attempt> Replicator::PrepareAskLater(
    const std::shared_ptr<Replica>& replica, Follower& follower) {
  const MonotonicTime now = clock_.Now();
  if (!follower.busy_since.has_value()) follower.busy_since = now;
  if (now - *follower.busy_since >= kGoBackTimeout) {
    spdlog::warn("{} has not gone back in partition {} for {} s: it gets a snapshot", follower.node,
                 replica->index, kGoBackTimeout.count());
    RequireSnapshot(*replica, follower);
    return std::nullopt;
  }
  follower.state = Follower::State::kAsked;
  follower.attempt = ++attempts_;
  return Attempt{replica, {follower.node, follower.incarnation}, follower.attempt};
}

void Replicator::AskLater(Attempt attempt) {
  transport_.After(kGoBackRetryInterval, [this, attempt = std::move(attempt)] {
    {
      MutexLock lock(attempt.replica->mu);
      Follower* const follower = Find(*attempt.replica, attempt, Follower::State::kAsked);
      if (follower == nullptr) return;
      follower->stream->AskPosition(attempt.replica->index);
    }
    PumpStreams();
  });
}

void Replicator::BeginCatchUp(const std::shared_ptr<Replica>& replica, Follower& follower,
                              uint64_t index) {
  follower.state = Follower::State::kCatchingUp;
  follower.attempt = ++attempts_;
  follower.acked = index;
  follower.next = index + 1;
  follower.reads_since.reset();
  follower.busy_since.reset();
  CatchUp(replica, follower);
}

void Replicator::CatchUp(const std::shared_ptr<Replica>& replica, Follower& follower) {
  if (follower.reads_since.has_value()) return;
  const uint64_t held_from =
      follower.held.empty() ? replica->partition->log_index() + 1 : follower.held.front().index;
  if (follower.next < held_from) {
    if (auto entries = tail_.Find(replica->index, follower.next, held_from - 1)) {
      for (ReplicationStream::Entry& entry : *entries) {
        figures_.entry_bytes += entry.bytes.size();
        AppendToStream(follower, std::move(entry));
      }
    } else if (log_ == nullptr) {
      return RequireSnapshot(*replica, follower);
    } else {
      if (follower.stream->BytesOf(replica->index) > kCatchUpChunkBytes) return;
      follower.reads_since = clock_.Now();
      // The tail has the entries after these. A failing disk writes none of them, and the log would
      // wait for entries beyond the durable ones.
      const uint64_t last = follower.next <= replica->durable_index
                                ? std::min(replica->durable_index, held_from - 1)
                                : held_from - 1;
      MutexLock lock(mu_);
      readings_.push_back({{replica, {follower.node, follower.incarnation}, follower.attempt},
                           follower.next,
                           last});
      return;
    }
  }
  follower.unread_bytes = 0;
  AppendHeld(follower);
  follower.state = Follower::State::kStreaming;
  Advance(*replica, follower, follower.acked);
}

void Replicator::StartReads() {
  std::vector<LogRead> readings;
  {
    MutexLock lock(mu_);
    if (!closed_) readings.swap(readings_);
  }
  for (LogRead& reading : readings) {
    const uint32_t partition = reading.attempt.replica->index;
    const uint64_t first = reading.first;
    const uint64_t last = reading.last;
    log_->ReadEntries(
        partition, first, last, kCatchUpChunkBytes,
        [this, reading = std::move(reading)](absl::StatusOr<std::vector<StoredEntry>> entries) {
          OnEntriesRead(reading, std::move(entries));
        });
  }
}

void Replicator::OnEntriesRead(const LogRead& reading,
                               absl::StatusOr<std::vector<StoredEntry>> entries) {
  {
    MutexLock lock(mu_);
    if (closed_) return;
  }
  const std::shared_ptr<Replica>& replica = reading.attempt.replica;
  {
    MutexLock lock(replica->mu);
    Follower* const follower = Find(*replica, reading.attempt, Follower::State::kCatchingUp);
    if (follower == nullptr) return;
    follower->reads_since.reset();
    size_t bytes = 0;
    if (entries.ok() && !entries->empty() && entries->front().index == follower->next) {
      if (reading.first == follower->found_index + 1) ++figures_.by_log;
      for (StoredEntry& entry : *entries) {
        const size_t size = entry.bytes.size();
        bytes += size;
        if (entry.index >= follower->unread_from)
          follower->unread_bytes -= std::min(size, follower->unread_bytes);
        follower->next = entry.index + 1;
        AppendToStream(*follower, {replica->index, entry.index, std::move(entry.bytes),
                                   std::move(entry.owner)});
      }
      figures_.entry_bytes += bytes;
    }
    // Only what it lacked when it was asked counts: after a snapshot, catch-up continues with
    // entries.
    const uint64_t lacking = follower->asked_at - std::min(follower->next - 1, follower->asked_at);
    const bool is_too_much = bytes >= kCatchUpChunkBytes / 2 && lacking > 0 &&
                             static_cast<double>(bytes) / static_cast<double>(entries->size()) *
                                     static_cast<double>(lacking) >
                                 static_cast<double>(replica->partition->parameter_bytes());
    if (bytes == 0 || is_too_much) {
      const std::string why = is_too_much     ? "a snapshot is smaller"
                              : !entries.ok() ? entries.status().ToString()
                              : entries->empty()
                                  ? "the log has none of them"
                                  : absl::StrCat("the log starts at ", entries->front().index);
      spdlog::info("{} lacks the changes of partition {} from {} on: it gets a snapshot, since {}",
                   follower->node, replica->index, follower->next, why);
      RequireSnapshot(*replica, *follower);
    } else {
      CatchUp(replica, *follower);
    }
  }
  owner_.OnAdvanced(replica);
  Pump();
}

bool Replicator::SendGoBack(QueuedGoBack waiting) {
  const Attempt& attempt = waiting.attempt;
  uint64_t bytes;
  {
    MutexLock lock(attempt.replica->mu);
    if (Find(*attempt.replica, attempt, Follower::State::kGoingBack) == nullptr) return false;
    bytes = attempt.replica->partition->parameter_bytes();
  }
  *waiting.request.mutable_header() = owner_.Header();
  // The follower reads that many bytes back.
  const MonotonicDuration timeout = kSnapshotPieceDeadline + TransferTime(bytes);
  transport_.Call(
      waiting.address, Method::kGoBack, EncodeSmall(waiting.request), timeout,
      [this, attempt, index = waiting.request.index()](absl::Status status, IncomingMessage) {
        OnGoBackDone(attempt, index, status);
      });
  return true;
}

void Replicator::OnGoBackDone(const Attempt& attempt, uint64_t index, const absl::Status& status) {
  const std::shared_ptr<Replica>& replica = attempt.replica;
  {
    MutexLock lock(mu_);
    --transfers_;
    if (const auto peer = peers_.find(attempt.server); peer != peers_.end())
      peer->second.goes_back = false;
    if (closed_) return;
  }
  std::optional<Attempt> ask_later;
  {
    MutexLock lock(replica->mu);
    if (Follower* const follower = Find(*replica, attempt, Follower::State::kGoingBack)) {
      if (status.ok()) {
        ++figures_.by_going_back;
        BeginCatchUp(replica, *follower, index);
      } else if (absl::IsNotFound(status)) {
        RequireSnapshot(*replica, *follower);
      } else if (absl::IsUnavailable(status)) {
        ask_later = PrepareAskLater(replica, *follower);
      } else {
        // After its deadline it may still be going back.
        follower->busy_since.reset();
        ++follower->failed_go_backs;
        follower->state = Follower::State::kAsked;
        follower->stream->AskPosition(replica->index);
      }
    }
  }
  if (ask_later.has_value()) AskLater(*std::move(ask_later));
  if (!status.ok()) OnFailure(attempt.server, status);
  owner_.OnAdvanced(replica);
  Pump();
}

std::optional<Replicator::QueuedGoBack> Replicator::TakeGoBack() {
  for (auto it = go_back_queue_.begin(); it != go_back_queue_.end(); ++it) {
    const auto peer = peers_.find(it->attempt.server);
    if (peer != peers_.end() && std::exchange(peer->second.goes_back, true)) continue;
    QueuedGoBack taken = std::move(*it);
    go_back_queue_.erase(it);
    return taken;
  }
  return std::nullopt;
}

}  // namespace pawl
