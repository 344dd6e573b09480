// The dense parameters as the servers store them for the workers.
#ifndef PAWL_WORKER_DENSE_DENSE_STORE_H_
#define PAWL_WORKER_DENSE_DENSE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/client.h"
#include "proto/types.pb.h"
#include "server/optimizer/update_rule.h"
#include "worker/dense/dense_layout.h"
#include "worker/dense/dense_state.h"
#include "worker/process/interrupt.h"

namespace pawl {

// The tables: each dense table of the model, with the optimizer Assign; beside it, if the rule has
// slots, "<name>/slots" with all slots of the table, block by block; and "dense/steps" with two
// numbers: the version of the parameters, and how many of its steps brought an update. Each number
// is a pair (multiple of 2^24, remainder), which float32 holds exactly up to 2^48. A new job has no
// updates: the weights are the initial ones, and the slots are what the rule says.
//
// A write-back is part of a step: its pushes belong to step t and hold version t + 1, so that in
// SYNC the servers' version t + 1 has them together with the sparse part of the same version. Rank
// b mod V pushes block b in the list of all blocks of all these tables. In BOUNDED and ASYNC blocks
// are applied on arrival: a write-back interrupted by a death leaves blocks of two write-backs
// until the next one.
//
// In SYNC, too, the blocks of one write-back may come from two trajectories if all workers die
// after some ranks, but not all, have ended its step. The successors of the others repeat the step
// from the previous write-back, and their blocks join those of the former ranks. Each block was
// reached by training, but not all together. The next write-back is consistent again. Nothing
// reports this state.
//
// PartOf: any thread. Load: the thread that writes the state.
class DenseStore {
 public:
  // The tables to create, in this order. REQUIRES: `models` are dense tables.
  static std::vector<TableSpec> Specs(const std::vector<TableSpec>& models, const UpdateRule& rule);

  // `tables` are those of Specs, as created.
  DenseStore(const DenseLayout& layout, const UpdateRule& rule, std::vector<Table> tables);

  // One rank's part of a write-back: the calls and the memory that they borrow.
  struct WriteBackPart {
    std::vector<std::vector<uint64_t>> blocks;
    std::vector<std::vector<float>> values;
    std::vector<PushItem> items;
  };
  // Errors are those of the state's memory. REQUIRES: all buckets have this version and keep it
  // until the return.
  absl::StatusOr<WriteBackPart> PartOf(const DenseState& state, uint64_t version, uint32_t rank,
                                       uint32_t logical_workers) const;

  // Loads what the servers have into an empty state and returns its version. Errors are those of
  // the pull and of the state's memory, and DATA_LOSS for invalid numbers.
  absl::StatusOr<uint64_t> Load(Session& session, MonotonicDuration timeout,
                                const Interrupt& interrupt, DenseState& state);

 private:
  const DenseLayout& layout_;
  const UpdateRule& rule_;
  // As in Specs: the models' tables, the slots', the steps.
  const std::vector<Table> tables_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_STORE_H_
