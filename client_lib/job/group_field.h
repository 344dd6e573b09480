// The feature by whose values an evaluation groups its samples.
#ifndef PAWL_CLIENT_LIB_JOB_GROUP_FIELD_H_
#define PAWL_CLIENT_LIB_JOB_GROUP_FIELD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace pawl {

// The categorical field, counted from 0, that evaluation.group_by names in the data.
// INVALID_ARGUMENT if there is none. The number of a LIBSVM field may exceed those in the file.
absl::StatusOr<uint32_t> GroupField(const Data& data, const std::string& group_by);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_GROUP_FIELD_H_
