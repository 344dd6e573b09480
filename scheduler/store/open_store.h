// Opens the StateStore that a flag names.
#ifndef PAWL_SCHEDULER_STORE_OPEN_STORE_H_
#define PAWL_SCHEDULER_STORE_OPEN_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/store/state_store.h"

namespace pawl {

struct StoreSecurity {
  // The value of --etcd_tls_dir.
  std::string etcd_tls_dir = {};
  // The value of --insecure.
  bool insecure = false;
};

// `place` is one of
//   DIR, file:DIR
//       FileStore: a folder of this machine, created if it is missing
//   etcd://HOST:PORT[,HOST:PORT...]/PREFIX
//       EtcdStore: the keys under PREFIX in an etcd cluster; each job needs its own PREFIX
// Connections to etcd use the files in security.etcd_tls_dir (EtcdClientOptions). Neither connects
// nor locks; Campaign does. INVALID_ARGUMENT: it is none of these, and the message quotes the wrong
// part; or etcd is on another machine and would be reached without TLS.
absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(absl::string_view place,
                                                      const StoreSecurity& security = {});

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_OPEN_STORE_H_
