// Validates a batch.
#ifndef PAWL_WORKER_DATA_BATCH_CHECK_H_
#define PAWL_WORKER_DATA_BATCH_CHECK_H_

#include "absl/status/status.h"
#include "worker/data/batch.h"

namespace pawl {

// Returns INVALID_ARGUMENT, naming the member, if the batch does not have this shape or its lists
// are inconsistent or out of range. Does not check labels.
absl::Status CheckBatch(const Batch& batch, const DataShape& shape);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_BATCH_CHECK_H_
