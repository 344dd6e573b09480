#include "server/replication/replication_stream.h"

#include <algorithm>
#include <utility>

#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/transport.h"
#include "server/replication/log_entry.h"

namespace pawl {
void ReplicationStream::Append(Entry entry) {
  MutexLock lock(mu_);
  if (closed_) return;
  bytes_[entry.partition] += entry.bytes.size();
  all_bytes_ += entry.bytes.size();
  queue_.push_back(std::move(entry));
}

void ReplicationStream::AskPosition(uint32_t partition) {
  MutexLock lock(mu_);
  if (!closed_) asks_.insert(partition);
}

void ReplicationStream::Discard(uint32_t partition) {
  MutexLock lock(mu_);
  asks_.erase(partition);
  asked_.erase(partition);
  const auto bytes = bytes_.find(partition);
  if (bytes == bytes_.end()) return;
  all_bytes_ -= bytes->second;
  bytes_.erase(bytes);
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (it->partition != partition) {
      ++it;
      continue;
    }
    if (static_cast<size_t>(it - queue_.begin()) < sent_) --sent_;
    it = queue_.erase(it);
  }
}

size_t ReplicationStream::BytesOf(uint32_t partition) const {
  MutexLock lock(mu_);
  const auto found = bytes_.find(partition);
  return found == bytes_.end() ? 0 : found->second;
}

size_t ReplicationStream::Bytes() const {
  MutexLock lock(mu_);
  return all_bytes_;
}

void ReplicationStream::Pump(bool even_if_empty) {
  {
    MutexLock lock(mu_);
    if (closed_ || in_flight_ || (!even_if_empty && queue_.empty() && asks_.empty())) return;
  }
  // Read before the entries are taken, so that no entry is sent under an epoch in which it would be
  // of another history.
  const ReplicationHeader header = owner_.Header();
  std::vector<Entry> entries;
  std::vector<uint32_t> asks;
  {
    MutexLock lock(mu_);
    if (closed_ || in_flight_ || (!even_if_empty && queue_.empty() && asks_.empty())) return;
    size_t bytes = 0;
    for (const Entry& entry : queue_) {
      if (entries.size() == kMaxEntriesInRequest) break;
      if (!entries.empty() && bytes + entry.bytes.size() > kMaxStreamRequestBytes) break;
      bytes += entry.bytes.size();
      entries.push_back(entry);
    }
    sent_ = entries.size();
    while (!asks_.empty() && asked_.size() < kMaxAsksInRequest)
      asked_.insert(asks_.extract(asks_.begin()));
    asks.assign(asked_.begin(), asked_.end());
    in_flight_ = true;
  }
  Send(header, std::move(entries), std::move(asks));
}

void ReplicationStream::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  queue_.clear();
  bytes_.clear();
  all_bytes_ = 0;
  asks_.clear();
  asked_.clear();
  sent_ = 0;
}

std::optional<MonotonicTime> ReplicationStream::FailingSince() const {
  MutexLock lock(mu_);
  const bool wanted = !queue_.empty() || !asks_.empty() || !asked_.empty();
  return wanted && failed_tries_ >= kMinFailedTries ? first_try_ : std::nullopt;
}

bool ReplicationStream::IsSlowFor(MonotonicDuration duration) const {
  MutexLock lock(mu_);
  if (queue_.empty() || !slow_since_.has_value()) return false;
  const MonotonicTime now = clock_.Now();
  // A request that was sent just now proves nothing, however long the stream was idle before.
  const bool waits = first_try_.has_value() && now - *first_try_ >= kSlowAnswerTime;
  return (waits ? now : answered_at_) - *slow_since_ >= duration;
}

void ReplicationStream::Send(const ReplicationHeader& header, std::vector<Entry> entries,
                             std::vector<uint32_t> asks) {
  std::vector<ByteView> views;
  views.reserve(entries.size());
  size_t bytes = 0;
  for (const Entry& entry : entries) {
    views.push_back(entry.bytes);
    bytes += entry.bytes.size();
  }
  auto owner = std::make_shared<std::vector<Entry>>(std::move(entries));
  const MonotonicDuration timeout = kStreamDeadline + TransferTime(bytes);
  // LeaseNow, because the answer may bring a promise.
  const MonotonicTime sent = clock_.LeaseNow();
  {
    MutexLock lock(mu_);
    if (!first_try_.has_value()) {
      first_try_ = clock_.Now();
      // The stream was idle, and may have stopped being slow long ago.
      if (slow_since_.has_value() && *first_try_ - answered_at_ >= kMaxSlowTime)
        slow_since_.reset();
    }
  }
  transport_.Call(address_, Method::kReplicate,
                  EncodeReplicateRequest(header, views, asks, std::move(owner)), timeout,
                  [self = shared_from_this(), sent](absl::Status status, IncomingMessage answer) {
                    self->OnAnswer(sent, std::move(status), std::move(answer));
                  });
}

void ReplicationStream::OnAnswer(MonotonicTime sent, absl::Status status, IncomingMessage answer) {
  ReplicateResponse response;
  std::vector<uint32_t> asked;
  MonotonicDuration pause = kStreamRetryInterval;
  if (status.ok()) status = DecodeSmall(answer.bytes, response);
  {
    MutexLock lock(mu_);
    if (closed_) {
      in_flight_ = false;
      return;
    }
    if (status.ok()) {
      for (; sent_ > 0; --sent_) {
        const auto bytes = bytes_.find(queue_.front().partition);
        bytes->second -= queue_.front().bytes.size();
        all_bytes_ -= queue_.front().bytes.size();
        if (bytes->second == 0) bytes_.erase(bytes);
        queue_.pop_front();
      }
      asked.assign(asked_.begin(), asked_.end());
      asked_.clear();
      const bool is_slow = first_try_.has_value() && clock_.Now() - *first_try_ >= kSlowAnswerTime;
      if (!is_slow) slow_since_.reset();
      if (is_slow && !slow_since_.has_value()) slow_since_ = first_try_;
      first_try_.reset();
      answered_at_ = clock_.Now();
      failed_tries_ = 0;
      refusals_ = 0;
    } else {
      ++failed_tries_;
      refusals_ = IsUnanswered(status) ? 0 : refusals_ + 1;
      pause = GrowingPause(refusals_, kStreamRetryInterval, kMaxStreamRetryInterval);
    }
  }
  if (status.ok()) {
    // Before the next request is sent, so that answers are handled in order.
    owner_.OnAnswer(receiver_, response, asked, sent);
    {
      MutexLock lock(mu_);
      in_flight_ = false;
    }
    return Pump();
  }
  owner_.OnFailure(receiver_, status);
  // The request counts as in flight during the pause, so that no other one is sent.
  transport_.After(pause, [self = shared_from_this()] {
    {
      MutexLock lock(self->mu_);
      self->sent_ = 0;
      self->asks_.merge(self->asked_);
      self->asked_.clear();
      self->in_flight_ = false;
      if (self->queue_.empty() && self->asks_.empty()) {
        // No caller waits for an answer any more.
        self->first_try_.reset();
        self->failed_tries_ = 0;
        self->refusals_ = 0;
      }
    }
    self->Pump();
  });
}

}  // namespace pawl
