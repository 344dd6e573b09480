#include "server/replication/replica.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/base/attributes.h"

namespace pawl {
namespace {

// An entry that is held for a follower that is not synchronous must not keep the message that
// brought it, which may be far larger. Not inlined: gcc 12 would warn that parts of the moved
// InlinedVector are uninitialized.
ABSL_ATTRIBUTE_NOINLINE ReplicationStream::Entry CopyOf(const ReplicationStream::Entry& entry) {
  const auto memory = std::make_shared_for_overwrite<char[]>(entry.bytes.size());
  entry.bytes.CopyTo(memory.get());
  return {entry.partition, entry.index, ByteView(memory.get(), entry.bytes.size()), memory};
}

}  // namespace

uint64_t Replica::CommitIndex() const {
  if (unconfirmed_since != 0) return 0;
  if (role == ReplicaRole::kPrimary && min_in_sync > 1) {
    const auto is_synchronous = [](const Follower& follower) { return follower.is_synchronous; };
    if (1 + std::count_if(followers.begin(), followers.end(), is_synchronous) < min_in_sync)
      return 0;
  }
  uint64_t index = logs ? std::min(durable_index, partition->log_index()) : partition->log_index();
  for (const Follower& follower : followers) {
    if (follower.is_synchronous) index = std::min(index, follower.acked);
  }
  return index;
}

void Replica::SendToFollowers(const ReplicationStream::Entry& entry) {
  // One copy for all followers that are not synchronous, made when the first of them needs it.
  std::optional<ReplicationStream::Entry> copy;
  const auto entry_for = [&](const Follower& follower) -> const ReplicationStream::Entry& {
    // Its memory is counted among the bytes in flight.
    if (follower.is_synchronous) return entry;
    if (!copy.has_value()) copy = CopyOf(entry);
    return *copy;
  };
  for (Follower& follower : followers) {
    switch (follower.state) {
      case Follower::State::kNeedsSnapshot:
        continue;
      case Follower::State::kAsked:
      case Follower::State::kGoingBack:
      case Follower::State::kInstalling:
      case Follower::State::kCatchingUp:
      case Follower::State::kChangingStreams:
        follower.held.push_back(entry_for(follower));
        follower.held_bytes += entry.bytes.size();
        if (logs && follower.DropsHeld()) TrimHeld(follower);
        break;
      case Follower::State::kStreaming:
        follower.stream->Append(entry_for(follower));
        follower.drain.OnAppended(entry.bytes.size());
        break;
    }
    if (follower.is_synchronous) continue;
    if (UpdateSlowsPushes(follower)) brakes = true;
    if (BacklogOf(follower) > MaxLearnerBacklog() && !IsBraked(follower)) RestartSnapshot(follower);
  }
}

void Replica::TrimHeld(Follower& follower) {
  while (follower.held_bytes > kMaxHeldBytes) {
    const ReplicationStream::Entry& oldest = follower.held.front();
    if (follower.unread_bytes == 0) follower.unread_from = oldest.index;
    follower.unread_bytes += oldest.bytes.size();
    follower.held_bytes -= oldest.bytes.size();
    follower.held.pop_front();
  }
}

bool Replica::IsFollowerReadingLog() const {
  return std::any_of(followers.begin(), followers.end(), [](const Follower& follower) {
    return follower.state == Follower::State::kGoingBack ||
           follower.state == Follower::State::kCatchingUp;
  });
}

size_t Replica::MaxLearnerBacklog() const {
  const uint64_t bytes = partition == nullptr ? 0 : partition->parameter_bytes();
  return std::clamp<uint64_t>(2 * bytes, limits.max_backlog_bytes, limits.max_large_backlog_bytes);
}

size_t Replica::BacklogOf(const Follower& follower) const {
  const bool is_fed = follower.state == Follower::State::kStreaming ||
                      follower.state == Follower::State::kCatchingUp;
  return follower.held_bytes + follower.unread_bytes +
         (is_fed ? follower.stream->BytesOf(index) : 0);
}

// A follower that does not answer slows no push: it gets another snapshot when it answers again.
bool Replica::IsBraked(const Follower& follower) const {
  if (follower.is_synchronous) return false;
  if (follower.state == Follower::State::kInstalling) return !follower.install_fails;
  const bool is_fed = follower.state == Follower::State::kStreaming ||
                      follower.state == Follower::State::kCatchingUp;
  return is_fed && !follower.stream->FailingSince().has_value();
}

bool Replica::UpdateSlowsPushes(Follower& follower) const {
  const size_t backlog = BacklogOf(follower);
  if (static_cast<double>(backlog) > kUnbrakedShare * static_cast<double>(MaxLearnerBacklog())) {
    follower.slows_pushes = true;
  } else if (backlog <= limits.nearly_caught_up_bytes / kLearnersOfStream) {
    follower.slows_pushes = false;
  }
  return follower.slows_pushes;
}

std::optional<MonotonicDuration> Replica::ThrottlePush(size_t bytes, MonotonicTime now) {
  const size_t bound = MaxLearnerBacklog();
  std::optional<double> rate;
  for (Follower& follower : followers) {
    if (!IsBraked(follower) || !UpdateSlowsPushes(follower)) continue;
    const size_t backlog = BacklogOf(follower);
    if (backlog + bytes > bound) {
      pushes_waited_at = now;
      return std::nullopt;
    }
    const double its_rate =
        follower.state == Follower::State::kInstalling
            ? PushRateDuringInstall(backlog, bound, now, follower.install_end,
                                    limits.min_push_bytes_per_s)
            : PushRateDuringDrain(
                  follower.drain.bytes_per_s().value_or(
                      std::max(follower.snapshot_bytes_per_s.value_or(0), kUnknownDrainBytesPerS)),
                  limits.min_push_bytes_per_s);
    rate = std::min(rate.value_or(its_rate), its_rate);
  }
  if (!rate.has_value()) {
    brakes = false;
    return MonotonicDuration::zero();
  }
  const std::optional<MonotonicDuration> delay = brake.Take(bytes, *rate, now);
  if (!delay.has_value() || *delay > MonotonicDuration::zero()) pushes_waited_at = now;
  return delay;
}

void Replica::RequireSnapshot(Follower& follower) {
  follower.stream->Discard(index);
  follower.state = Follower::State::kNeedsSnapshot;
  follower.held.clear();
  follower.held_bytes = 0;
  follower.unread_bytes = 0;
  follower.reads_since.reset();
  follower.busy_since.reset();
  follower.attempt = 0;
  follower.install_end = MonotonicTime::max();
  follower.install_fails = false;
  follower.install_from.reset();
  follower.slows_pushes = false;
  follower.drain = DrainRate();
  follower.snapshot_bytes_per_s.reset();
}

void Replica::DropFollowers() {
  for (Follower& follower : followers) RequireSnapshot(follower);
  followers.clear();
  yields_until.reset();
}

void Replica::RestartSnapshot(Follower& follower) {
  RequireSnapshot(follower);
  ++follower.failed_installs;
}

Follower* Replica::FindFollower(const std::string& node, uint64_t incarnation) {
  for (Follower& follower : followers) {
    if (follower.node == node && follower.incarnation == incarnation) return &follower;
  }
  return nullptr;
}

ReplicaFigures Replica::Figures() {
  ReplicaFigures figures;
  if (partition != nullptr) figures.log_index = partition->log_index();
  if (role == ReplicaRole::kRetained && partition != nullptr) {
    figures.is_retained = true;
    figures.retained_bytes = partition->parameter_bytes();
    return figures;
  }
  // A backup's figures are reported by its primary.
  if (!HasDataAsPrimary()) return figures;
  figures.counters = partition->counters();
  figures.pushes_deduplicated = pushes_deduplicated;
  figures.staleness_max = staleness_max;
  figures.keys_pulled = keys_pulled;
  figures.rows = partition->row_count();
  figures.parameter_bytes = partition->parameter_bytes();
  figures.step = partition->CutStep();
  figures.is_primary = true;
  figures.pulls_beyond_bound = pulls_beyond_bound;
  figures.clock_staleness = clock_staleness;
  figures.update_staleness = update_staleness;
  return figures;
}

void Replica::TakeReady(std::vector<std::shared_ptr<WaitingCall>>& ready) {
  if (partition == nullptr) return;
  auto step = waiting_for_step.begin();
  while (step != waiting_for_step.end() && partition->CanPull(step->first))
    ready.push_back(std::move((step++)->second));
  waiting_for_step.erase(waiting_for_step.begin(), step);
  auto ended = waiting_for_ends.begin();
  while (ended != waiting_for_ends.end() && partition->HaveAllEnded(ended->first))
    ready.push_back(std::move((ended++)->second));
  waiting_for_ends.erase(waiting_for_ends.begin(), ended);
  for (auto own = waiting_for_own_step.begin(); own != waiting_for_own_step.end();) {
    const auto& [rank, own_step] = own->first;
    if (!partition->HasOwnSteps(rank, own_step)) {
      ++own;
      continue;
    }
    ready.push_back(std::move(own->second));
    own = waiting_for_own_step.erase(own);
  }
  if (waiting_for_commit.empty()) return;
  const auto committed = waiting_for_commit.upper_bound(CommitIndex());
  for (auto it = waiting_for_commit.begin(); it != committed; ++it)
    ready.push_back(std::move(it->second));
  waiting_for_commit.erase(waiting_for_commit.begin(), committed);
}

void Replica::TakeAll(std::vector<std::shared_ptr<WaitingCall>>& all) {
  for (auto& [step, call] : waiting_for_step) all.push_back(std::move(call));
  for (auto& [step, call] : waiting_for_ends) all.push_back(std::move(call));
  for (auto& [rank_and_step, call] : waiting_for_own_step) all.push_back(std::move(call));
  for (auto& [log_index, call] : waiting_for_commit) all.push_back(std::move(call));
  waiting_for_step.clear();
  waiting_for_ends.clear();
  waiting_for_own_step.clear();
  waiting_for_commit.clear();
}

void Replica::DropFinished() {
  const auto drop = [](auto& waiting) {
    for (auto it = waiting.begin(); it != waiting.end();)
      it = it->second->finished() ? waiting.erase(it) : std::next(it);
  };
  drop(waiting_for_step);
  drop(waiting_for_ends);
  drop(waiting_for_own_step);
  drop(waiting_for_commit);
}

void TakeCutIfDue(const std::shared_ptr<Replica>& replica) {
  if (replica->cut == nullptr || !replica->HasDataAsPrimary() ||
      replica->partition->CutStep() < replica->cut->step)
    return;
  std::exchange(replica->cut, nullptr)->take(replica);
}

}  // namespace pawl
