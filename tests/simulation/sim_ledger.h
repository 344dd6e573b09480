// What the senders of a simulation have sent and been told: what the parameters must say follows from it.
#ifndef PAWL_TESTS_SIMULATION_SIM_LEDGER_H_
#define PAWL_TESTS_SIMULATION_SIM_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/event_loop.h"
#include "tests/simulation/schedule.h"

namespace pawl {

// Push n of a sender puts the gradient -1 to one row of its own in some partitions (SGD, learning rate 1, initial value
// 0): so the row says how often it was applied. Senders 0 to ranks - 1 are the ranks, whose n is the step; then come the
// free-running clients.
class SimLedger {
 public:
  // `table` is the table's id.
  SimLedger(const Schedule& schedule, uint32_t table) : schedule_(schedule), table_(table) {}

  struct Cell {
    uint32_t sender = 0;
    uint64_t number = 0;
    uint32_t partition = 0;
    uint64_t key = 0;
  };
  // Always the same for the same push.
  std::vector<Cell> CellsOf(uint32_t sender, uint64_t number);
  bool IsRank(uint32_t sender) const { return sender < schedule_.ranks(); }
  // What the row says once the push is applied.
  float UnitOf(uint32_t sender) const;

  void Sent(uint32_t sender, uint64_t number) { sent_[{sender, number}]; }
  void Acknowledged(uint32_t sender, uint64_t number) { sent_[{sender, number}] = true; }
  bool IsAcknowledged(uint32_t sender, uint64_t number) const;
  // A random push of a client that has been acknowledged.
  std::optional<std::pair<uint32_t, uint64_t>> SomethingAcknowledged(SeededRandom& random) const;
  // By sender and number: whether it was acknowledged.
  const std::map<std::pair<uint32_t, uint64_t>, bool>& sent() const { return sent_; }

 private:
  const Schedule& schedule_;
  const uint32_t table_;
  std::map<std::pair<uint32_t, uint64_t>, bool> sent_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIM_LEDGER_H_
