// A follower of a partition: another replica, as the primary sees it.
#ifndef PAWL_SERVER_REPLICATION_FOLLOWER_H_
#define PAWL_SERVER_REPLICATION_FOLLOWER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "client_lib/base/clock.h"
#include "server/replication/backpressure.h"
#include "server/replication/replication_stream.h"

namespace pawl {

// The bound on the entries held for a follower while its snapshot travels, and on those in flight
// to a learner. Pushes to the partition are slowed before it is reached (backpressure.h), unless
// the follower makes no progress: then it gets another snapshot.
inline constexpr size_t kMaxLearnerBacklogBytes = size_t{256} << 20;
// For a large partition the bound is twice the size of its parameters instead, up to this, for each
// learner. The slabs that its snapshot still holds come on top.
inline constexpr size_t kMaxLargeLearnerBacklogBytes = size_t{1} << 30;
// The part of these that is held in memory for a follower that needs no snapshot when there is a
// log; the log has the others.
inline constexpr size_t kMaxHeldBytes = size_t{64} << 20;
// A learner has nearly caught up when its stream holds no more than this, the size of one request:
// a partition that is pushed to without a pause never has an empty stream.
inline constexpr size_t kNearlyCaughtUpBytes = kMaxStreamRequestBytes;

// The backlogs of so many learners, on one stream, may keep each other from having nearly caught
// up.
inline constexpr size_t kLearnersOfStream = 8;

// The simulation uses small limits, so that it reaches them.
struct LearnerLimits {
  size_t max_backlog_bytes = kMaxLearnerBacklogBytes;
  size_t max_large_backlog_bytes = kMaxLargeLearnerBacklogBytes;
  size_t nearly_caught_up_bytes = kNearlyCaughtUpBytes;
  double min_push_bytes_per_s = kMinPushBytesPerS;
};

// Part of Replica and guarded by its lock.
struct Follower {
  enum class State {
    // The primary has asked it for its position.
    kAsked,
    // It has entries that this primary lacks, and was sent a GoBack to the last shared one.
    kGoingBack,
    // It has nothing, or the entries that it lacks are gone: it needs a snapshot.
    kNeedsSnapshot,
    kInstalling,
    // It has everything up to `acked`. The entries before `next` are on the stream, the others in
    // the log or held.
    kCatchingUp,
    // It has everything up to `acked`, and all later entries are on the stream.
    kStreaming,
    // A synchronous learner. Its stream has the entries up to `synchronous_after`. Once these have
    // arrived it gets the later ones on another stream, where they do not queue behind what other
    // learners lack.
    kChangingStreams,
  };
  // A process in one incarnation.
  std::string node;
  uint64_t incarnation = 0;
  std::shared_ptr<ReplicationStream> stream;
  // Its stream carries entries of learners that lack more.
  bool on_catch_up_stream = false;
  State state = State::kNeedsSnapshot;
  // It is synchronous: nothing is acknowledged without it. It is a backup, or a learner that has
  // nearly caught up.
  bool is_synchronous = false;
  // For a synchronous learner: the last change before it became one. It has caught up once it has
  // this change.
  uint64_t synchronous_after = 0;
  // The routing still names it as a learner.
  bool is_learner = false;
  // The routing epoch since which it learns, or learned before it became a backup.
  uint64_t learner_since = 0;
  uint64_t acked = 0;
  // Snapshots since the last successful one that did not arrive or were not enough. The next one is
  // not sent before `install_from`, which is set when the follower's turn comes.
  uint32_t failed_installs = 0;
  std::optional<MonotonicTime> install_from;
  // Snapshots in a row that it refused, or that were too large for it while it was synchronous, and
  // when the last one was.
  uint32_t refused_installs = 0;
  MonotonicTime install_refused_at = MonotonicTime::min();
  // Its position when it was asked.
  uint64_t found_index = 0;
  uint32_t failed_go_backs = 0;
  // Since when its server answers that some replica is going back. The time in which a GoBack of
  // its own waits or is executed counts too. Cleared when a GoBack fails.
  std::optional<MonotonicTime> busy_since;
  // kAsked, kGoingBack, kCatchingUp: the primary's last change when the follower was asked, or the
  // last change of its snapshot.
  uint64_t asked_at = 0;
  // kCatchingUp: the first entry that is not on the stream, and since when it is being read, if it
  // is.
  uint64_t next = 0;
  std::optional<MonotonicTime> reads_since;
  // kGoingBack, kInstalling, kCatchingUp: the number of the attempt.
  uint64_t attempt = 0;
  // See Replica::UpdateSlowsPushes.
  bool slows_pushes = false;
  // kInstalling: when the whole snapshot will have arrived at its present rate, and whether the
  // last try of a piece failed.
  MonotonicTime install_end = MonotonicTime::max();
  bool install_fails = false;
  // How fast its snapshot travelled. Entries are expected to travel as fast, or at
  // kUnknownDrainBytesPerS, until that is measured.
  std::optional<double> snapshot_bytes_per_s;
  // kCatchingUp, and kStreaming for a learner that is not synchronous: how fast its stream drains.
  DrainRate drain;
  // kInstalling: the entries after the snapshot. kChangingStreams: those after `synchronous_after`.
  // kAsked, kGoingBack, kCatchingUp: those after `asked_at`. With a log the oldest ones may have
  // been dropped: the `unread_bytes` of entries from `unread_from` on are read from the log.
  std::deque<ReplicationStream::Entry> held;
  size_t held_bytes = 0;
  uint64_t unread_from = 0;
  size_t unread_bytes = 0;

  // Whether held entries may be read from the log later. Those after a snapshot that travels are
  // not: the transfer may take hours, and would keep the log of the whole server as long.
  bool DropsHeld() const {
    return state == State::kAsked || state == State::kGoingBack || state == State::kCatchingUp;
  }
  void NoteRefusedInstall(MonotonicTime now) {
    ++refused_installs;
    install_refused_at = now;
  }
  // It has everything that is acknowledged, now and from now on. REQUIRES: is_learner
  bool HasCaughtUp() const {
    return is_synchronous && state == State::kStreaming && acked >= synchronous_after;
  }
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_FOLLOWER_H_
