#include "server/replication/waiting_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/replication/pushback.h"

namespace pawl {

bool WaitingCalls::Keep(const std::shared_ptr<WaitingCall>& call) {
  absl::Status refused;
  {
    MutexLock lock(mu_);
    refused = closed_;
    if (refused.ok() && calls_.size() >= max_calls_) {
      refused = WithPushback(absl::ResourceExhaustedError(absl::StrCat(
          "more than ", max_calls_, " calls wait on this server; try again in a moment")));
    }
    if (refused.ok()) calls_.push_back(call);
  }
  if (refused.ok()) return true;
  call->Resume(std::move(refused));
  return false;
}

void WaitingCalls::ForStep(const std::vector<std::shared_ptr<Replica>>& replicas, uint64_t step,
                           CallContext context, Resume resume) {
  bool waits = false;
  for (const auto& replica : replicas) {
    MutexLock lock(replica->mu);
    // What has moved away is found by `resume` itself.
    waits = waits || (replica->HasDataAsPrimary() && !replica->partition->CanPull(step));
  }
  if (!waits) return resume(absl::OkStatus());
  const auto call = std::make_shared<WaitingCall>(std::move(context), std::move(resume));
  if (!Keep(call)) return;
  for (const auto& replica : replicas) {
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary() || replica->partition->CanPull(step)) continue;
    call->Add();
    replica->waiting_for_step.emplace(step, call);
  }
  if (call->Release()) call->Resume(absl::OkStatus());
}

void WaitingCalls::ForCommit(const std::vector<ChangeMark>& changes, CallContext context,
                             Resume resume) {
  bool waits = false;
  bool stale = false;
  for (const ChangeMark& change : changes) {
    MutexLock lock(change.replica->mu);
    if (!change.replica->HasDataAsPrimary() ||
        change.replica->primary_since != change.primary_since) {
      stale = true;
    } else {
      waits = waits || change.replica->CommitIndex() < change.index;
    }
  }
  if (stale)
    return resume(StaleRouting(*replica_map_.view(),
                               "the partition has moved before the change was everywhere"));
  if (!waits) return resume(absl::OkStatus());
  const auto call = std::make_shared<WaitingCall>(std::move(context), std::move(resume));
  if (!Keep(call)) return;
  for (const ChangeMark& change : changes) {
    MutexLock lock(change.replica->mu);
    if (!change.replica->HasDataAsPrimary() ||
        change.replica->primary_since != change.primary_since) {
      stale = true;
      break;
    }
    if (change.replica->CommitIndex() >= change.index) continue;
    call->Add();
    change.replica->waiting_for_commit.emplace(change.index, call);
  }
  if (stale) return TellStale({call});
  if (call->Release()) call->Resume(absl::OkStatus());
}

void WaitingCalls::ForDurable(const std::vector<ChangeMark>& changes, CallContext context,
                              Resume resume) {
  const auto call = std::make_shared<WaitingCall>(std::move(context), std::move(resume));
  bool kept = false;
  for (const ChangeMark& change : changes) {
    // What has been durable for long needs no place among those that wait.
    {
      MutexLock lock(change.replica->mu);
      if (change.replica->partition == nullptr || change.replica->CommitIndex() >= change.index)
        continue;
    }
    if (!kept && !Keep(call)) return;
    kept = true;
    MutexLock lock(change.replica->mu);
    if (change.replica->partition == nullptr || change.replica->CommitIndex() >= change.index)
      continue;
    call->Add();
    change.replica->waiting_for_commit.emplace(change.index, call);
  }
  if (call->Release()) call->Resume(absl::OkStatus());
}

void WaitingCalls::GoOn(const std::vector<std::shared_ptr<WaitingCall>>& ready) {
  for (const auto& call : ready) {
    if (call->Release()) call->Resume(absl::OkStatus());
  }
}

void WaitingCalls::TellStale(const std::vector<std::shared_ptr<WaitingCall>>& stale) const {
  // Each has a status of its own: ThreadSanitizer does not see how the system's Abseil counts
  // references.
  for (const auto& call : stale) {
    call->Resume(
        StaleRouting(*replica_map_.view(), "the partition has moved while the call waited"));
  }
}

void WaitingCalls::Expire() {
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
        "what the call waits for (the step, or the change on all replicas) was not there in time"));
  }
  if (!finished_left_.exchange(false)) return;
  const auto view = replica_map_.view();
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    // Whoever has it may have it for long.
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
