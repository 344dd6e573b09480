// Barriers: parties that wait for each other.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_BARRIERS_H_
#define PAWL_SCHEDULER_MEMBERSHIP_BARRIERS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/scheduler_state.pb.h"

namespace pawl {

// Barriers that wait for parties.
inline constexpr size_t kMaxOpenBarriers = 256;
// Barriers that are over and still known, for parties whose answer was lost; the oldest are
// forgotten.
inline constexpr size_t kMaxClosedBarriers = 4096;
inline constexpr size_t kMaxBarrierNameBytes = 128;
// All ranks of a job.
inline constexpr uint32_t kMaxBarrierParties = 16384;

// Knows who has arrived where. Counts parties, not messages: a party that asks again counts once,
// and one that died is known by name. Not thread-safe.
class Barriers {
 public:
  enum class Outcome { kWaiting, kComplete };

  // `node` arrives as `party`. kComplete: all are there; everybody who waits is to be answered.
  // INVALID_ARGUMENT for impossible numbers or ones that differ from the others',
  // RESOURCE_EXHAUSTED beyond the limit, ABORTED if the barrier has failed.
  absl::StatusOr<Outcome> Arrive(const std::string& name, uint32_t parties, uint32_t party,
                                 const std::string& node);

  // The node gives up as this party: the barrier fails for all. Returns the failure, or OK if the
  // barrier was over already or it is not this node that has arrived as the party.
  absl::Status FailParty(const std::string& name, uint32_t party, const std::string& node,
                         absl::string_view reason);

  // The node is not this party any more, and has not arrived as it where that is still open:
  // another is to come.
  void Withdraw(const std::string& node, uint32_t party);

  struct Failure {
    std::string name;
    absl::Status status;
  };
  // The node is gone: every open barrier at which it had arrived fails.
  std::vector<Failure> FailNode(const std::string& node, absl::string_view reason);

  // Those that are over: who waits at an open one asks again.
  StoredBarriers Save() const;
  // REQUIRES: nobody has arrived anywhere.
  void Restore(const StoredBarriers& stored);

 private:
  struct Barrier {
    // 0: not known any more.
    uint32_t parties = 0;
    // By party.
    std::map<uint32_t, std::string> arrived;
    bool over = false;
    // Why it failed, once it is over.
    absl::Status result;
  };

  void Close(const std::string& name, Barrier& barrier, const absl::Status& result);

  absl::flat_hash_map<std::string, Barrier> barriers_;
  std::deque<std::string> closed_;
  size_t open_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_BARRIERS_H_
