#include "tests/harness/plain_client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "grpcpp/generic/generic_stub.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kCallTimeout{10};
// Above the servers' message limit, so that the server and not this library refuses a message.
constexpr int kMaxMessageBytes = 256 << 20;

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

absl::Status ToAbslStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::StatusOr<std::unique_ptr<PlainClient>> PlainClient::Join(const std::string& scheduler,
                                                               Role role,
                                                               const std::vector<uint32_t>& ranks) {
  std::unique_ptr<PlainClient> client(new PlainClient());
  client->scheduler_ = Scheduler::NewStub(Connect(scheduler));
  RegisterRequest request;
  request.set_role(role);
  request.set_process_nonce(std::random_device()() | uint64_t{1} << 40);
  request.set_description(absl::StrCat("plain:", getpid()));
  for (const uint32_t rank : ranks) request.add_logical_workers(rank);
  {
    grpc::ClientContext context;
    SetDeadline(context);
    PAWL_RETURN_IF_ERROR(
        ToAbslStatus(client->scheduler_->Register(&context, request, &client->registration_)));
  }
  grpc::ClientContext context;
  SetDeadline(context);
  PAWL_RETURN_IF_ERROR(ToAbslStatus(
      client->scheduler_->GetRouting(&context, GetRoutingRequest(), &client->routing_)));
  for (const ServerAddress& server : client->routing_.servers()) {
    Server& entry = client->servers_.emplace_back();
    entry.channel = Connect(server.address());
    entry.parameter = Parameter::NewStub(entry.channel);
    entry.control = ServerControl::NewStub(entry.channel);
  }
  PAWL_RETURN_IF_ERROR(client->WaitForServers());
  return client;
}

absl::Status PlainClient::WaitForServers() {
  PullRequest nothing;
  *nothing.mutable_header() = ClientHeader();
  for (size_t server = 0; server < servers_.size(); ++server) {
    grpc::Status status;
    Eventually(
        [&] {
          PullResponse response;
          status = Pull(server, nothing, &response);
          return status.error_code() != grpc::StatusCode::UNAVAILABLE;
        },
        kCallTimeout);
    PAWL_RETURN_IF_ERROR(Annotate(ToAbslStatus(status), absl::StrCat("server ", server)));
  }
  return absl::OkStatus();
}

absl::StatusOr<TableSpec> PlainClient::CreateTable(const TableSpec& spec) {
  grpc::ClientContext context;
  SetDeadline(context);
  CreateTableRequest request;
  *request.mutable_table() = spec;
  CreateTableResponse response;
  PAWL_RETURN_IF_ERROR(ToAbslStatus(scheduler_->CreateTable(&context, request, &response)));
  return response.table();
}

RequestHeader PlainClient::ClientHeader() const {
  RequestHeader header;
  header.set_job_id(registration_.job_id());
  header.set_epoch(routing_.epoch());
  header.set_client(registration_.client());
  header.set_incarnation(registration_.incarnation());
  return header;
}

RequestHeader PlainClient::WorkerHeader(uint32_t rank, uint64_t step) const {
  RequestHeader header = ClientHeader();
  header.set_logical_worker(rank);
  header.set_step(step);
  return header;
}

std::string PlainClient::PackKeys(const std::vector<uint64_t>& keys) {
  return std::string(reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(uint64_t));
}

