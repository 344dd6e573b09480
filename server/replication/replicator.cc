#include "server/replication/replicator.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/btree_set.h"
#include "client_lib/rpc/lease.h"
#include "client_lib/rpc/retry.h"
#include "spdlog/spdlog.h"

namespace pawl {

Replicator::Replicator(const ReplicatorOptions& options, Transport& transport, const Clock& clock,
                       const EntryTail& tail, Owner& owner)
    : options_(options),
      transport_(transport),
      clock_(clock),
      tail_(tail),
      owner_(owner),
      pace_(static_cast<double>(options.repair_bytes_per_s)) {}

std::shared_ptr<ReplicationStream> Replicator::NewStream(const ServerAddress& address) {
  auto stream = std::make_shared<ReplicationStream>(
      transport_, clock_, address.address(), Server(address.node(), address.incarnation()), *this);
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
  // `since`: for a learner.
  const auto add = [&](uint32_t server, bool is_learner, uint64_t since) PAWL_REQUIRES(replica.mu) {
    const ServerAddress& address = routing.servers(static_cast<int>(server));
    Follower* const present = replica.FindFollower(address.node(), address.incarnation());
    Follower follower;
    // By routings that this server has not seen, the learner may have been dropped with its data
    // and added again.
    if (present != nullptr &&
        (!is_learner || (present->is_learner && present->learner_since == since))) {
      follower = std::move(*present);
    } else {
      if (present != nullptr) std::exchange(*present, {}).stream->Discard(replica.index);
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
      // Entries and questions queued for its earlier role are void.
      follower.stream->Discard(replica.index);
      if (is_new && !is_learner) {
        follower.state = Follower::State::kStreaming;
      } else if (replica.partition != nullptr) {
        follower.state = Follower::State::kAsked;
        follower.asked_at = replica.partition->log_index();
        follower.stream->AskPosition(replica.index);
      }
    }
    // A synchronous learner stays synchronous: the scheduler may be about to make it a backup.
    follower.is_synchronous = follower.is_synchronous || !is_learner;
    follower.is_learner = is_learner;
    needs_snapshot = needs_snapshot || follower.state == Follower::State::kNeedsSnapshot;
    followers.push_back(std::move(follower));
  };
  for (const uint32_t server : wanted.backups()) add(server, /*is_learner=*/false, 0);
  for (int i = 0; i < wanted.learners_size(); ++i) {
    add(wanted.learners(i), /*is_learner=*/true,
        i < wanted.learners_since_size() ? wanted.learners_since(i) : 0);
  }
  // The followers that continue have moved on, with their streams.
  for (const Follower& gone : replica.followers) {
    if (gone.stream != nullptr) gone.stream->Discard(replica.index);
  }
  replica.followers = std::move(followers);
  if (needs_snapshot) QueueSnapshot(replica.index);
}

void Replicator::PruneServers(const RoutingTable& routing) {
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
  // Another incarnation may use the address.
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
  go_back_queue_.clear();
  snapshot_queue_.clear();
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
  StartReads();
  StartTransfers();
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
  for (const auto& stream : streams) stream->Pump(/*even_if_empty=*/true);
}

std::vector<SilentServer> Replicator::SilentServers(MonotonicDuration duration) const {
  const MonotonicTime now = clock_.Now();
  std::vector<SilentServer> silent;
  MutexLock lock(mu_);
  for (const auto& [server, peer] : peers_) {
    const auto is_silent_on = [&](const std::shared_ptr<ReplicationStream>& stream) {
      const std::optional<MonotonicTime> since = stream->FailingSince();
      return since.has_value() && now - *since >= duration;
    };
    // A learner may be synchronous before it has left the catch-up stream.
    const bool is_slow = std::any_of(peer.streams.begin(), peer.streams.end(),
                                     [](const std::shared_ptr<ReplicationStream>& stream) {
                                       return stream->IsSlowFor(kMaxSlowTime);
                                     });
    const bool is_silent = std::any_of(peer.streams.begin(), peer.streams.end(), is_silent_on) ||
                           is_silent_on(peer.catch_up);
    const bool fails = peer.installs_fail_since.has_value() &&
                       now - *peer.installs_fail_since >= duration &&
                       now - peer.install_failed_at < kFailedInstallEvidenceTime;
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

void Replicator::ReportFollowers(Replica& replica, HeartbeatRequest& request) {
  // A busy replica is reported by the next heartbeat.
  if (!replica.mu.TryLock()) return;
  if (replica.HasDataAsPrimary()) {
    const MonotonicDuration patience =
        request.has_disk_failure() ? kFailingLogReadTimeout : kLogReadTimeout;
    for (Follower& follower : replica.followers) {
      if (follower.reads_since.has_value() && clock_.Now() - *follower.reads_since >= patience) {
        spdlog::warn(
            "{} lacks the changes of partition {} from {} on, and the log does not answer: it gets "
            "a "
            "snapshot",
            follower.node, replica.index, follower.next);
        replica.RequireSnapshot(follower);
      }
      if (follower.state == Follower::State::kNeedsSnapshot) QueueSnapshot(replica.index);
      // Only this replica: the server may acknowledge what other partitions need.
      if (follower.refused_installs >= kMaxRefusedInstalls &&
          clock_.Now() - follower.install_refused_at < kFailedInstallEvidenceTime) {
        SilentServer& entry = *request.add_silent();
        entry.set_node(follower.node);
        entry.set_incarnation(follower.incarnation);
        entry.set_partition(replica.index);
      }
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
  if (!follower.is_synchronous) {
    follower.drain.Sample(follower.stream->BytesOf(replica.index), clock_.Now());
    const uint64_t last = replica.partition->log_index();
    if (follower.acked < last && follower.stream->Bytes() > replica.limits.nearly_caught_up_bytes)
      return;
    // From here on nothing is acknowledged without it.
    follower.is_synchronous = true;
    follower.synchronous_after = last;
  }
  if (follower.on_catch_up_stream && follower.state == Follower::State::kStreaming) {
    follower.state = Follower::State::kChangingStreams;
    follower.synchronous_after = replica.partition->log_index();
  }
  if (follower.state != Follower::State::kChangingStreams ||
      follower.acked < follower.synchronous_after)
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
  for (Attempt& attempt : after.ask_later) AskLater(std::move(attempt));
  if (after.changes_streams) PumpStreams();
  StartReads();
  StartTransfers();
}

void Replicator::TakePosition(const Server& server, const ReplicaPosition& position, bool was_asked,
                              AfterAnswer& after) {
  const std::shared_ptr<Replica> replica = owner_.FindReplica(position.partition());
  if (replica == nullptr) return;
  {
    MutexLock lock(replica->mu);
    Follower* const follower = replica->FindFollower(server.first, server.second);
    if (!replica->HasFollowersToServe() || follower == nullptr) return;
    switch (follower->state) {
      case Follower::State::kNeedsSnapshot:
      case Follower::State::kInstalling:
      case Follower::State::kGoingBack:
        return;
      case Follower::State::kAsked:
        // The answer to another request may be of an earlier term.
        if (!was_asked) return;
        ChooseCatchUp(replica, *follower, position, after);
        break;
      case Follower::State::kCatchingUp:
      case Follower::State::kStreaming:
      case Follower::State::kChangingStreams:
        // A late answer of an earlier term.
        if (position.follows_since() != 0 && position.follows_since() != replica->primary_since)
          return;
        if (position.has_diverged() || position.log_index() < follower->acked) {
          // It has other data, or has lost some: it is not the replica that acknowledged.
          spdlog::error("{} is at {} of partition {}{}, but was at {}: it gets a snapshot",
                        server.first, position.log_index(), replica->index,
                        position.has_diverged() ? " with other data" : "", follower->acked);
          replica->RestartSnapshot(*follower);
          QueueSnapshot(replica->index);
        } else if (follower->state == Follower::State::kCatchingUp) {
          follower->acked = position.log_index();
          follower->drain.Sample(follower->stream->BytesOf(replica->index), clock_.Now());
          CatchUp(replica, *follower);
        } else {
          const bool was_on_catch_up_stream = follower->on_catch_up_stream;
          after.is_of_backup =
              after.is_of_backup || (follower->is_synchronous && !was_on_catch_up_stream);
          Advance(*replica, *follower, position.log_index());
          after.changes_streams =
              after.changes_streams || was_on_catch_up_stream != follower->on_catch_up_stream;
        }
    }
  }
  owner_.OnAdvanced(replica);
}

void Replicator::OnFailure(const Server& server, const absl::Status& status) {
  if (const std::optional<RoutingTable> routing = AttachedRouting(status))
    return owner_.AdoptRouting(*routing);
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

}  // namespace pawl
