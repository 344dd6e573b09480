// Builds a batch from sample indices.
#ifndef PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_
#define PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_

#include <cstdint>
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

  // `store` must outlive the assembler; if it interns keys, it must not change. REQUIRES: the
  // store's fields, once it has samples, are those of the lookup's layout.
  BatchAssembler(const SampleStore& store, FieldLookup lookup);
  // For one table, in any order of keys.
  explicit BatchAssembler(const SampleStore& store)
      : BatchAssembler(store, {FieldLayout::Single(store.shape.field_count), {}}) {}

  // Overwrites *batch, reusing its memory, with these samples in this order. RESOURCE_EXHAUSTED
  // above a limit; *batch is then unspecified. REQUIRES: each index is below the store's size.
  absl::Status Assemble(absl::Span<const uint64_t> samples, Batch* batch);

 private:
  // A slot of the hash table, or a key's place in the batch.
  struct Seen {
    uint32_t batch;
    uint32_t place;
  };

  // Append the entries of the set: their key numbers to set->entry_key, or their keys to
  // *set_keys.
  void AddFixed(absl::Span<const uint64_t> samples, FieldSet* set, std::vector<uint64_t>* set_keys);
  absl::Status AddRagged(absl::Span<const uint64_t> samples, FieldSet* set,
                         std::vector<uint64_t>* set_keys);
  // For some of the sample's fields.
  absl::Status AddChosen(absl::Span<const uint64_t> samples, const FieldLayout::FieldSet& layout,
                         FieldSet* set, std::vector<uint64_t>* set_keys);
  // Prefetches the entries of samples[i], if there is such a sample.
  void PrefetchEntries(absl::Span<const uint64_t> samples, size_t i) const;
  void AddNumerics(absl::Span<const uint64_t> samples, Batch* batch) const;
  // Marks the keys seen before as not seen.
  void StartKeySet();
  // Replaces the store's key numbers in entry_key with indices into *keys, to which it appends.
  void FindDistinct(FieldSet* set, std::vector<uint64_t>* keys);
  // Sets entry_key to the indices of set_keys in *keys, to which it appends.
  void HashDistinct(const std::vector<uint64_t>& set_keys, FieldSet* set,
                    std::vector<uint64_t>* keys);
  // Makes the hash table large enough for this many entries.
  void ReserveSlots(size_t entries);
  // Sorts the key set's keys by partition. Within one they keep their order.
  void SortKeys(const KeyOrder& order, size_t key_set, Batch* batch);

  const SampleStore& store_;
  const FieldLookup lookup_;
  // By key number: the last key set that had the key, and its index there.
  std::vector<Seen> seen_;
  // Without interned keys: by field set, the keys of the batch's entries.
  std::vector<std::vector<uint64_t>> set_keys_;
  // An open-addressing hash table of the distinct ones. A slot that is not of the current key set
  // is free.
  struct Slot {
    uint64_t key;
    Seen seen;
  };
  std::vector<Slot> slots_;
  // The number of the current key set; those of all batches are numbered.
  uint32_t number_ = 0;
  // The numbers of the key set's distinct keys; as long as the longest entry_key so far, at least.
  std::vector<uint32_t> distinct_;
  // By index in the key set, before it is sorted: the key's partition, then its new index.
  std::vector<uint32_t> moved_;
  // By partition: the index of its next key.
  std::vector<uint32_t> next_in_partition_;
  std::vector<uint64_t> unsorted_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_
