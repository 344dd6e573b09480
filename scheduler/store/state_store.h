// The durable store of the scheduler's state, with leader election.
#ifndef PAWL_SCHEDULER_STORE_STATE_STORE_H_
#define PAWL_SCHEDULER_STORE_STATE_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"

namespace pawl {

// A whole state, and the number of the change that produced it.
struct StoredState {
  uint64_t revision = 0;
  std::string state;
};

// A state holds routing, membership and positions: some KiB for a usual job. The limit keeps a Save
// within a second.
inline constexpr size_t kMaxStateBytes = size_t{16} << 20;

// How long one call may block on disk or network before it fails.
inline constexpr std::chrono::seconds kMaxStoreCallTime{10};

// The newest state of one scheduler. It is durable, and one process at a time writes it.
//
//   while (!(status = store->Campaign(Now() + 1s)).ok()) {  // A standby waits here.
//     if (!absl::IsDeadlineExceeded(status) || stopping) return status;
//   }
//   PAWL_ASSIGN_OR_RETURN(std::optional<StoredState> newest, store->Load());
//   uint64_t revision = newest ? newest->revision : 0;
//   ...
//   PAWL_RETURN_IF_ERROR(store->Save(++revision, state));
//
// The state is opaque bytes and is saved whole. Load returns exactly the bytes of one Save.
//
// 1. After Save has returned OK, the state survives process death and power loss, and Load never
//    returns an older one.
// 2. At most one process is the leader. An overtaken leader cannot save, even if it does not know
//    that it was overtaken: the storage refuses it, without relying on clocks.
// 3. Revisions only grow, across all leaders. The first is at least 1.
// 4. A failed Save may have been executed. Repeat it with the same revision and the same state, or
//    save a newer revision. Nothing else changes the stored state.
//
// Calls may block on disk or network, each for at most kMaxStoreCallTime unless it takes a
// deadline. Never call them under a lock of the data path. One thread at a time may call Campaign,
// Load and Save. Any thread may call IsLeader, which does not block.
class StateStore {
 public:
  // Gives up the leadership, so that a standby need not wait for a lease to expire.
  virtual ~StateStore() = default;

  // Waits until this process is the leader. Returns OK at once if it is.
  //   DEADLINE_EXCEEDED: another process leads; the message names it. Call again. A standby with
  //     short deadlines is easy to stop.
  //   UNAVAILABLE, RESOURCE_EXHAUSTED, INTERNAL, NOT_FOUND: the storage cannot be reached, is full
  //     or has failed. Call again.
  //   Other errors: the storage is unusable; the message says why.
  // May be called again after the leadership is lost. Then Load must precede the next Save, too.
  virtual absl::Status Campaign(MonotonicTime deadline) = 0;

  // False as soon as another process may be the leader.
  virtual bool IsLeader() const = 0;

  // Sets a function that runs once for each leadership that is lost, with the reason, but not when
  // the store is destroyed. It runs on a thread of the store or within Save, and must not call the
  // store. REQUIRES: Campaign was not called yet.
  void SetLeadershipLostCallback(std::function<void(const absl::Status& why)> lost) {
    lost_ = std::move(lost);
  }

  // Returns the newest state; nullopt if none was ever saved.
  //   ABORTED: this process is not the leader.
  //   DATA_LOSS: the stored state is damaged; the message names the place. Nothing was changed.
  virtual absl::StatusOr<std::optional<StoredState>> Load() = 0;

  // Returns a recent state, for processes that are not the leader; nullopt if none was ever saved.
  // It may be outdated, so base no important decision on it. Any error: it cannot be read now, for
  // example while the leader writes.
  virtual absl::StatusOr<std::optional<StoredState>> Peek() = 0;

  // Stores `state` as the newest, durably.
  //   ABORTED: this process is not the leader (any more). It must stop deciding.
  //   FAILED_PRECONDITION: `revision` is not newer than the stored one, or Load was not called
  //     since Campaign. Saving the stored revision again with the same state is OK.
  //   INVALID_ARGUMENT: the state is larger than kMaxStateBytes.
  //   RESOURCE_EXHAUSTED, UNAVAILABLE: the storage is full, or cannot be reached or written. Try
  //     again later; the state may have been stored nevertheless.
  virtual absl::Status Save(uint64_t revision, absl::string_view state) = 0;

  // The name in messages: "file:DIR" or "etcd://...".
  virtual std::string Describe() const = 0;

 protected:
  // Checks that the revision is not 0 and the state is within the limit.
  static absl::Status CheckState(uint64_t revision, absl::string_view state);
  // The error for a revision that is not newer.
  static absl::Status NotNewer(absl::string_view store, uint64_t revision,
                               uint64_t stored_revision);

  // May be null.
  std::function<void(const absl::Status& why)> lost_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_STATE_STORE_H_
