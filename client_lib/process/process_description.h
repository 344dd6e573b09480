// The name of this process in logs and in `pawlctl nodes`.
#ifndef PAWL_CLIENT_LIB_PROCESS_PROCESS_DESCRIPTION_H_
#define PAWL_CLIENT_LIB_PROCESS_PROCESS_DESCRIPTION_H_

#include <string>

namespace pawl {

// "host:pid", valid as a protobuf string whatever the host's name is.
std::string ProcessDescription();

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_PROCESS_DESCRIPTION_H_
