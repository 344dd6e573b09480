// Processes that train dense parameters together in a test, and the same training as a plain loop.
#ifndef PAWL_WORKER_DENSE_TESTING_DENSE_PROCESS_H_
#define PAWL_WORKER_DENSE_TESTING_DENSE_PROCESS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/types.pb.h"
#include "worker/collective/testing/fake_group.h"
#include "worker/dense/dense_replica.h"
#include "worker/process/interrupt.h"

namespace pawl {

// Logical workers of the job.
inline constexpr uint32_t kRanks = 4;
// Limit of waits that succeed soon if at all.
inline constexpr std::chrono::minutes kLimit{1};
// Three tables. With buckets of 1 KiB the first two share one.
inline const std::vector<uint64_t> kElements = {20, 30, 300};

// Update rules with and without slots.
Optimizer Momentum();
Optimizer Sgd();
Optimizer Adam();
Optimizer Adagrad();

struct DenseSetting {
  const char* name = "";
  Optimizer optimizer = Momentum();
  bool sharded = false;
  // With sharding: all slots are gathered after this many steps.
  uint64_t write_back_steps = 3;
  uint64_t bucket_bytes = 1024;
  // Short, because most processes here leave at the end of the test.
  MonotonicDuration leave_limit = std::chrono::milliseconds(10);

  // Whether the death of a process may lose slots.
  bool LosesSlots() const { return sharded && write_back_steps > 1 && !optimizer.has_sgd(); }
  // Whether the end of this operation gives a member the bucket's next version.
  bool CompletesBucket(const FakeGroups::Operation& operation) const {
    // Smaller operations carry counts.
    if (sharded) return operation.kind == "AllGather" && operation.count > 15;
    return operation.kind == "AllReduce" && operation.count > 50;
  }
  friend void PrintTo(const DenseSetting& setting, std::ostream* out) { *out << setting.name; }
};

// The servers' knowledge: the initial parameters, those of the last write-back, and each rank's
// clock.
struct DenseServers {
  std::array<std::atomic<uint64_t>, kRanks> clocks = {};
  uint64_t stored_steps = 0;
  std::atomic<int> loads = 0;
};

// A worker process whose ranks are threads that derive gradients from the parameters that they
// read. Used by the test's thread. Groups and servers outlive it.
class DenseProcess {
 public:
  DenseProcess(FakeGroups& groups, DenseServers& servers, std::string name, uint64_t last_step,
               const DenseSetting& setting);
  ~DenseProcess() { Stop(); }

  // Hosts these ranks, from the steps that the servers have.
  void Host(const std::vector<uint32_t>& ranks);
  // Simulates a sudden death.
  void Kill();
  void Stop();
  void Join();
  // The rank moves to another process after its current step.
  void Release(uint32_t rank);
  // All weights after this many steps.
  std::vector<float> Weights(uint64_t steps);
  DenseReplica& replica() { return *replica_; }
  const Interrupt& interrupt(uint32_t rank) const { return interrupts_[rank]; }
  // The lag, in steps (at most 2), between handing in a step's gradients and its end at the
  // servers. A kill loses the ends that have not arrived. Set before Host.
  uint64_t end_lag = 0;
  // Called by each rank in each step before its gradients.
  std::function<void(uint32_t rank, uint64_t step)> in_step;

 private:
  void Run(uint32_t rank);
  absl::Status RunSteps(uint32_t rank);

  FakeGroups& groups_;
  DenseServers& servers_;
  const std::string name_;
  const uint64_t last_step_;
  std::unique_ptr<GroupFormer> former_;
  std::unique_ptr<DenseReplica> replica_;
  std::atomic<bool> killed_ = false;
  // By rank.
  std::array<Interrupt, kRanks> interrupts_;
  // The step after the last one whose gradients the rank has handed in.
  std::array<std::atomic<uint64_t>, kRanks> given_ = {};
  std::map<uint32_t, std::thread> threads_;
};

// A point of the training at which the slots of some elements revert to an earlier step.
struct LostSlots {
  uint64_t step = 0;
  uint64_t as_of = 0;
  std::vector<std::pair<size_t, size_t>> elements;
};

// All weights after this many steps of the same training as a plain loop.
std::vector<float> DenseReference(uint64_t steps, const Optimizer& optimizer,
                                  const LostSlots& loss = {});

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_TESTING_DENSE_PROCESS_H_
