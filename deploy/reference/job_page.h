// job.md: every field of the job file.
#ifndef PAWL_DEPLOY_REFERENCE_JOB_PAGE_H_
#define PAWL_DEPLOY_REFERENCE_JOB_PAGE_H_

#include <string>

#include "google/protobuf/descriptor.h"

namespace pawl {

// The messages and enums of pawl.Job, each with its comment, its fields and the defaults that
// FillDefaults (client_lib/job/job_file.h) sets. REQUIRES: the pool has pawl.Job, with source info.
std::string JobPage(const google::protobuf::DescriptorPool& pool);

}  // namespace pawl

#endif  // PAWL_DEPLOY_REFERENCE_JOB_PAGE_H_
