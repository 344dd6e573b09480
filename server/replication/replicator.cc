#include "server/replication/replicator.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/lease.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/transport.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// A snapshot that is ahead of its rate by less goes on at once.
constexpr std::chrono::milliseconds kLeastPause{5};
constexpr std::chrono::milliseconds kPushesWaitedLately{500};

}  // namespace

// One snapshot on its way to one follower.
struct Replicator::Install {
  Attempt attempt;
  std::string address;
  uint64_t primary_since = 0;
  // Its Read under `mu`.
  HeldSnapshot snapshot;
  // Of its last change.
  uint64_t log_term = 0;
  MonotonicTime began;
  // The piece under way, which is sent again if it fails, and where in the snapshot it begins;
  // whether it is the last one; the checksum of all up to its end.
  std::string piece;
  bool is_last = false;
  uint64_t offset = 0;
  uint32_t crc = 0;
  MonotonicTime piece_sent;
  // Of the present piece.
  uint32_t failed_tries = 0;
  MonotonicTime first_try;

  void NextPiece(size_t size) {
    offset += piece.size();
    {
      MutexLock lock(mu);
      Read(size);
      piece = ahead.substr(0, size);
      ahead.erase(0, piece.size());
      is_last = snapshot.at_end() && ahead.empty();
    }
    crc = Crc32c(crc, piece.data(), piece.size());
    failed_tries = 0;
  }
  // While the piece before is on its way, and perhaps when it has been answered.
  void ReadAhead(size_t size) {
    MutexLock lock(mu);
    Read(size);
  }

 private:
  void Read(size_t size) PAWL_REQUIRES(mu) {
    if (ahead.size() < size && !snapshot.at_end()) snapshot.Read(size - ahead.size(), ahead);
  }

  Mutex mu;
  // Read and not sent: sections end where they end.
  std::string ahead PAWL_GUARDED_BY(mu);
};

Replicator::Replicator(const ReplicatorOptions& options, Transport& transport, const Clock& clock,
                       const EntryTail& tail, Events events)
    : options_(options),
      transport_(transport),
      clock_(clock),
      tail_(tail),
      events_(std::move(events)),
      pace_(static_cast<double>(options.repair_bytes_per_s)) {}

std::shared_ptr<ReplicationStream> Replicator::NewStream(const ServerAddress& address) {
  const Server server(address.node(), address.incarnation());
  auto stream = std::make_shared<ReplicationStream>(
      transport_, clock_, address.address(),
      ReplicationStream::Events{
          .header = events_.header,
          .answered = [this, server](
                          const ReplicateResponse& response, const std::vector<uint32_t>& asked,
                          MonotonicTime sent) { OnAnswer(server, response, asked, sent); },
          .failed = [this, server](const absl::Status& status) { OnFailure(server, status); }});
  if (closed_) stream->Close();
  return stream;
}

Replicator::Peer& Replicator::PeerAt(const ServerAddress& address) {
  Peer& peer = peers_[Server(address.node(), address.incarnation())];
  if (peer.streams.empty()) {
    for (uint32_t i = 0; i < kStreamsPerServer; ++i) peer.streams.push_back(NewStream(address));
    peer.catch_up = NewStream(address);
  }
  return peer;
}

std::vector<std::shared_ptr<ReplicationStream>> Replicator::AllStreams() const {
  std::vector<std::shared_ptr<ReplicationStream>> streams;
  MutexLock lock(mu_);
  for (const auto& [server, peer] : peers_) {
    streams.insert(streams.end(), peer.streams.begin(), peer.streams.end());
    streams.push_back(peer.catch_up);
  }
  return streams;
}

