// Builds a batch from sample indices.
#ifndef PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_
#define PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/data/batch.h"
#include "worker/data/sample_store.h"
#include "worker/data/sampler.h"
#include "worker/data/training_data.h"

namespace pawl {

// Keeps 8 bytes for each distinct key of a store that interns keys, to find those of a batch
// without hashing; otherwise 16 to 32 bytes for each entry of a batch. Not thread-safe: each thread
// needs its own, and all may share a store.
class BatchAssembler {
 public:
  // Entries and (sample, field) pairs of a batch are counted in 32 bits.
  static constexpr uint64_t kMaxBatchEntries = uint64_t{1} << 31;
  // 4 bytes each: 8 GiB.
  static constexpr uint64_t kMaxBatchNumerics = uint64_t{1} << 31;

  // `store` must outlive the assembler; if it interns keys, it must not change. `order`: the keys
  // of a batch come in the order of the table's partitions, in which the client sends rows from
  // their place.
  explicit BatchAssembler(const SampleStore& store, std::optional<KeyOrder> order = std::nullopt);

  // Overwrites *batch, reusing its memory, with these samples in this order. RESOURCE_EXHAUSTED
  // above a limit; *batch is then unspecified. REQUIRES: each index is below the store's size.
  absl::Status Assemble(absl::Span<const uint64_t> samples, Batch* batch);
  // Does the same for a range of samples.
  absl::Status AssembleRange(SampleRange samples, Batch* batch);

 private:
  // Append the entries: their key numbers to batch->entry_key, or their keys to batch_keys_.
  void AddFixed(absl::Span<const uint64_t> samples, Batch* batch);
  absl::Status AddRagged(absl::Span<const uint64_t> samples, Batch* batch);
  void AddNumerics(absl::Span<const uint64_t> samples, Batch* batch) const;
  // Replaces the store's key numbers in entry_key with indices into batch->keys, which it fills.
  void FindDistinct(Batch* batch);
  // Sets entry_key to the indices of batch_keys_ in batch->keys, which it fills.
  void HashDistinct(Batch* batch);
  // Sorts batch->keys by partition. Within one they keep their order.
  void SortKeys(const KeyOrder& order, Batch* batch);

  const SampleStore& store_;
  const std::optional<KeyOrder> order_;
  // By key number: the last batch that had the key, and its index there.
  struct Seen {
    uint32_t batch;
    uint32_t place;
  };
  std::vector<Seen> seen_;
  // Without interned keys: the keys of the batch's entries, and an open-addressing hash table of
  // the distinct ones. A slot whose batch is not the current one is free.
  std::vector<uint64_t> batch_keys_;
  struct Slot {
    uint64_t key;
    Seen seen;
  };
  std::vector<Slot> slots_;
  uint32_t batch_number_ = 0;
  // The numbers of the batch's distinct keys; as long as the longest entry_key so far, at least.
  std::vector<uint32_t> distinct_;
  // By index in batch->keys, before it is sorted: the key's partition, then its new index.
  std::vector<uint32_t> moved_;
  // By partition: the index of its next key.
  std::vector<uint32_t> next_in_partition_;
  std::vector<uint64_t> unsorted_;
  std::vector<uint64_t> range_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_
