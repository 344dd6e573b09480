// The samples that one logical worker trains on in one step, ready for a model.
#ifndef PAWL_WORKER_DATA_BATCH_H_
#define PAWL_WORKER_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/job/field_layout.h"
#include "worker/data/sampler.h"

namespace pawl {

// The entries of some fields, which are looked up in the same tables and pooled alike.
struct FieldSet {
  // The index of its keys in Batch::keys.
  size_t key_set = 0;
  uint32_t field_count = 0;
  // Field f of sample s has the entries field_begin[s * field_count + f] to field_begin[s *
  // field_count + f + 1]. Entry e is the category keys[key_set][entry_key[e]] with the weight
  // entry_value[e] (1 for a plain category; divided by the field's number of entries if their
  // vectors are averaged).
  std::vector<uint32_t> field_begin;  // [samples * field_count + 1]
  std::vector<uint32_t> entry_key;
  std::vector<float> entry_value;
};

struct Batch {
  uint32_t samples = 0;
  // Numbers (dense inputs) and labels of each sample.
  uint32_t numeric_count = 0;
  uint32_t label_count = 1;

  // [samples, label_count], row-major
  std::vector<float> labels;
  // [samples]; empty: all are 1
  std::vector<float> weights;
  // [samples, numeric_count], row-major
  std::vector<float> numerics;

  // By key set: the distinct keys, in the order of their first appearance or of their partitions
  // (BatchAssembler).
  std::vector<std::vector<uint64_t>> keys{1};
  // As in the model's FieldLayout.
  std::vector<FieldSet> field_sets{1};
};

// The number of inputs of a sample, which a model must know in advance.
struct DataShape {
  uint32_t numeric_count = 0;
  uint32_t field_count = 0;
  // At least 1. More than one for models with several tasks.
  uint32_t label_count = 1;
};

// Returns INVALID_ARGUMENT, naming the member, if the batch does not have this shape and layout or
// its lists are inconsistent or out of range. Does not check labels.
absl::Status CheckBatch(const Batch& batch, const DataShape& shape, const FieldLayout& layout);

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
