// A part of a batch, as a batch.
#ifndef PAWL_WORKER_DATA_BATCH_SLICE_H_
#define PAWL_WORKER_DATA_BATCH_SLICE_H_

#include "worker/data/batch.h"
#include "worker/data/sampler.h"

namespace pawl {

// Replaces *part (whose memory is used again) by these samples of the batch. It has the keys of the
// whole batch, so that it takes the same rows; those that its samples do not have get a gradient of
// 0. REQUIRES: samples.end <= batch.samples; *part is not the batch.
void SliceBatch(const Batch& batch, SampleRange samples, Batch* part);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_BATCH_SLICE_H_
