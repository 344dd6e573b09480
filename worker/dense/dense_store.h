// The dense parameters as the servers keep them for the workers.
#ifndef PAWL_WORKER_DENSE_DENSE_STORE_H_
#define PAWL_WORKER_DENSE_DENSE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
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
// slots, "<name>/slots", all slots of the table block by block; and "dense/steps", four numbers:
// the steps that they are after, and how many of these brought an update, each as a pair (multiple
// of 2^24, rest), which float32 holds exactly up to 2^48. A job that has just begun has no updates
// there: the weights are the initial ones, and the slots are what the rule says.
//
// A write-back is part of a step: its pushes belong to step t and hold the parameters after t + 1
// steps, so that in SYNC the servers' version t + 1 has them together with the sparse part of the
// same version. Of the list of all blocks of all these tables, block b is pushed by rank b mod V.
// In BOUNDED and ASYNC they are applied as they come: one that a death interrupts leaves blocks of
// two write-backs, until the next one.
//
// In SYNC too the blocks of one write-back may be of two trajectories, if all workers die while
// some ranks have ended its step and others have not: the latter's successors do the step again,
// from the write-back before, and their blocks join those that the servers have from the former.
// Each block is one that training led to, but not all were led to together; the next write-back is
// whole again. Nothing tells.
//
// PartOf: any thread. Load: the thread that writes the state.
class DenseStore {
 public:
  // What the servers are to be asked for, in this order. REQUIRES: `models` are dense tables.
  static std::vector<TableSpec> Specs(const std::vector<TableSpec>& models, const UpdateRule& rule);

  // `tables` are those of Specs, as created.
  DenseStore(const DenseLayout& layout, const UpdateRule& rule, std::vector<Table> tables);

  // One rank's part of a write-back: the calls, and the memory that they borrow.
  struct WriteBackPart {
    std::vector<std::vector<uint64_t>> blocks;
    std::vector<std::vector<float>> values;
    std::vector<PushItem> items;
  };
  // Errors are those of the state's memory. REQUIRES: all buckets have this version, and no other
  // one before the return.
  absl::StatusOr<WriteBackPart> PartOf(const DenseState& state, uint64_t version, uint32_t rank,
                                       uint32_t logical_workers) const;

  // Puts what the servers have into a state that has nothing; returns the steps that it is after.
  // Errors are those of the pull and of the state's memory, and DATA_LOSS for numbers that are
  // none.
  absl::StatusOr<uint64_t> Load(Session& session, MonotonicDuration timeout,
                                const Interrupt& interrupt, DenseState& state);

 private:
  const DenseLayout& layout_;
  const UpdateRule& rule_;
  // As in Specs: the models', the slots', the steps.
  const std::vector<Table> tables_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_STORE_H_
