// The samples of a file in memory, as its reader stores them.
#ifndef PAWL_WORKER_DATA_SAMPLE_STORE_H_
#define PAWL_WORKER_DATA_SAMPLE_STORE_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/limits.h"
#include "worker/data/batch.h"
#include "worker/data/sampler.h"

namespace pawl {

// With interned keys (a data set), keys are stored once and an entry is the number of its key, so
// that a batch's distinct keys are found without hashing. Otherwise an entry is its key. That is
// faster for a window of streamed data, which uses every sample once.
//
// Exactly one of numerics and pixels is used if shape.numeric_count > 0. Samples have either one
// entry of weight 1 in every field (sample_begin is empty, and sample s has the entries [s *
// field_count, (s + 1) * field_count)), or sample s has the entries [sample_begin[s],
// sample_begin[s + 1]). Then field f has the next field_counts[s * field_count + f] of them, field
// after field; without field_counts, entry n belongs to field min(n, field_count - 1).
//
// Written by one thread, then immutable.
class SampleStore {
 public:
  // Batches count samples and entries in 32 bits.
  static constexpr uint64_t kMaxSamples = uint64_t{1} << 32;
  static constexpr uint64_t kMaxDistinctKeys = (uint64_t{1} << 32) - 1;
  // A field costs four bytes for each sample of a batch, used or not.
  static constexpr uint32_t kMaxFields = pawl::kMaxFields;
  static constexpr uint32_t kMaxNumerics = 1 << 20;

  explicit SampleStore(uint64_t max_bytes, bool interns = true)
      : interns_(interns), max_bytes_(max_bytes) {}

  bool interns() const { return interns_; }

  // Appends an entry.
  void AddEntry(uint64_t key) {
    if (interns_) {
      entries.push_back(Intern(key));
    } else {
      entry_keys.push_back(key);
    }
  }
  void AddEntries(absl::Span<const uint64_t> keys) {
    if (interns_) {
      for (const uint64_t key : keys) entries.push_back(Intern(key));
    } else {
      entry_keys.insert(entry_keys.end(), keys.begin(), keys.end());
    }
  }
  uint64_t entry_count() const { return interns_ ? entries.size() : entry_keys.size(); }
  // Removes the entries, and their weights, after the first `count`.
  void TruncateEntries(uint64_t count);

  // The entries of the sample's field.
  SampleRange EntriesOf(uint64_t sample, uint32_t field) const;

  // Removes all samples, and keeps the memory.
  void Clear();

  // RESOURCE_EXHAUSTED, naming `file`, once the store is above a limit. Readers check after each
  // sample, so a limit may be exceeded by one sample.
  absl::Status CheckLimits(absl::string_view file) const;

  // Ends writing: frees what only Intern needs, and the vectors' spare capacity.
  void Finish();

  // The number of samples, and a checksum of everything in them. REQUIRES: Finish was called.
  uint64_t Fingerprint() const;

  uint64_t size() const { return labels.size() / shape.label_count; }
  // The distinct keys, by their numbers.
  const std::vector<uint64_t>& keys() const { return keys_; }
  uint64_t memory_bytes() const;

  DataShape shape;
  std::vector<float> labels;          // [size(), label_count]
  std::vector<float> sample_weights;  // [size()]; empty: all are 1
  std::vector<uint64_t> query_ids;    // [size()]; empty: all are 0
  std::vector<float> numerics;        // [size(), numeric_count]
  std::vector<uint8_t> pixels;        // [size(), numeric_count], in 1/255
  std::vector<uint32_t> entries;      // interned
  std::vector<uint64_t> entry_keys;   // not interned
  std::vector<uint64_t> sample_begin;
  std::vector<uint16_t> field_counts;  // [size(), field_count], or empty
  std::vector<float> weights;          // of the entries; empty: all are 1

 private:
  // Returns the number of `key`; assigns one if it has none yet.
  uint32_t Intern(uint64_t key) {
    const auto [position, inserted] =
        numbers_.try_emplace(key, static_cast<uint32_t>(keys_.size()));
    if (inserted) keys_.push_back(key);
    return position->second;
  }

  const bool interns_;
  const uint64_t max_bytes_;
  std::vector<uint64_t> keys_;
  absl::flat_hash_map<uint64_t, uint32_t> numbers_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_SAMPLE_STORE_H_