void Replicator::SetFollowers(Replica& replica, const RoutingTable& routing, bool is_new) {
  const PartitionReplicas& wanted = routing.replicas(static_cast<int>(replica.index));
  std::vector<Follower> followers;
  bool needs_snapshot = false;
  // What is queued for those that do not go on from where they are, before any of them is asked
  // anything.
  const auto goes_on = [&](const Follower& follower) PAWL_REQUIRES(replica.mu) {
    const auto is = [&](uint32_t server) {
      const ServerAddress& address = routing.servers(static_cast<int>(server));
      return address.node() == follower.node && address.incarnation() == follower.incarnation;
    };
    if (std::any_of(wanted.backups().begin(), wanted.backups().end(), is)) return true;
    for (int i = 0; i < wanted.learners_size(); ++i) {
      const uint64_t since = i < wanted.learners_since_size() ? wanted.learners_since(i) : 0;
      if (is(wanted.learners(i))) return follower.is_learner && follower.learner_since == since;
    }
    return false;
  };
  for (const Follower& follower : replica.followers) {
    if (!goes_on(follower)) follower.stream->Discard(replica.index);
  }
  // `since`: of a learner.
  const auto add = [&](uint32_t server, bool is_learner, uint64_t since) PAWL_REQUIRES(replica.mu) {
    const ServerAddress& address = routing.servers(static_cast<int>(server));
    Follower* const present = replica.FindFollower(address.node(), address.incarnation());
    Follower follower;
    // By routings that this server has not seen, a learner may have been dropped, with what it had,
    // and come again.
    if (present != nullptr &&
        (!is_learner || (present->is_learner && present->learner_since == since))) {
      follower = std::move(*present);
    } else {
      follower.node = address.node();
      follower.incarnation = address.incarnation();
      follower.learner_since = since;
      {
        MutexLock lock(mu_);
        const Peer& peer = PeerAt(address);
        follower.on_catch_up_stream = is_learner;
        follower.stream =
            is_learner ? peer.catch_up : peer.streams[replica.index % kStreamsPerServer];
      }
      // What was queued for it, or asked of it, before is of no interest.
      follower.stream->Discard(replica.index);
      if (is_new && !is_learner) {
        follower.state = Follower::State::kStreaming;
      } else if (replica.partition != nullptr) {
        follower.state = Follower::State::kAsked;
        follower.asked_at = replica.partition->log_index();
        follower.stream->AskPosition(replica.index);
      }
    }
    // A learner that counts goes on counting: the scheduler may be about to make it a backup.
    follower.counts = follower.counts || !is_learner;
    follower.is_learner = is_learner;
    needs_snapshot = needs_snapshot || follower.state == Follower::State::kNeedsSnapshot;
    followers.push_back(std::move(follower));
  };
  for (const uint32_t server : wanted.backups()) add(server, /*is_learner=*/false, 0);
  for (int i = 0; i < wanted.learners_size(); ++i) {
    add(wanted.learners(i), /*is_learner=*/true,
        i < wanted.learners_since_size() ? wanted.learners_since(i) : 0);
  }
  replica.followers = std::move(followers);
  if (needs_snapshot) WantSnapshot(replica.index);
}

void Replicator::WantSnapshot(uint32_t partition) {
  MutexLock lock(mu_);
  if (std::find(wanting_.begin(), wanting_.end(), partition) == wanting_.end())
    wanting_.push_back(partition);
}

void Replicator::NeedsSnapshot(Replica& replica, Follower& follower) {
  replica.NeedsSnapshot(follower);
  WantSnapshot(replica.index);
}

void Replicator::ForgetServersNotIn(const RoutingTable& routing) {
  absl::btree_set<std::string> gone;
  {
    MutexLock lock(mu_);
    for (auto it = peers_.begin(); it != peers_.end();) {
      const bool named = std::any_of(
          routing.servers().begin(), routing.servers().end(), [&](const ServerAddress& server) {
            return server.node() == it->first.first && server.incarnation() == it->first.second;
          });
      if (!named) {
        gone.insert(it->second.catch_up->address());
        for (const auto& stream : it->second.streams) stream->Close();
        it->second.catch_up->Close();
      }
      it = named ? std::next(it) : peers_.erase(it);
    }
  }
  // Another incarnation may be there.
  if (!gone.empty()) {
    for (const ServerAddress& server : routing.servers()) gone.erase(server.address());
  }
  for (const std::string& address : gone) transport_.Forget(address);
}

