// Another replica of a partition, as its primary sees it.
#ifndef PAWL_SERVER_REPLICATION_FOLLOWER_H_
#define PAWL_SERVER_REPLICATION_FOLLOWER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "client_lib/base/clock.h"
#include "server/replication/push_brake.h"
#include "server/replication/replication_stream.h"

namespace pawl {

// Entries that are kept for a follower while its snapshot is on the way, and those on the way to a
// learner. Pushes to the partition are slowed before they reach it (push_brake.h), unless the
// follower does not move: then it gets another snapshot.
inline constexpr size_t kMaxLearnerBacklogBytes = size_t{256} << 20;
// Of a large partition it is the size of its parameters instead, up to this. The slabs that a
// snapshot holds are given back while it travels and the backlog grows, so both together take no
// more than the partition.
inline constexpr size_t kMaxLargeLearnerBacklogBytes = size_t{1} << 30;
// Of these in memory, where there is a log; the log has the others.
inline constexpr size_t kMaxHeldBytes = size_t{64} << 20;
// With so little on its stream, what one request carries, a learner has nearly caught up: a
// partition that is pushed to without a pause has no moment with nothing on the way.
inline constexpr size_t kNearlyCaughtUpBytes = kMaxStreamRequestBytes;

// The simulation makes them small, so that they are reached.
struct LearnerLimits {
  size_t max_backlog_bytes = kMaxLearnerBacklogBytes;
  size_t max_large_backlog_bytes = kMaxLargeLearnerBacklogBytes;
  size_t nearly_caught_up_bytes = kNearlyCaughtUpBytes;
  double least_push_bytes_per_s = kLeastPushBytesPerS;
};

// A part of Replica, and guarded by its lock.
struct Follower {
  enum class State {
    // It has been asked what it has.
    kAsked,
    // It has entries that this primary has not, and has been told to go back to the last one that
    // both have.
    kGoingBack,
    // It has nothing, or the entries that it lacks are not known any more: it needs a snapshot.
    kNeedsSnapshot,
    kInstalling,
    // It has everything up to `acked`, the entries before `next` are on the stream, and the others
    // in the log or held.
    kCatchingUp,
    // It has everything up to `acked`, and all later entries are on the stream.
    kStreaming,
    // A learner that counts: its stream has the entries up to `counts_after`, and when these have
    // arrived it gets the later
    // ones on another, where they are not behind what other learners lack.
    kChangingStreams,
  };
  // A process in one incarnation.
  std::string node;
  uint64_t incarnation = 0;
  std::shared_ptr<ReplicationStream> stream;
  // It shares its stream with learners that lack more.
  bool on_catch_up_stream = false;
  State state = State::kNeedsSnapshot;
  // Nothing is acknowledged that it does not have: a backup, or a learner that has nearly caught
  // up.
  bool counts = false;
  // Of a learner that counts: the last change before it did. Once it has this too, it has caught
  // up.
  uint64_t counts_after = 0;
  // By the routing: still a learner.
  bool is_learner = false;
  // By the routing: since which epoch it learns, or learned before it became a backup.
  uint64_t learner_since = 0;
  uint64_t acked = 0;
  // Snapshots that did not arrive, or were not enough, since the last one that was; the next is not
  // sent before `install_from`, which is set when it is looked at.
  uint32_t failed_installs = 0;
  std::optional<MonotonicTime> install_from;
  // Where it was when it was asked.
  uint64_t found_index = 0;
  uint32_t failed_go_backs = 0;
  // kAsked, kGoingBack, kCatchingUp: the last change when it was asked, or that of its snapshot.
  uint64_t asked_at = 0;
  // kCatchingUp: the first entry that is not on the stream, and if it is being read, since when.
  uint64_t next = 0;
  std::optional<MonotonicTime> reads_since;
  // kGoingBack, kInstalling, kCatchingUp: which attempt.
  uint64_t attempt = 0;
  // kInstalling: when all of the snapshot will have arrived, by its rate so far; and whether the
  // last try of a piece has failed.
  MonotonicTime install_end = MonotonicTime::max();
  bool install_fails = false;
  // kCatchingUp, and kStreaming of a learner that does not count: how fast what is on its stream
  // goes.
  DrainRate drain;
  // kInstalling: the entries behind the snapshot. kChangingStreams: those after `counts_after`.
  // kAsked, kGoingBack, kCatchingUp: those after `asked_at`. With a log the oldest may have been
  // given up, which is read from there: those from `unread_from` on, of `unread_bytes`.
  std::deque<ReplicationStream::Entry> held;
  size_t held_bytes = 0;
  uint64_t unread_from = 0;
  size_t unread_bytes = 0;

  // Everything that has been acknowledged is here, and will be. REQUIRES: is_learner
  bool HasCaughtUp() const { return counts && state == State::kStreaming && acked >= counts_after; }
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_FOLLOWER_H_
