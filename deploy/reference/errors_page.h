// errors.md: the errors of each rpc, and how to react.
#ifndef PAWL_DEPLOY_REFERENCE_ERRORS_PAGE_H_
#define PAWL_DEPLOY_REFERENCE_ERRORS_PAGE_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace pawl {

// The C++ client's reaction to each status (from DecideRetry, client_lib/rpc/retry.h), and the
// services of `files` with the comments of their rpcs. REQUIRES: the pool has the files, with
// source info.
std::string ErrorsPage(const google::protobuf::DescriptorPool& pool,
                       const std::vector<std::string>& files);

}  // namespace pawl

#endif  // PAWL_DEPLOY_REFERENCE_ERRORS_PAGE_H_