void Replicator::LiftLimit() {
  MutexLock lock(mu_);
  is_limited_ = false;
}

void Replicator::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  going_back_.clear();
  wanting_.clear();
  for (const auto& [server, peer] : peers_) {
    for (const auto& stream : peer.streams) stream->Close();
    peer.catch_up->Close();
  }
}

void Replicator::PumpStreams() {
  for (const auto& stream : AllStreams()) stream->Pump();
}

void Replicator::Pump() {
  PumpStreams();
  BeginReads();
  BeginTransfers();
}

void Replicator::Tick(bool asks) {
  Pump();
  if (!asks) return;
  std::vector<std::shared_ptr<ReplicationStream>> streams;
  {
    MutexLock lock(mu_);
    for (const auto& [server, peer] : peers_) {
      if (!peer.streams.empty()) streams.push_back(peer.streams[0]);
    }
  }
  for (const auto& stream : streams) stream->Ping();
}

std::vector<SilentServer> Replicator::SilentFor(MonotonicDuration duration) const {
  const MonotonicTime now = clock_.Now();
  std::vector<SilentServer> silent;
  MutexLock lock(mu_);
  for (const auto& [server, peer] : peers_) {
    const auto is_silent_on = [&](const std::shared_ptr<ReplicationStream>& stream) {
      const std::optional<MonotonicTime> since = stream->FailingSince();
      return since.has_value() && now - *since >= duration;
    };
    // A learner counts before it has left the stream of the learners.
    const bool is_slow = std::any_of(peer.streams.begin(), peer.streams.end(),
                                     [&](const std::shared_ptr<ReplicationStream>& stream) {
                                       const std::optional<MonotonicTime> since =
                                           stream->SlowSince();
                                       return since.has_value() && now - *since >= kSlowTooLong;
                                     });
    const bool is_silent = std::any_of(peer.streams.begin(), peer.streams.end(), is_silent_on) ||
                           is_silent_on(peer.catch_up);
    const bool fails = peer.installs_fail_since.has_value() &&
                       now - *peer.installs_fail_since >= duration &&
                       now - peer.install_failed_at < kFailedInstallCounts;
    if (!is_silent && !is_slow && !fails) continue;
    SilentServer& entry = silent.emplace_back();
    entry.set_node(server.first);
    entry.set_incarnation(server.second);
  }
  return silent;
}

MonotonicTime Replicator::PromisedUntil(const std::string& node, uint64_t incarnation) const {
  MutexLock lock(mu_);
  const auto found = peers_.find(Server(node, incarnation));
  return found == peers_.end() ? MonotonicTime::min() : found->second.promised_until;
}

void Replicator::AddCaughtUp(Replica& replica, HeartbeatRequest& request) {
  // A replica that is busy is told of the next time.
  if (!replica.mu.TryLock()) return;
  if (replica.HasDataAsPrimary()) {
    const MonotonicDuration patience =
        request.has_disk_failure() ? kFailingLogReadTimeout : kLogReadTimeout;
    for (Follower& follower : replica.followers) {
      if (follower.reads_since.has_value() && clock_.Now() - *follower.reads_since >= patience) {
        spdlog::warn(
            "{} lacks the changes of partition {} from {} on, and the log does not answer: it gets "
            "a snapshot",
            follower.node, replica.index, follower.next);
        replica.NeedsSnapshot(follower);
      }
      if (follower.state == Follower::State::kNeedsSnapshot) WantSnapshot(replica.index);
      if (!follower.is_learner || !follower.HasCaughtUp() ||
          clock_.LeaseNow() < replica.serves_from)
        continue;
      CaughtUpReplica& entry = *request.add_caught_up();
      entry.set_partition(replica.index);
      entry.set_node(follower.node);
      entry.set_incarnation(follower.incarnation);
    }
  }
  replica.mu.Unlock();
}

