// Properties of consistency modes.
#ifndef PAWL_CLIENT_LIB_JOB_CONSISTENCY_H_
#define PAWL_CLIENT_LIB_JOB_CONSISTENCY_H_

#include "proto/types.pb.h"

namespace pawl {

// Whether steps close when all ranks have ended them. An unset mode means SYNC, as in a job file.
inline bool IsSync(ConsistencyMode mode) { return mode != BOUNDED && mode != ASYNC; }

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_CONSISTENCY_H_
