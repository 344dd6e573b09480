// Where the scheduler keeps its own state, and who may write it.
#ifndef PAWL_SCHEDULER_STORE_STATE_STORE_H_
#define PAWL_SCHEDULER_STORE_STATE_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"

namespace pawl {

// One whole state, and the number of the change that made it.
struct StoredState {
  uint64_t revision = 0;
  std::string state;
};

// A state is routing, membership and positions: KiB for a usual job. The limit keeps one Save
// within a second.
inline constexpr size_t kMaxStateBytes = size_t{16} << 20;

// How long one call may block on disk or network before it fails.
inline constexpr std::chrono::seconds kMaxStoreCallTime{10};

// The newest state of one scheduler, durable, and written by one process at a time.
//
//   while (!(status = store->Campaign(Now() + 1s)).ok()) {    // a standby waits here
//     if (!absl::IsDeadlineExceeded(status) || stopping) return status;
//   }
//   PAWL_ASSIGN_OR_RETURN(std::optional<StoredState> newest, store->Load());
//   uint64_t revision = newest ? newest->revision : 0;
//   ...
//   PAWL_RETURN_IF_ERROR(store->Save(++revision, state));
//
// The state is opaque bytes and is saved whole: what is loaded is always exactly what one Save was
// given.
//
// 1. When Save has returned OK the state survives the loss of the process and of power; Load never
//    returns an older one.
// 2. At most one process is leader. One that was overtaken can save nothing, whatever it believes
// of
//    itself: the storage refuses it, not a clock.
// 3. Revisions only grow, over all leaders; the first is 1 or more.
// 4. A failed Save may have happened or not, as a lost reply leaves it. Repeat it with the same
// revision
//    and the same state, or save a newer revision. Nothing else changes what is stored.
//
// All calls may block on disk or network, each for at most kMaxStoreCallTime unless it takes a
// deadline: never make them under a lock of the data path. Campaign, Load and Save are for one
// thread at a time; IsLeader is for any thread and does not block.
class StateStore {
 public:
  // Gives the leadership up, so that a standby need not wait for a lease to run out.
  virtual ~StateStore() = default;

  // Waits until this process is the leader; OK at once if it is.
  //   DEADLINE_EXCEEDED: another one is, named in the message; call again. Short deadlines make a
  //     waiting standby easy to stop.
  //   UNAVAILABLE: the storage cannot be reached; call again.
  //   anything else: the place cannot be used as it is; the message says why.
  // After a loss it may be called anew; Load comes before the next Save then too.
  virtual absl::Status Campaign(MonotonicTime deadline) = 0;

  // False from the moment that the leadership may have passed to another process.
  virtual bool IsLeader() const = 0;

  // `lost` runs once for each leadership that is lost against our will (not when the store is
  // destroyed), with the reason, on a thread of the store or within Save; it must not call the
  // store. REQUIRES: Campaign was not called yet.
  virtual void WhenLeadershipLost(std::function<void(const absl::Status& why)> lost) = 0;

  // The newest state; none if nothing was ever saved.
  //   ABORTED: this process is not the leader.
  //   DATA_LOSS: what is stored is damaged; the message names the place. Nothing was changed.
  virtual absl::StatusOr<std::optional<StoredState>> Load() = 0;

  // The newest state as it was a moment ago, for who is not the leader; none if nothing was ever
  // saved. Nothing is changed, and nothing may be decided by it that matters. Any error: it cannot
  // be read now, as while the leader writes.
  virtual absl::StatusOr<std::optional<StoredState>> Peek() = 0;

  // Stores `state` as the newest, durably.
  //   ABORTED: this process is not, or no longer, the leader: it must stop deciding.
  //   FAILED_PRECONDITION: `revision` is not newer than the stored one, or Load was not called
  //   since Campaign.
  //     The stored revision with the very same state is OK: it is a repetition.
  //   INVALID_ARGUMENT: the state is larger than kMaxStateBytes.
  //   RESOURCE_EXHAUSTED, UNAVAILABLE: the storage is full or cannot be reached or written now; try
  //   again later.
  virtual absl::Status Save(uint64_t revision, absl::string_view state) = 0;

  // What messages call it: "file:DIR" or "etcd://...".
  virtual std::string Describe() const = 0;

 protected:
  // Whether any store takes these: the revision is not 0, the state within the limit.
  static absl::Status CheckState(uint64_t revision, absl::string_view state);
  // The refusal of a revision that is not newer.
  static absl::Status NotNewer(absl::string_view store, uint64_t revision,
                               uint64_t stored_revision);
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_STATE_STORE_H_
