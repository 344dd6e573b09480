#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/storage/server_log.h"

namespace pawl {
namespace {

// The longest uninterrupted wait for reads; each one wakes the thread.
constexpr std::chrono::seconds kReadInterval{60};
// How long a segment stays in memory for the next read.
constexpr std::chrono::seconds kSegmentRetained{10};

}  // namespace

LogHistory ServerLog::History() const {
  return LogHistory(*snapshots_, JoinPath(options_.data_folder, kLogFolder), log_->Segments());
}

absl::StatusOr<std::unique_ptr<Partition>> ServerLog::ReadBack(uint32_t partition, uint64_t index) {
  const auto deadline = FromNow(options_.disk_timeout);
  std::optional<LogHistory> history;
  {
    MutexLock lock(mu_);
    states_[partition].retained_until = std::chrono::steady_clock::time_point::max();
    const auto is_busy = [&]() PAWL_REQUIRES(mu_) {
      const PartitionState& state = states_[partition];
      return state.resets_queued > 0 || state.durable < std::min(index, state.last) ||
             compacting_ == partition;
    };
    while (log_ != nullptr && !stopping_ && is_busy() && progress_.WaitUntil(mu_, deadline)) {
    }
    PartitionState& state = states_[partition];
    absl::Status status;
    if (log_ == nullptr || stopping_ || is_busy()) {
      status = absl::UnavailableError(absl::StrCat("the log of partition ", partition, " is busy"));
    } else if (state.last < index || log_->Released(partition) > index) {
      status = absl::NotFoundError(
          absl::StrCat("the log of partition ", partition, " does not reach change ", index));
    }
    if (!status.ok()) {
      state.retained_until.reset();
      return status;
    }
    history.emplace(History());
  }
  absl::StatusOr<std::unique_ptr<Partition>> read =
      history->ReadBack(partition, index, partition_options_, [this] { return !IsStopping(); });
  if (absl::IsCancelled(read.status())) read = absl::UnavailableError("the log is being closed");
  MutexLock lock(mu_);
  PartitionState& state = states_[partition];
  if (read.ok() && state.retained_until.has_value()) {
    state.retained_until = FromNow(options_.retained_after_read_back);
  } else {
    state.retained_until.reset();
  }
  return read;
}

void ServerLog::ReadBackAsync(uint32_t partition, uint64_t index, ReadBackDone done) {
  read_backs_.Add([this, partition, index, done = std::move(done)]() mutable {
    done(ReadBack(partition, index));
  });
}

absl::Status ServerLog::Truncate(uint32_t partition, uint64_t index) {
  MutexLock lock(mu_);
  if (log_ == nullptr) return absl::UnavailableError("the log is not open");
  // Hold clears it when the time has passed: from then on the files that the log would continue
  // from may be deleted.
  if (!states_[partition].retained_until.has_value()) {
    return absl::AbortedError(
        absl::StrCat("partition ", partition, " was read back to ", index, " too long ago"));
  }
  NoteReset(partition, index);
  log_->AppendReset(partition, {index, std::nullopt});
  return absl::OkStatus();
}

void ServerLog::ForgetReadBack(uint32_t partition) {
  MutexLock lock(mu_);
  states_[partition].retained_until.reset();
}

void ServerLog::ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                            EntriesRead done) {
  {
    MutexLock lock(mu_);
    if (log_ != nullptr && !stopping_) {
      reads_.push_back({{partition, first, last, max_bytes},
                        std::move(done),
                        states_[partition].resets,
                        FromNow(options_.disk_timeout)});
      read_work_.NotifyAll();
      return;
    }
  }
  done(absl::AbortedError("the log has stopped"));
}

std::vector<ServerLog::Read> ServerLog::TakeReads() {
  std::vector<Read> taken;
  std::deque<Read> waiting;
  const auto now = std::chrono::steady_clock::now();
  for (Read& read : reads_) {
    const PartitionState& state = states_[read.wanted.partition];
    if (stopping_ || state.resets != read.resets) {
      read.wanted.Fail(absl::AbortedError("the log was reset or has stopped"));
    } else if (state.last < read.wanted.last) {
      read.wanted.Fail(absl::NotFoundError(absl::StrCat("the log ends at ", state.last)));
    } else if (DurableIndexLocked(read.wanted.partition) < read.wanted.last &&
               now >= read.deadline) {
      read.wanted.Fail(absl::UnavailableError(absl::StrCat(
          "change ", read.wanted.last, " is not written yet: ", log_->status().message())));
    } else if (DurableIndexLocked(read.wanted.partition) < read.wanted.last) {
      waiting.push_back(std::move(read));
      continue;
    }
    taken.push_back(std::move(read));
  }
  reads_.swap(waiting);
  return taken;
}

void ServerLog::RunReads() {
  // The next request starts in the segment where the last one ended.
  std::optional<LogSegment> segment;
  while (true) {
    std::vector<Read> reads;
    std::optional<LogHistory> history;
    {
      MutexLock lock(mu_);
      while ((reads = TakeReads()).empty()) {
        if (stopping_) return;
        auto until =
            FromNow(segment.has_value() ? std::chrono::seconds(kSegmentRetained) : kReadInterval);
        for (const Read& read : reads_) until = std::min(until, read.deadline);
        if (!read_work_.WaitUntil(mu_, until)) segment.reset();
      }
      history.emplace(History());
    }
    std::vector<WantedEntries> wanted;
    for (Read& read : reads) wanted.push_back(std::move(read.wanted));
    history->ReadEntries(absl::MakeSpan(wanted), segment);
    for (size_t i = 0; i < reads.size(); ++i) {
      {
        MutexLock lock(mu_);
        if (states_[wanted[i].partition].resets != reads[i].resets)
          wanted[i].Fail(absl::AbortedError("the log was reset"));
      }
      if (wanted[i].status.ok()) {
        reads[i].done(std::move(wanted[i].entries));
      } else {
        reads[i].done(wanted[i].status);
      }
    }
  }
}

}  // namespace pawl
