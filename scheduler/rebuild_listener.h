// Listens in the place of a scheduler that has lost its state, until the servers have said what they hold.
#ifndef PAWL_SCHEDULER_REBUILD_LISTENER_H_
#define PAWL_SCHEDULER_REBUILD_LISTENER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/mutex.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Answers every call with UNAVAILABLE, so that nodes go on trying, except heartbeats of servers: those it disowns, so
// that they register again and say what they hold. Thread-safe.
class RebuildListener final : private grpc::CallbackGenericService {
 public:
  // FAILED_PRECONDITION: it cannot listen there.
  static absl::StatusOr<std::unique_ptr<RebuildListener>> Listen(const HostPort& address);

  // Ends all calls.
  ~RebuildListener() override;

  // The last registration of each server.
  std::vector<RegisterRequest> Heard() const;

 private:
  class Call;

  RebuildListener() = default;
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;
  grpc::Status Answer(const std::string& method, grpc::ByteBuffer& request);

  mutable Mutex mu_;
  absl::btree_map<std::string, RegisterRequest> heard_ PAWL_GUARDED_BY(mu_);  // by node
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_REBUILD_LISTENER_H_