std::string PlainClient::PackValues(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::vector<float> PlainClient::UnpackValues(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

PushSegment PlainClient::Segment(const TableSpec& table, uint32_t partition, uint64_t ordinal,
                                 const std::vector<uint64_t>& keys,
                                 const std::vector<float>& values) {
  PushSegment segment;
  segment.set_table(table.id());
  segment.set_partition(partition);
  segment.set_ordinal(ordinal);
  segment.set_element_type(FLOAT32);
  segment.set_keys(PackKeys(keys));
  segment.set_values(PackValues(values));
  return segment;
}

grpc::Status PlainClient::Push(uint32_t server, const PushRequest& request,
                               PushResponse* response) {
  grpc::ClientContext context;
  SetDeadline(context);
  PushResponse ignored;
  return servers_[server].parameter->Push(&context, request,
                                          response == nullptr ? &ignored : response);
}

grpc::Status PlainClient::Pull(uint32_t server, const PullRequest& request,
                               PullResponse* response) {
  grpc::ClientContext context;
  SetDeadline(context);
  return servers_[server].parameter->Pull(&context, request, response);
}

grpc::Status PlainClient::EndStep(uint32_t server, const EndStepRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context);
  EndStepResponse response;
  return servers_[server].parameter->EndStep(&context, request, &response);
}

absl::Status PlainClient::PushRows(const TableSpec& table, const std::vector<uint64_t>& keys,
                                   const std::vector<float>& values) {
  std::map<uint32_t, std::pair<std::vector<uint64_t>, std::vector<float>>> by_partition;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto& [part_keys, part_values] = by_partition[PartitionOf(table.id(), keys[i], partitions())];
    part_keys.push_back(keys[i]);
    part_values.insert(part_values.end(), &values[i * table.row_width()],
                       &values[(i + 1) * table.row_width()]);
  }
  std::map<uint32_t, PushRequest> by_server;
  for (const auto& [partition, part] : by_partition) {
    *by_server[routing_.primary(partition)].add_segments() =
        Segment(table, partition, next_ordinal_[partition]++, part.first, part.second);
  }
  for (auto& [server, request] : by_server) {
    *request.mutable_header() = ClientHeader();
    PAWL_RETURN_IF_ERROR(ToAbslStatus(Push(server, request)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> PlainClient::PullRows(const TableSpec& table,
                                                         const std::vector<uint64_t>& keys) {
  std::map<uint32_t, std::vector<size_t>> places;
  for (size_t i = 0; i < keys.size(); ++i)
    places[PartitionOf(table.id(), keys[i], partitions())].push_back(i);
  std::vector<float> rows(keys.size() * table.row_width());
  for (const auto& [partition, part] : places) {
    PullRequest request;
    *request.mutable_header() = ClientHeader();
    std::vector<uint64_t> part_keys;
    for (const size_t place : part) part_keys.push_back(keys[place]);
    PullSegment& segment = *request.add_segments();
    segment.set_table(table.id());
    segment.set_partition(partition);
    segment.set_keys(PackKeys(part_keys));
    PullResponse response;
    PAWL_RETURN_IF_ERROR(ToAbslStatus(Pull(routing_.primary(partition), request, &response)));
    if (response.results_size() != 1)
      return absl::InternalError("a pull of one segment must have one result");
    const std::vector<float> values = UnpackValues(response.results(0).values());
    if (values.size() != part.size() * table.row_width())
      return absl::InternalError("a result has the wrong size");
    for (size_t i = 0; i < part.size(); ++i) {
      std::copy_n(&values[i * table.row_width()], table.row_width(),
                  &rows[part[i] * table.row_width()]);
    }
  }
  return rows;
}

absl::StatusOr<std::vector<InspectResponse>> PlainClient::Inspect() {
  std::vector<InspectResponse> answers;
  for (Server& server : servers_) {
    grpc::ClientContext context;
    SetDeadline(context);
    InspectRequest request;
    request.set_job_id(registration_.job_id());
    request.set_digest(true);
    PAWL_RETURN_IF_ERROR(
        ToAbslStatus(server.control->Inspect(&context, request, &answers.emplace_back())));
  }
  return answers;
}

absl::StatusOr<std::string> PlainClient::ParameterText() {
  PAWL_ASSIGN_OR_RETURN(const std::vector<InspectResponse> answers, Inspect());
  std::string text;
  for (const InspectResponse& answer : answers) {
    for (const PartitionDigest& digest : answer.digests())
      absl::StrAppend(&text, digest.ShortDebugString(), "\n");
  }
  return text;
}

grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes, bool compressed, std::string* answer) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  SetDeadline(context);
  if (compressed) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  grpc::CompletionQueue queue;
  grpc::Slice slice(bytes);
  auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice flat;
  if (status.ok() && answer != nullptr && response.DumpToSingleSlice(&flat).ok())
    answer->assign(reinterpret_cast<const char*>(flat.begin()), flat.size());
  return status;
}

}  // namespace pawl
