// A part of a batch, as a batch.
#ifndef PAWL_WORKER_DATA_BATCH_SLICE_H_
#define PAWL_WORKER_DATA_BATCH_SLICE_H_

#include "worker/data/batch.h"
#include "worker/data/sampler.h"

namespace pawl {

// Replaces *part, reusing its memory, with these samples of the batch. It keeps the keys of the
// whole batch, so that it uses the same rows; keys that its samples do not use get a gradient of 0.
// REQUIRES: samples.end <= batch.samples; *part is not the batch.
void SliceBatch(const Batch& batch, SampleRange samples, Batch* part);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_BATCH_SLICE_H_
