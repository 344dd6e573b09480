// Whether a batch is one.
#ifndef PAWL_WORKER_DATA_BATCH_CHECK_H_
#define PAWL_WORKER_DATA_BATCH_CHECK_H_

#include "absl/status/status.h"
#include "worker/data/batch.h"

namespace pawl {

// INVALID_ARGUMENT, naming the member, if the batch is not of this shape or its lists do not go
// together: nothing that they say lies outside of them. Labels may be any.
absl::Status CheckBatch(const Batch& batch, const DataShape& shape);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_BATCH_CHECK_H_
