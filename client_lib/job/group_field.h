// The categorical fields and labels of the data, by their names in the job file.
#ifndef PAWL_CLIENT_LIB_JOB_GROUP_FIELD_H_
#define PAWL_CLIENT_LIB_JOB_GROUP_FIELD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace pawl {

// The categorical field, counted from 0, that `setting` of the job file names in the data.
// INVALID_ARGUMENT if there is none. The number of a LIBSVM field may exceed those in the file.
absl::StatusOr<uint32_t> FieldNamed(const Data& data, const std::string& name,
                                    absl::string_view setting);

// The names of the label columns, in their order; empty for formats without names.
std::vector<std::string> LabelNames(const Data& data);

// The part of a sample that names its group.
struct GroupKey {
  // The `qid` of a LIBSVM line. Otherwise the first category in `field`, a categorical field
  // counted from 0.
  bool is_query_id = false;
  uint32_t field = 0;
};

// The field of the data that evaluation.group_by names. Errors are those of FieldNamed. LIBSVM
// lines may lack a qid. A list is refused, because a sample belongs to one group.
absl::StatusOr<GroupKey> FindGroupKey(const Data& data, const std::string& group_by);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_GROUP_FIELD_H_
