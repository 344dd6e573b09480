// The samples that one logical worker trains on in one step, ready for a model.
#ifndef PAWL_WORKER_DATA_BATCH_H_
#define PAWL_WORKER_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/data/sampler.h"

namespace pawl {

struct Batch {
  uint32_t samples = 0;
  // Numbers (dense inputs) and categorical fields in each sample.
  uint32_t numeric_count = 0;
  uint32_t field_count = 0;

  // [samples]
  std::vector<float> labels;
  // [samples, numeric_count], row-major
  std::vector<float> numerics;

  // The distinct keys of the batch, in the order of their first appearance or of their partitions
  // (BatchAssembler).
  std::vector<uint64_t> keys;
  // Field f of sample s has the entries field_begin[s * field_count + f] to field_begin[s *
  // field_count + f + 1]. Entry e is the category keys[entry_key[e]] with the weight entry_value[e]
  // (1 for a plain category).
  std::vector<uint32_t> field_begin;  // [samples * field_count + 1]
  std::vector<uint32_t> entry_key;
  std::vector<float> entry_value;
};

// The number of inputs of a sample, which a model must know in advance.
struct DataShape {
  uint32_t numeric_count = 0;
  uint32_t field_count = 0;
  // At least 1. More than one for models with several tasks.
  uint32_t label_count = 1;
};

// Returns INVALID_ARGUMENT, naming the member, if the batch does not have this shape or its lists
// are inconsistent or out of range. Does not check labels.
absl::Status CheckBatch(const Batch& batch, const DataShape& shape);

// Replaces *part, reusing its memory, with these samples of the batch. It keeps the keys of the
// whole batch, so that it uses the same rows; keys that its samples do not use get a gradient of 0.
// REQUIRES: samples.end <= batch.samples; *part is not the batch.
void SliceBatch(const Batch& batch, SampleRange samples, Batch* part);

// A summary of all labels, to check whether a loss accepts them.
struct LabelSummary {
  float min = 0;
  float max = 0;
  bool integers = true;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_BATCH_H_
