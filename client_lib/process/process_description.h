// By what logs and `pawlctl nodes` name this process.
#ifndef PAWL_CLIENT_LIB_PROCESS_PROCESS_DESCRIPTION_H_
#define PAWL_CLIENT_LIB_PROCESS_PROCESS_DESCRIPTION_H_

#include <string>

namespace pawl {

// "host:pid". Fit for a protobuf string, whatever the host is called.
std::string ProcessDescription();

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_PROCESS_DESCRIPTION_H_
