#include "server/replication/waiting_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/replication/backpressure.h"
#include "server/replication/replica.h"

namespace pawl {

bool WaitingCalls::Register(const std::shared_ptr<WaitingCall>& call) {
  absl::Status refused;
  {
    MutexLock lock(mu_);
    refused = closed_;
    if (refused.ok() && calls_.size() >= max_calls_) {
      refused = WithPushback(absl::ResourceExhaustedError(
          absl::StrCat("more than ", max_calls_, " calls wait on this server; retry in a moment")));
    }
    if (refused.ok()) calls_.push_back(call);
  }
  if (refused.ok()) return true;
  call->Resume(std::move(refused));
  return false;
}

void WaitingCalls::ForStep(const std::vector<std::shared_ptr<Replica>>& replicas,
                           std::optional<uint32_t> rank, uint64_t step, CallContext context,
                           absl::FunctionRef<absl::Status()> admit, Resume resume) {
  const auto lacks_own_step = [&](const Partition& partition) {
    return rank.has_value() && !partition.HasOwnSteps(*rank, step);
  };
  bool waits = false;
  for (const auto& replica : replicas) {
    MutexLock lock(replica->mu);
    // `resume` itself finds out that a partition has moved away.
    waits = waits || (replica->HasDataAsPrimary() &&
                      (!replica->partition->CanPull(step) || lacks_own_step(*replica->partition)));
  }
  if (!waits) return resume(absl::OkStatus());
  if (absl::Status admitted = admit(); !admitted.ok()) return resume(std::move(admitted));
  const auto call = std::make_shared<WaitingCall>(std::move(context), std::move(resume));
  if (!Register(call)) return;
  for (const auto& replica : replicas) {
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary()) continue;
    if (!replica->partition->CanPull(step)) {
      call->Add();
      replica->waiting_for_step.emplace(step, call);
    }
    if (lacks_own_step(*replica->partition)) {
      call->Add();
      replica->waiting_for_own_step.emplace(std::pair(*rank, step), call);
    }
  }
  if (call->Release()) call->Resume(absl::OkStatus());
}

void WaitingCalls::ForAllEnds(const std::vector<std::shared_ptr<Replica>>& replicas, uint64_t step,
                              CallContext context, Resume resume) {
  bool waits = false;
  for (const auto& replica : replicas) {
    MutexLock lock(replica->mu);
    // As for pulls.
    waits = waits || (replica->HasDataAsPrimary() && !replica->partition->HaveAllEnded(step));
  }
  if (!waits) return resume(absl::OkStatus());
  const auto call = std::make_shared<WaitingCall>(std::move(context), std::move(resume));
  if (!Register(call)) return;
  for (const auto& replica : replicas) {
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary() || replica->partition->HaveAllEnded(step)) continue;
    call->Add();
    replica->waiting_for_ends.emplace(step, call);
  }
  if (call->Release()) call->Resume(absl::OkStatus());
}

void WaitingCalls::ForCommit(const std::vector<ChangeMark>& changes, CallContext context,
                             Resume resume) {
  Await(changes, std::move(context), std::move(resume),
        [](const ChangeMark& change, Replica& replica) PAWL_REQUIRES(replica.mu) {
          if (!replica.HasDataAsPrimary() || replica.primary_since != change.primary_since)
            return Progress::kStale;
          return replica.CommitIndex() < change.index ? Progress::kPending : Progress::kDone;
        });
}

void WaitingCalls::ForDurable(const std::vector<ChangeMark>& changes, CallContext context,
                              Resume resume) {
  Await(changes, std::move(context), std::move(resume),
        [](const ChangeMark& change, Replica& replica) PAWL_REQUIRES(replica.mu) {
          const bool is_pending =
              replica.partition != nullptr && replica.CommitIndex() < change.index;
          return is_pending ? Progress::kPending : Progress::kDone;
        });
}

void WaitingCalls::Await(const std::vector<ChangeMark>& changes, CallContext context, Resume resume,
                         absl::FunctionRef<Progress(const ChangeMark&, Replica&)> look) {
  const auto call = std::make_shared<WaitingCall>(std::move(context), std::move(resume));
  bool registered = false;
  for (size_t i = 0; i < changes.size();) {
    const ChangeMark& change = changes[i];
    Replica& replica = *change.replica;
    Progress progress;
    {
      MutexLock lock(replica.mu);
      progress = look(change, replica);
      if (registered && progress == Progress::kPending) {
        call->Add();
        replica.waiting_for_commit.emplace(change.index, call);
      }
    }
    if (progress == Progress::kStale) {
      return call->Resume(
          stale_routing_("the partition moved before the change was on all replicas"));
    }
    if (progress == Progress::kPending && !registered) {
      // Only a call that has to wait takes a place among the waiting calls. Then look again.
      if (!Register(call)) return;
      registered = true;
      continue;
    }
    ++i;
  }
  if (call->Release()) call->Resume(absl::OkStatus());
}

void WaitingCalls::ResumeReady(const std::vector<std::shared_ptr<WaitingCall>>& ready) {
  for (const auto& call : ready) {
    if (call->Release()) call->Resume(absl::OkStatus());
  }
}

void WaitingCalls::FailStale(const std::vector<std::shared_ptr<WaitingCall>>& stale) const {
  // Each call gets its own status: ThreadSanitizer does not see how the system's Abseil counts
  // references.
  for (const auto& call : stale) {
    call->Resume(stale_routing_("the partition moved while the call waited"));
  }
}

void WaitingCalls::Expire(const std::vector<std::shared_ptr<Replica>>& replicas) {
  std::vector<std::shared_ptr<WaitingCall>> expired;
  const MonotonicTime now = clock_.Now();
  {
    MutexLock lock(mu_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      const CallContext& context = (*it)->context();
      if (!(*it)->finished() && now < context.deadline && !context.IsCancelled()) {
        ++it;
        continue;
      }
      if (!(*it)->finished()) expired.push_back(std::move(*it));
      it = calls_.erase(it);
    }
  }
  if (!expired.empty()) finished_left_ = true;
  for (const auto& call : expired) {
    call->Resume(absl::DeadlineExceededError(
        "the step, or the change on all replicas, that the call waits for did not come in time"));
  }
  if (!finished_left_.exchange(false)) return;
  for (const auto& replica : replicas) {
    if (replica == nullptr) continue;
    // Another thread may hold the lock for long.
    if (!replica->mu.TryLock()) {
      finished_left_ = true;
      continue;
    }
    replica->DropFinished();
    replica->mu.Unlock();
  }
}

void WaitingCalls::Close(const absl::Status& status) {
  std::list<std::shared_ptr<WaitingCall>> calls;
  {
    MutexLock lock(mu_);
    if (closed_.ok()) closed_ = status;
    calls.swap(calls_);
  }
  for (const auto& call : calls) call->Resume(status);
}

size_t WaitingCalls::Count() const {
  MutexLock lock(mu_);
  size_t count = 0;
  for (const auto& call : calls_) count += !call->finished();
  return count;
}

}  // namespace pawl