void Replicator::Advance(Replica& replica, Follower& follower, uint64_t position) {
  follower.acked = std::max(follower.acked, position);
  if (!follower.counts) {
    follower.drain.Look(follower.stream->BytesOf(replica.index), clock_.Now());
    const uint64_t last = replica.partition->log_index();
    if (follower.acked < last && follower.stream->Bytes() > replica.limits.nearly_caught_up_bytes)
      return;
    // From here on nothing is acknowledged without it.
    follower.counts = true;
    follower.counts_after = last;
  }
  if (follower.on_catch_up_stream && follower.state == Follower::State::kStreaming) {
    follower.state = Follower::State::kChangingStreams;
    follower.counts_after = replica.partition->log_index();
  }
  if (follower.state != Follower::State::kChangingStreams || follower.acked < follower.counts_after)
    return;
  follower.state = Follower::State::kStreaming;
  follower.on_catch_up_stream = false;
  {
    MutexLock lock(mu_);
    if (const auto peer = peers_.find(Server(follower.node, follower.incarnation));
        peer != peers_.end()) {
      follower.stream = peer->second.streams[replica.index % kStreamsPerServer];
    }
  }
  AppendHeld(follower);
}

void Replicator::AppendToStream(Follower& follower, ReplicationStream::Entry entry) {
  follower.drain.OnAppended(entry.bytes.size());
  follower.stream->Append(std::move(entry));
}

void Replicator::AppendHeld(Follower& follower) {
  for (ReplicationStream::Entry& entry : follower.held) AppendToStream(follower, std::move(entry));
  follower.held.clear();
  follower.held_bytes = 0;
}

Follower* Replicator::Find(Replica& replica, const Attempt& attempt, Follower::State state) {
  Follower* const follower = replica.FindFollower(attempt.server.first, attempt.server.second);
  const bool is_present = replica.HasDataAsPrimary() && follower != nullptr &&
                          follower->attempt == attempt.number && follower->state == state;
  return is_present ? follower : nullptr;
}

void Replicator::Match(const std::shared_ptr<Replica>& replica, Follower& follower,
                       const ReplicaPosition& position, AfterAnswer& after) {
  if (position.follows_since() == 0 && position.log_index() > 0) {
    after.asks_later.push_back(WillAskLater(replica, follower));
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
        "{} is at change {} of partition {}, of which this server has those up to {}: it gets a "
        "snapshot",
        follower.node, last, replica->index, shared);
    return NeedsSnapshot(*replica, follower);
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
  going_back_.push_back({{replica, {follower.node, follower.incarnation}, follower.attempt},
                         follower.stream->address(),
                         std::move(request)});
}

