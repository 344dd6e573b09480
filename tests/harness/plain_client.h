// A client that uses only the generated classes, as a program in any language does.
#ifndef PAWL_TESTS_HARNESS_PLAIN_CLIENT_H_
#define PAWL_TESTS_HARNESS_PLAIN_CLIENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter.grpc.pb.h"
#include "proto/scheduler.grpc.pb.h"
#include "proto/server_control.grpc.pb.h"

namespace pawl {

// Uses nothing from client_lib except the partition function, which is part of the wire protocol.
// It sends no heartbeats, so start the scheduler with a long --lease_ms. Not thread-safe.
class PlainClient {
 public:
  // Registers and waits until there is a routing table and every server has it. With WORKER_ROLE it
  // hosts `ranks`.
  static absl::StatusOr<std::unique_ptr<PlainClient>> Join(const std::string& scheduler,
                                                           Role role = CLIENT_ROLE,
                                                           const std::vector<uint32_t>& ranks = {});

  const RegisterResponse& registration() const { return registration_; }
  const RoutingTable& routing() const { return routing_; }
  uint32_t partitions() const { return routing_.primary_size(); }
  Scheduler::Stub& scheduler() { return *scheduler_; }
  // By index in routing().servers.
  Parameter::Stub& server(uint32_t index) { return *servers_[index].parameter; }
  ServerControl::Stub& control(uint32_t index) { return *servers_[index].control; }
  std::shared_ptr<grpc::Channel> channel(uint32_t index) { return servers_[index].channel; }

  absl::StatusOr<TableSpec> CreateTable(const TableSpec& spec);

  // The header of a free-running client.
  RequestHeader ClientHeader() const;
  RequestHeader WorkerHeader(uint32_t rank, uint64_t step) const;

  // Builds a segment of rows that are all in `partition`.
  static PushSegment Segment(const TableSpec& table, uint32_t partition, uint64_t ordinal,
                             const std::vector<uint64_t>& keys, const std::vector<float>& values);
  static std::string PackKeys(const std::vector<uint64_t>& keys);
  static std::string PackValues(const std::vector<float>& values);
  static std::vector<float> UnpackValues(const std::string& bytes);

  // Make one call each, with a deadline.
  grpc::Status Push(uint32_t server, const PushRequest& request, PushResponse* response = nullptr);
  grpc::Status Pull(uint32_t server, const PullRequest& request, PullResponse* response);
  grpc::Status EndStep(uint32_t server, const EndStepRequest& request);

  // Push and pull rows of a sparse table on all servers, as the free-running client.
  absl::Status PushRows(const TableSpec& table, const std::vector<uint64_t>& keys,
                        const std::vector<float>& values);
  absl::StatusOr<std::vector<float>> PullRows(const TableSpec& table,
                                              const std::vector<uint64_t>& keys);

  // Counters and digests of every server. Equal texts mean equal parameters.
  absl::StatusOr<std::vector<InspectResponse>> Inspect();
  absl::StatusOr<std::string> ParameterText();

 private:
  struct Server {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<Parameter::Stub> parameter;
    std::unique_ptr<ServerControl::Stub> control;
  };

  PlainClient() = default;
  absl::Status WaitForServers();

  std::unique_ptr<Scheduler::Stub> scheduler_;
  RegisterResponse registration_;
  RoutingTable routing_;
  std::vector<Server> servers_;
  // The free-running client's next ordinal by partition.
  std::map<uint32_t, uint64_t> next_ordinal_;
};

absl::Status ToAbslStatus(const grpc::Status& status);

// Makes a unary call with arbitrary bytes. Sets `answer`, if given, to the response's bytes.
grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes, bool compressed = false,
                           std::string* answer = nullptr);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_PLAIN_CLIENT_H_
