// The requests and answers of a simulation's senders. They determine what the parameters must be.
#ifndef PAWL_TESTS_SIMULATION_SIM_LEDGER_H_
#define PAWL_TESTS_SIMULATION_SIM_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/schedule.h"

namespace pawl {

// Push n of a sender adds the gradient -1 to one row of its own in some partitions (SGD, learning
// rate 1, initial value 0), so the row counts its applications. Senders 0 to ranks - 1 are the
// ranks, whose n is the step; the free-running clients follow.
//
// If the schedule assigns, the optimizer is momentum 0.5, so that a row also shows the slot with
// which its gradient was applied, and some pushes follow an assignment of their rows. Each value of
// a row then belongs to one value of its slot.
//
// If the schedule shares rows, a few ranks also push to rows that belong to the step. Their sum is
// -1 in the order of the ranks, and another number in most other orders.
//
// If the schedule clips the global norm, the rows of a step show its scale, which follows from the
// number of the step's rows in each partition.
class SimLedger {
 public:
  static constexpr float kMomentum = 0.5f;
  // The value that an assignment sets.
  static constexpr float kAssignedValue = 10.0f;
  static constexpr float kAssignedSlot = 7.0f;

  // `table` is the table's id.
  SimLedger(const Schedule& schedule, uint32_t table) : schedule_(schedule), table_(table) {}

  struct Cell {
    uint32_t sender = 0;
    uint64_t number = 0;
    uint32_t partition = 0;
    uint64_t key = 0;
    float gradient = -1.0f;
  };
  // The value that a row must have.
  struct Expectation {
    Cell cell;
    float least = 0;
    float most = 0;
    // A value that is possible too: what an assignment has set, or `least`.
    float between = 0;
    const char* why = "";
    // Skipped if the sender is a rank that was exempt from the bound during the pull.
    bool unless_exempt = false;

    bool Allows(float value) const { return value == least || value == most || value == between; }
  };
  enum class Fate { kApplied, kUnknown, kNotApplied };
  // The rows of all pushes that were sent, by the fate of each, and some that were never sent. A
  // step with shared rows has the fate of rank 0's push.
  std::vector<Expectation> Expect(
      absl::FunctionRef<Fate(uint32_t sender, uint64_t number, bool acknowledged)> fate_of) const;
  // Always the same cells for the same push.
  std::vector<Cell> CellsOf(uint32_t sender, uint64_t number) const;
  // The shared rows of a step, with the rank's gradient; their value is UnitOf the rank. None
  // unless the schedule shares rows. REQUIRES: rank < kSharingRanks.
  std::vector<Cell> SharedCellsOf(uint32_t rank, uint64_t step) const;
  bool IsRank(uint32_t sender) const { return sender < schedule_.ranks(); }
  bool IsClient(uint32_t sender) const { return !IsRank(sender) && sender != shared(); }
  // Whether an assignment of the rows precedes the push.
  bool IsAssigned(uint32_t sender, uint64_t number) const;
  // With clip_global_norm: the factor of the gradients of a step of the ranks; otherwise 1.
  float ScaleOf(uint64_t step) const;
  // The row's value once the push is applied.
  float UnitOf(uint32_t sender, uint64_t number) const;
  // The slot of a row with that value. REQUIRES: the schedule assigns.
  static float SlotOf(float value);

  void Sent(uint32_t sender, uint64_t number) { sent_[{sender, number}]; }
  void Acknowledged(uint32_t sender, uint64_t number) {
    sent_[{sender, number}] = true;
    acknowledged_in_job_.insert({sender, number});
  }
  bool IsAcknowledged(uint32_t sender, uint64_t number) const;
  // A random acknowledged push of a client.
  std::optional<std::pair<uint32_t, uint64_t>> RandomAcknowledgedPush(SeededRandom& random) const;
  using Push = std::pair<uint32_t, uint64_t>;
  // By sender and number: true if the push was acknowledged.
  const std::map<Push, bool>& sent() const { return sent_; }
  // Those that the present job has acknowledged.
  const std::set<Push>& acknowledged_in_job() const { return acknowledged_in_job_; }
  void StartAnotherJob() { acknowledged_in_job_.clear(); }

 private:
  static float SlotAfterAssignment();
  // The owner of shared rows, which sends nothing.
  uint32_t shared() const { return schedule_.ranks() + static_cast<uint32_t>(schedule_.clients); }

  const Schedule& schedule_;
  const uint32_t table_;
  std::map<Push, bool> sent_;
  std::set<Push> acknowledged_in_job_;
};

// The clocks of ranks as their senders know them, and the ranks that BOUNDED exempts (README.md,
// Consistency): released ranks until they return and catch up. It shares no code with Partition,
// which computes the same from its input. A server's clock is between `least` and `most`. An
// exemption here starts no later and ends no sooner than on any server.
class RankClocks {
 public:
  explicit RankClocks(uint32_t ranks) : ranks_(ranks) {}

  // The scheduler is about to request the release.
  void OnReleasing(uint32_t rank, uint64_t incarnation);
  // All servers have confirmed the takeover and reported that the rank has ended `clock` steps.
  void OnTakeover(uint32_t rank, uint64_t incarnation, uint64_t clock, MonotonicDuration now);
  // The rank is about to end the step; all servers have confirmed its end.
  void OnEndingStep(uint32_t rank, uint64_t step);
  void OnEndedStep(uint32_t rank, uint64_t step, MonotonicDuration now);

  // The scheduler has confirmed to that incarnation of the rank that the rank has finished.
  void OnFinished(uint32_t rank, uint64_t incarnation);

  // The maximum number of steps that the rank may have ended.
  uint64_t most(uint32_t rank) const { return ranks_[rank].most; }
  // The minimum number of steps that the rank has ended.
  uint64_t least(uint32_t rank) const { return ranks_[rank].least; }
  // True if the rank was exempt at any time since `since`.
  bool WasExempt(uint32_t rank, MonotonicDuration since) const;

  // Takeovers; released ranks; ranks that returned behind the others; and those of them that caught
  // up.
  uint64_t takeovers() const { return takeovers_; }
  uint64_t releases() const { return releases_; }
  uint64_t returns() const { return returns_; }
  uint64_t catch_ups() const { return catch_ups_; }
  // Finished ranks that were released; those that were released again after their process had
  // restarted.
  uint64_t finished_releases() const { return finished_releases_; }
  uint64_t repeated_finished_releases() const { return repeated_finished_releases_; }

 private:
  struct Rank {
    uint64_t incarnation = 0;
    uint64_t least = 0;
    uint64_t most = 0;
    // The incarnation of the last release.
    uint64_t released = 0;
    // The last incarnation that has finished; the last that had finished and was released.
    uint64_t finished = 0;
    uint64_t finished_and_released = 0;
    bool is_exempt = false;
    // Set after a takeover: the rank has caught up at this clock.
    std::optional<uint64_t> exempt_below;
    // The end of the last exemption.
    std::optional<MonotonicDuration> exempt_until;
  };
  void EndExemptionIfDue(Rank& rank, MonotonicDuration now);
  void CountFinishedRelease(Rank& rank);

  std::vector<Rank> ranks_;
  uint64_t takeovers_ = 0;
  uint64_t releases_ = 0;
  uint64_t returns_ = 0;
  uint64_t catch_ups_ = 0;
  uint64_t finished_releases_ = 0;
  uint64_t repeated_finished_releases_ = 0;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIM_LEDGER_H_
