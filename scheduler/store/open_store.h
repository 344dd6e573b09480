// From the place that a flag names to the store there.
#ifndef PAWL_SCHEDULER_STORE_OPEN_STORE_H_
#define PAWL_SCHEDULER_STORE_OPEN_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// `place` is one of
//   DIR, file:DIR                            a directory of this machine, made if it is missing
//   (FileStore) etcd://HOST:PORT[,HOST:PORT...]/PREFIX   keys under PREFIX in an etcd cluster
//   (EtcdStore); one PREFIX for each
//                                            job
// Connects to nothing and locks nothing: Campaign does.
//   INVALID_ARGUMENT: it is none of these; the message quotes the part that is wrong.
absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(absl::string_view place);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_OPEN_STORE_H_
