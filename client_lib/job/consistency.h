// What the parts of Pawl ask of a job's consistency.
#ifndef PAWL_CLIENT_LIB_JOB_CONSISTENCY_H_
#define PAWL_CLIENT_LIB_JOB_CONSISTENCY_H_

#include "proto/types.pb.h"

namespace pawl {

// Whether steps close when all ranks have ended them. A mode that is not set counts as SYNC, which
// is what a job file without one means.
inline bool IsSync(ConsistencyMode mode) { return mode != BOUNDED && mode != ASYNC; }

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_CONSISTENCY_H_