Replicator::Attempt Replicator::WillAskLater(const std::shared_ptr<Replica>& replica,
                                             Follower& follower) {
  follower.state = Follower::State::kAsked;
  follower.attempt = ++attempts_;
  return {replica, {follower.node, follower.incarnation}, follower.attempt};
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
      return NeedsSnapshot(*replica, follower);
    } else {
      if (follower.stream->BytesOf(replica->index) > kCatchUpChunkBytes) return;
      follower.reads_since = clock_.Now();
      // The tail has the entries after these. A disk that fails writes none of them, and the log
      // waits for what it is asked.
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

void Replicator::BeginReads() {
  std::vector<Reading> readings;
  {
    MutexLock lock(mu_);
    if (!closed_) readings.swap(readings_);
  }
  for (Reading& reading : readings) {
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

void Replicator::OnEntriesRead(const Reading& reading,
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
    // Only what it lacked when it was asked counts: after a snapshot, entries are all that is left.
    const uint64_t lacking = follower->asked_at - std::min(follower->next - 1, follower->asked_at);
    const bool is_too_much = bytes >= kCatchUpChunkBytes / 2 && lacking > 0 &&
                             static_cast<double>(bytes) / static_cast<double>(entries->size()) *
                                     static_cast<double>(lacking) >
                                 static_cast<double>(replica->partition->parameter_bytes());
    if (bytes == 0 || is_too_much) {
      const std::string why = is_too_much     ? "which is smaller"
                              : !entries.ok() ? entries.status().ToString()
                              : entries->empty()
                                  ? "the log has none of them"
                                  : absl::StrCat("the log has ", entries->front().index, " first");
      spdlog::info("{} lacks the changes of partition {} from {} on: it gets a snapshot, {}",
                   follower->node, replica->index, follower->next, why);
      NeedsSnapshot(*replica, *follower);
    } else {
      CatchUp(replica, *follower);
    }
  }
  events_.advanced(replica);
  Pump();
}

bool Replicator::SendGoBack(WaitingGoBack waiting) {
  const Attempt& attempt = waiting.attempt;
  uint64_t bytes;
  {
    MutexLock lock(attempt.replica->mu);
    if (Find(*attempt.replica, attempt, Follower::State::kGoingBack) == nullptr) return false;
    bytes = attempt.replica->partition->parameter_bytes();
  }
  *waiting.request.mutable_header() = events_.header();
  // The follower reads that many bytes back.
  const MonotonicDuration timeout = kSnapshotPieceDeadline + TransferTime(bytes);
  transport_.Call(
      waiting.address, Method::kGoBack, EncodeSmall(waiting.request), timeout,
      [this, attempt, index = waiting.request.index()](absl::Status status, IncomingMessage) {
        OnWentBack(attempt, index, status);
      });
  return true;
}

void Replicator::OnWentBack(const Attempt& attempt, uint64_t index, const absl::Status& status) {
  const std::shared_ptr<Replica>& replica = attempt.replica;
  {
    MutexLock lock(mu_);
    --transfers_;
    if (const auto peer = peers_.find(attempt.server); peer != peers_.end())
      peer->second.goes_back = false;
    if (closed_) return;
  }
  std::optional<Attempt> asks_later;
  {
    MutexLock lock(replica->mu);
    if (Follower* const follower = Find(*replica, attempt, Follower::State::kGoingBack)) {
      if (status.ok()) {
        ++figures_.by_going_back;
        BeginCatchUp(replica, *follower, index);
      } else if (absl::IsNotFound(status)) {
        NeedsSnapshot(*replica, *follower);
      } else if (absl::IsUnavailable(status)) {
        asks_later = WillAskLater(replica, *follower);
      } else {
        ++follower->failed_go_backs;
        follower->state = Follower::State::kAsked;
        follower->stream->AskPosition(replica->index);
      }
    }
  }
  if (asks_later.has_value()) AskLater(*std::move(asks_later));
  if (!status.ok()) OnFailure(attempt.server, status);
  events_.advanced(replica);
  Pump();
}

void Replicator::OnAnswer(const Server& server, const ReplicateResponse& response,
                          const std::vector<uint32_t>& asked, MonotonicTime sent) {
  if (response.promise_ms() > 0) {
    MutexLock lock(mu_);
    const auto found = peers_.find(server);
    if (found != peers_.end()) {
      found->second.promised_until =
          std::max(found->second.promised_until,
                   sent + HeldFor(std::chrono::milliseconds(response.promise_ms())));
    }
  }
  AfterAnswer after;
  for (const ReplicaPosition& position : response.positions()) {
    TakePosition(server, position,
                 std::binary_search(asked.begin(), asked.end(), position.partition()), after);
  }
  if (after.is_of_backup) {
    const MonotonicTime now = clock_.Now();
    MutexLock lock(mu_);
    pace_.OnReplication(clock_.LeaseNow() - sent, now);
  }
  for (Attempt& attempt : after.asks_later) AskLater(std::move(attempt));
  if (after.changes_streams) PumpStreams();
  BeginReads();
  BeginTransfers();
}

void Replicator::TakePosition(const Server& server, const ReplicaPosition& position, bool was_asked,
                              AfterAnswer& after) {
  const std::shared_ptr<Replica> replica = events_.find(position.partition());
  if (replica == nullptr) return;
  {
    MutexLock lock(replica->mu);
    Follower* const follower = replica->FindFollower(server.first, server.second);
    if (!replica->HasDataAsPrimary() || follower == nullptr) return;
    switch (follower->state) {
      case Follower::State::kNeedsSnapshot:
      case Follower::State::kInstalling:
      case Follower::State::kGoingBack:
        return;
      case Follower::State::kAsked:
        // An answer to another request may be of a former term.
        if (!was_asked) return;
        Match(replica, *follower, position, after);
        break;
      case Follower::State::kCatchingUp:
      case Follower::State::kStreaming:
      case Follower::State::kChangingStreams:
        // A late answer, of a former term.
        if (position.follows_since() != 0 && position.follows_since() != replica->primary_since)
          return;
        if (position.log_index() < follower->acked) {
          // It has lost what it had: it is another replica than the one that acknowledged.
          spdlog::error("{} is at {} of partition {} after {}: it gets a snapshot", server.first,
                        position.log_index(), replica->index, follower->acked);
          replica->StartAnew(*follower);
          WantSnapshot(replica->index);
        } else if (follower->state == Follower::State::kCatchingUp) {
          follower->acked = position.log_index();
          follower->drain.Look(follower->stream->BytesOf(replica->index), clock_.Now());
          CatchUp(replica, *follower);
        } else {
          const bool was_on_catch_up_stream = follower->on_catch_up_stream;
          after.is_of_backup = after.is_of_backup || (follower->counts && !was_on_catch_up_stream);
          Advance(*replica, *follower, position.log_index());
          after.changes_streams =
              after.changes_streams || was_on_catch_up_stream != follower->on_catch_up_stream;
        }
    }
  }
  events_.advanced(replica);
}

void Replicator::OnFailure(const Server& server, const absl::Status& status) {
  if (const std::optional<RoutingTable> routing = AttachedRouting(status))
    return events_.routing(*routing);
  if (IsUnanswered(status)) return;
  {
    MutexLock lock(mu_);
    const auto peer = peers_.find(server);
    const MonotonicTime now = clock_.Now();
    if (peer == peers_.end() || now < peer->second.next_refusal_logged) return;
    peer->second.next_refusal_logged = now + kStreamRefusalLogInterval;
  }
  spdlog::warn("replication to {}: {}", server.first, status.ToString());
}

void Replicator::BeginTransfers() {
  for (;;) {
    std::optional<WaitingGoBack> goes_back;
    uint32_t partition = 0;
    {
      MutexLock lock(mu_);
      if (closed_ || transfers_ >= kMaxSnapshotsUnderWay) return;
      // First, since its partition may wait for it.
      goes_back = TakeGoBack();
      if (!goes_back.has_value()) {
        if (wanting_.empty()) return;
        partition = wanting_.front();
        wanting_.pop_front();
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
    const std::shared_ptr<Replica> replica = events_.find(partition);
    if (replica != nullptr && BeginInstall(replica)) continue;
    MutexLock lock(mu_);
    --transfers_;
  }
}

std::optional<Replicator::WaitingGoBack> Replicator::TakeGoBack() {
  for (auto it = going_back_.begin(); it != going_back_.end(); ++it) {
    const auto peer = peers_.find(it->attempt.server);
    if (peer != peers_.end() && std::exchange(peer->second.goes_back, true)) continue;
    WaitingGoBack taken = std::move(*it);
    going_back_.erase(it);
    return taken;
  }
  return std::nullopt;
}

bool Replicator::BeginInstall(const std::shared_ptr<Replica>& replica) {
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
      follower.attempt = ++attempts_;
      install->attempt = {replica, {follower.node, follower.incarnation}, follower.attempt};
      install->address = follower.stream->address();
      install->primary_since = replica->primary_since;
      install->snapshot = HoldSnapshot(*replica->partition);
      install->log_term = replica->partition->terms().TermOf(replica->partition->log_index());
      install->began = now;
      follower.state = Follower::State::kInstalling;
    }
  }
  if (more) WantSnapshot(replica->index);
  if (pause.has_value()) {
    transport_.After(*pause, [this, partition = replica->index] {
      WantSnapshot(partition);
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
  SendPiece(install);
  install->ReadAhead(options_.snapshot_piece_bytes);
}

void Replicator::SendPiece(const std::shared_ptr<Install>& install) {
  InstallSnapshotRequest request;
  *request.mutable_header() = events_.header();
  request.set_partition(install->attempt.replica->index);
  request.set_primary_since(install->primary_since);
  request.set_log_index(install->snapshot.log_index());
  request.set_log_term(install->log_term);
  request.set_offset(install->offset);
  request.set_data(install->piece);
  request.set_last(install->is_last);
  request.set_crc32c(install->crc);
  const MonotonicDuration timeout =
      kSnapshotPieceDeadline + (request.last() ? TransferTime(install->snapshot.approximate_bytes())
                                               : MonotonicDuration::zero());
  install->piece_sent = clock_.Now();
  transport_.Call(
      install->address, Method::kInstallSnapshot, EncodeSmall(request), timeout,
      [this, install](absl::Status status, IncomingMessage) { OnPiece(install, status); });
}

void Replicator::OnPiece(const std::shared_ptr<Install>& install, const absl::Status& status) {
  const MonotonicTime now = clock_.Now();
  if (!status.ok()) return OnPieceFailed(install, status);
  const size_t bytes = install->piece.size();
  {
    MutexLock lock(mu_);
    if (const auto peer = peers_.find(install->attempt.server); peer != peers_.end()) {
      peer->second.installs_fail_since.reset();
    }
    pace_.OnPiece(bytes, install->piece_sent, now);
    figures_.snapshot_bytes += bytes;
  }
  if (install->is_last) return EndInstall(install, status);
  // All of it will have arrived when the rest has taken as long as its share.
  const double sent = static_cast<double>(install->offset + bytes);
  const double rest =
      std::max(0.0, static_cast<double>(install->snapshot.approximate_bytes()) - sent);
  const auto left =
      std::chrono::duration_cast<MonotonicDuration>((now - install->began) * (rest / sent));
  // Then a follower with a log writes all of it down before it answers: for about as long, where
  // the disk is no faster.
  const auto written =
      install->attempt.replica->logs ? now - install->began + left : MonotonicDuration::zero();
  bool pushes_wait = false;
  if (!IsWanted(*install, now + left + written, /*fails=*/false, &pushes_wait)) {
    return EndInstall(install, absl::AbortedError("the follower needs no snapshot any more"));
  }
  MonotonicDuration pause = MonotonicDuration::zero();
  {
    MutexLock lock(mu_);
    if (is_limited_) {
      // While pushes wait for the snapshot, it does not make room for them.
      const double rate =
          pushes_wait ? static_cast<double>(options_.repair_bytes_per_s) : pace_.bytes_per_s();
      next_piece_ =
          std::max(next_piece_, now) +
          std::chrono::nanoseconds(static_cast<int64_t>(1e9 * static_cast<double>(bytes) / rate));
      pause = next_piece_ - now;
    }
  }
  if (pause < kLeastPause) return SendNextPiece(install);
  transport_.After(pause, [this, install, end = now + left] {
    // Its server may be gone meanwhile.
    if (!IsWanted(*install, end, /*fails=*/false)) {
      return EndInstall(install, absl::AbortedError("the follower needs no snapshot any more"));
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
      peer->second.install_failed_at = now;
      if (!peer->second.installs_fail_since.has_value())
        peer->second.installs_fail_since = install->piece_sent;
    }
  }
  // The last piece is answered only when the follower has written all of the snapshot down. From
  // then on it answers quickly: its tries count from the first answer.
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
        follower->install_from.reset();
        follower->asked_at = install->snapshot.log_index();
        BeginCatchUp(replica, *follower, install->snapshot.log_index());
      } else {
        replica->StartAnew(*follower);
      }
    }
    for (const Follower& other : replica->followers)
      again = again || other.state == Follower::State::kNeedsSnapshot;
  }
  if (!status.ok()) {
    OnFailure(install->attempt.server, status);
    spdlog::warn("snapshot of partition {} to {}: {}; sent again", replica->index,
                 install->attempt.server.first, status.ToString());
  }
  if (again) WantSnapshot(replica->index);
  events_.advanced(replica);
  Pump();
}

}  // namespace pawl
