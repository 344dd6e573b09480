// Opens the StateStore that a flag names.
#ifndef PAWL_SCHEDULER_STORE_OPEN_STORE_H_
#define PAWL_SCHEDULER_STORE_OPEN_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// `place` is one of
//   DIR, file:DIR
//       FileStore: a folder of this machine, created if it is missing
//   etcd://HOST:PORT[,HOST:PORT...]/PREFIX
//       EtcdStore: the keys under PREFIX in an etcd cluster; each job needs its own PREFIX
// Neither connects nor locks; Campaign does. INVALID_ARGUMENT: it is none of these; the message
// quotes the wrong part.
absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(absl::string_view place);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_OPEN_STORE_H_
