// The data that the ranks of a process train on, or evaluate.
#ifndef PAWL_WORKER_DATA_TRAINING_DATA_H_
#define PAWL_WORKER_DATA_TRAINING_DATA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/job/field_layout.h"
#include "worker/data/batch.h"
#include "worker/data/sampler.h"

namespace pawl {

// A table, and its number of partitions.
struct KeyOrder {
  uint32_t table = 0;
  uint32_t partitions = 0;
};

// How the fields of samples are looked up.
struct FieldLookup {
  FieldLayout layout;
  // By key set: the table in the order of whose partitions the keys of a batch come, in which the
  // client sends rows from their place. Empty: any order.
  std::vector<KeyOrder> orders;
};

// The batches of one rank. Not thread-safe, except Cancel.
class RankBatches {
 public:
  virtual ~RankBatches() = default;

  // Overwrites *batch, reusing its memory, with the rank's samples of step number `step` of the
  // job. Any order of steps is possible; ascending ones are fast. After an error *batch is
  // unspecified.
  virtual absl::Status Assemble(uint64_t step, Batch* batch) = 0;
  // Makes a running Assemble, and all later ones, fail soon. Any thread may call it.
  virtual void Cancel() {}
  // While no Assemble runs: whether no thread reads ahead, so that destruction does not wait.
  virtual bool IsIdle() const { return true; }
};

// Thread-safe.
class TrainingData {
 public:
  virtual ~TrainingData() = default;

  // Number of samples, at least 1.
  virtual uint64_t size() const = 0;
  virtual const DataShape& shape() const = 0;
  // Tells apart data that differ in a sample or in their order. The same on every machine.
  virtual uint64_t fingerprint() const = 0;

  // The batches of `rank` for steps below `end_step`. The data and the sampler, which is for size()
  // samples, outlive them.
  virtual std::unique_ptr<RankBatches> OpenRank(const Sampler& sampler, uint32_t rank,
                                                uint64_t end_step,
                                                const FieldLookup& lookup) const = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_TRAINING_DATA_H_
