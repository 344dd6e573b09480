// Listens in the place of a scheduler that has lost its state, until the servers have said what they hold.
#ifndef PAWL_SCHEDULER_REBUILD_LISTENER_H_
#define PAWL_SCHEDULER_REBUILD_LISTENER_H_

#include <cstddef>
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

// Memory of all registrations together. Each names the replicas of every partition, in some 180
// bytes a partition: enough for 300 servers of a job with kMaxPartitions, or for kMaxServers of one
// with 20,000 partitions.
inline constexpr size_t kMaxHeardBytes = size_t{4} << 30;

// Answers every call with UNAVAILABLE, so that nodes go on trying, except heartbeats of servers: those it disowns, so
// that they register again and say what they hold. Thread-safe.
class RebuildListener final : private grpc::CallbackGenericService {
 public:
  // Port 0 takes a free one. FAILED_PRECONDITION: it cannot listen there.
  static absl::StatusOr<std::unique_ptr<RebuildListener>> Listen(const HostPort& address, size_t max_bytes = kMaxHeardBytes);

  // Ends all calls.
  ~RebuildListener() override;

  int port() const { return port_; }

  // The last registration of each server.
  std::vector<RegisterRequest> Heard() const;

 private:
  class Call;

  explicit RebuildListener(size_t max_bytes) : max_bytes_(max_bytes) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;
  grpc::Status Answer(const std::string& method, grpc::ByteBuffer& request);
  grpc::Status Hear(RegisterRequest request) PAWL_EXCLUDES(mu_);

  struct Registration {
    RegisterRequest request;
    size_t bytes = 0;
  };

  const size_t max_bytes_;
  int port_ = 0;

  mutable Mutex mu_;
  absl::btree_map<std::string, Registration> heard_ PAWL_GUARDED_BY(mu_);  // by node
  size_t heard_bytes_ PAWL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_REBUILD_LISTENER_H_
