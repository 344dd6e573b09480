// Requests to an etcd cluster, over its v3 JSON gateway.
#ifndef PAWL_SCHEDULER_STORE_ETCD_CLIENT_H_
#define PAWL_SCHEDULER_STORE_ETCD_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "nlohmann/json.hpp"

namespace pawl {

// An answer larger than this is refused while it arrives. A chunk of EtcdStore is half of it in
// base64.
inline constexpr size_t kMaxEtcdAnswerBytes = size_t{4} << 20;

// One connection to one endpoint at a time. For one thread.
class EtcdClient {
 public:
  // `endpoints`: "HOST:PORT", at least one. An endpoint that does not answer within
  // `attempt_timeout` is left for the next one.
  EtcdClient(std::vector<std::string> endpoints, std::chrono::milliseconds attempt_timeout);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // Posts `request` to `path` ("/v3/kv/range") and returns the answer, an object. Each endpoint is
  // tried once at most, first the one that answered last. A request may thus be carried out more
  // than once, and a failed one may have been carried out: the caller makes it idempotent.
  //   UNAVAILABLE: no endpoint answered before `deadline`; the message says why for each.
  //   UNIMPLEMENTED: what answers is not etcd.
  //   INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, PERMISSION_DENIED, RESOURCE_EXHAUSTED,
  //   UNAUTHENTICATED: etcd's own. INTERNAL: another error of etcd.
  absl::StatusOr<nlohmann::json> Call(absl::string_view path, const nlohmann::json& request,
                                      MonotonicTime deadline);

 private:
  class Handle;

  const std::vector<std::string> endpoints_;
  const std::chrono::milliseconds attempt_timeout_;
  const std::unique_ptr<Handle> handle_;
  size_t current_ = 0;
};

// Keys and values travel in base64.
std::string EtcdBytes(absl::string_view bytes);

// The member `name` of `object`, as etcd writes it: int64 as a decimal string; what is zero or
// empty is left out. DATA_LOSS if it is there and is not of the type.
absl::StatusOr<int64_t> EtcdIntegerAt(const nlohmann::json& object, const char* name);
absl::StatusOr<std::string> EtcdBytesAt(const nlohmann::json& object, const char* name);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_ETCD_CLIENT_H_
