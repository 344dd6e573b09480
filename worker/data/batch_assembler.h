// Builds a batch from sample indices.
#ifndef PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_
#define PAWL_WORKER_DATA_BATCH_ASSEMBLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"

namespace pawl {

// A table, and its number of partitions.
struct KeyOrder {
  uint32_t table = 0;
  uint32_t partitions = 0;
};

// Keeps 8 bytes for each distinct key of the data set, to find those of a batch without hashing.
// Not thread-safe: each thread needs its own, and all may share a data set.
class BatchAssembler {
 public:
  // Entries and (sample, field) pairs of a batch are counted in 32 bits.
  static constexpr uint64_t kMaxBatchEntries = uint64_t{1} << 31;
  // 4 bytes each: 8 GiB.
  static constexpr uint64_t kMaxBatchNumerics = uint64_t{1} << 31;

  // `dataset` must outlive the assembler. `order`: the keys of a batch come in the order of the
  // table's partitions, in which the client sends rows from their place.
  explicit BatchAssembler(const Dataset& dataset, std::optional<KeyOrder> order = std::nullopt);

  // Overwrites *batch, reusing its memory, with these samples in this order. RESOURCE_EXHAUSTED
  // above a limit; *batch is then unspecified. REQUIRES: each index is below the data set's size.
  absl::Status Assemble(absl::Span<const uint64_t> samples, Batch* batch);
  // Does the same for a range of samples.
  absl::Status AssembleRange(SampleRange samples, Batch* batch);

 private:
  void AddFixed(absl::Span<const uint64_t> samples, Batch* batch) const;
  absl::Status AddRagged(absl::Span<const uint64_t> samples, Batch* batch) const;
  void AddNumerics(absl::Span<const uint64_t> samples, Batch* batch) const;
  // Replaces the data set's key numbers in entry_key with indices into batch->keys, which it fills.
  void FindDistinct(Batch* batch);
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
