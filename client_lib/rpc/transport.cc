#include "client_lib/rpc/transport.h"

#include <array>

namespace pawl {

const std::string& FullName(Method method) {
  // Indexed by Method.
  static const auto* const kNames =
      new std::array<std::string, 8>{"/pawl.Parameter/Push",
                                     "/pawl.Parameter/Pull",
                                     "/pawl.Parameter/Scan",
                                     "/pawl.Parameter/EndStep",
                                     "/pawl.Parameter/TakeOver",
                                     "/pawl.Replication/Replicate",
                                     "/pawl.Replication/InstallSnapshot",
                                     "/pawl.Replication/GoBack"};
  return (*kNames)[static_cast<size_t>(method)];
}

}  // namespace pawl
