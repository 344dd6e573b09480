// A fixture for DataPlane tests: a server that has all partitions, and its callers.
#ifndef PAWL_SERVER_DATA_PLANE_TESTING_DATA_PLANE_FIXTURE_H_
#define PAWL_SERVER_DATA_PLANE_TESTING_DATA_PLANE_FIXTURE_H_

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/base/elements.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/rpc/codec.h"
#include "gtest/gtest.h"
#include "server/data_plane/data_plane.h"

namespace pawl {

inline constexpr uint64_t kJobId = 77;
inline constexpr uint32_t kPartitions = 8;
inline constexpr uint32_t kTable = 1;
inline constexpr uint32_t kWidth = 2;
inline constexpr uint32_t kBlocks = 2;
inline constexpr size_t kBlockFloats = 1000;

// A server with all partitions and one table, and its callers' requests.
class DataPlaneTest : public testing::Test, public JobMembership {
 protected:
  MonotonicTime LeaseUntil() const override { return lease_until_; }
  bool HasStarted() const override { return has_started_; }
  void OnHandedOver() override {}

  struct Answer {
    absl::Status status;
    IncomingMessage message;
  };

  void Start(ConsistencyMode mode, uint32_t logical_workers, DataPlaneOptions options = {}) {
    Start(ConsistencyOf(mode), logical_workers, std::move(options));
  }
  void Start(const Consistency& consistency, uint32_t logical_workers,
             DataPlaneOptions options = {}) {
    plane_ = std::make_unique<DataPlane>(options, clock_, nullptr, this);
    RegisterResponse registration;
    registration.set_job_id(kJobId);
    registration.set_node("server-0");
    *registration.mutable_job() = ServerJob(consistency.mode(), kPartitions, logical_workers);
    *registration.mutable_job()->mutable_consistency() = consistency;
    registration.mutable_job()->set_clip_global_norm(clip_global_norm_);
    plane_->Begin(registration);
    plane_->AdoptRouting(Routing(1));
    ASSERT_TRUE(Create(WithSgd(SparseTableSpec("rows", kWidth, kTable))).ok());
  }

  absl::Status Create(const TableSpec& spec) {
    absl::Status created = absl::UnknownError("no answer");
    plane_->CreateTable(plane_->epoch(), spec,
                        [&](absl::Status status) { created = std::move(status); });
    return created;
  }

  // Server 0 has all partitions except `elsewhere`.
  static RoutingTable Routing(uint64_t epoch, int elsewhere = -1) {
    RoutingTable routing;
    routing.set_job_id(kJobId);
    routing.set_epoch(epoch);
    routing.add_servers()->set_node("server-0");
    routing.add_servers()->set_node("server-1");
    for (int p = 0; p < static_cast<int>(kPartitions); ++p)
      routing.add_primary(p == elsewhere ? 1 : 0);
    return routing;
  }

  static RequestHeader WorkerHeader(uint32_t rank, uint64_t step, uint64_t epoch = 1) {
    RequestHeader header;
    header.set_job_id(kJobId);
    header.set_epoch(epoch);
    header.set_logical_worker(rank);
    header.set_incarnation(1);
    header.set_step(step);
    return header;
  }

  static RequestHeader ClientHeader() {
    RequestHeader header;
    header.set_job_id(kJobId);
    header.set_epoch(1);
    header.set_client(0);
    header.set_incarnation(1);
    return header;
  }

  // Adds one segment with one key.
  static void AddRow(PushRequest& request, uint64_t key, std::vector<float> values,
                     uint64_t ordinal = 0) {
    PushSegment& segment = *request.add_segments();
    segment.set_table(kTable);
    segment.set_partition(PartitionOf(kTable, key, kPartitions));
    segment.set_ordinal(ordinal);
    segment.set_element_type(FLOAT32);
    segment.set_keys(std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
    segment.set_values(
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }

  // Converts the gradients to another type. REQUIRES: they are FLOAT32.
  static PushRequest As(ElementType type, PushRequest request, int32_t exponent = 0) {
    for (PushSegment& segment : *request.mutable_segments()) {
      const size_t count = segment.values().size() / sizeof(float);
      std::string bytes(count * ElementBytes(type), '\0');
      EncodeElements(type, segment.values().data(), count, bytes.data(), exponent);
      segment.set_values(bytes);
      segment.set_element_type(type);
      segment.set_exponent(exponent);
    }
    return request;
  }

  static PushRequest RowPush(const RequestHeader& header, uint64_t key, std::vector<float> values,
                             uint64_t ordinal = 0) {
    PushRequest request;
    *request.mutable_header() = header;
    AddRow(request, key, std::move(values), ordinal);
    return request;
  }

  static PullRequest RowPull(const RequestHeader& header, uint64_t key) {
    PullRequest request;
    *request.mutable_header() = header;
    PullSegment& segment = *request.add_segments();
    segment.set_table(kTable);
    segment.set_partition(PartitionOf(kTable, key, kPartitions));
    segment.set_keys(std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
    return request;
  }

  // Sends the request as serialized by protobuf. The result is set when the reply comes.
  std::shared_ptr<std::optional<Answer>> Send(
      Method method, const google::protobuf::MessageLite& request,
      MonotonicDuration timeout = std::chrono::seconds(10)) {
    auto bytes = std::make_shared<std::string>(request.SerializeAsString());
    auto answer = std::make_shared<std::optional<Answer>>();
    CallContext context;
    context.deadline = clock_.Now() + timeout;
    plane_->Handle(method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes}, context,
                   [answer](absl::Status status, OutgoingMessage message) {
                     EXPECT_FALSE(answer->has_value()) << "answered twice";
                     *answer = Answer{status, {message.bytes, message.owner}};
                   });
    return answer;
  }

  absl::Status Push(const PushRequest& request) { return (*Send(Method::kPush, request))->status; }

  absl::Status EndStep(uint32_t rank, uint64_t step) {
    EndStepRequest request;
    *request.mutable_header() = WorkerHeader(rank, step);
    return (*Send(Method::kEndStep, request))->status;
  }

  static std::vector<float> Values(const Answer& answer) {
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    std::string bytes(answer.message.bytes.size(), '\0');
    answer.message.bytes.CopyTo(bytes.data());
    PullResponse response;
    EXPECT_TRUE(response.ParseFromString(bytes));
    std::vector<float> values(kWidth);
    if (response.results_size() != 1) return {};
    std::memcpy(values.data(), response.results(0).values().data(), kWidth * sizeof(float));
    return values;
  }

  // Creates a dense table with one block.
  void CreateBlocks() {
    ASSERT_TRUE(Create(WithSgd(DenseTableSpec("blocks", {kBlockFloats}, kBlocks))).ok());
  }

  PushRequest BlockPush(float value) {
    PushRequest request =
        RowPush(ClientHeader(), 0, std::vector<float>(kBlockFloats, value), next_ordinal_++);
    request.mutable_segments(0)->set_table(kBlocks);
    request.mutable_segments(0)->set_partition(PartitionOf(kBlocks, 0, kPartitions));
    return request;
  }

  static PullRequest BlockPull() {
    PullRequest request = RowPull(ClientHeader(), 0);
    request.mutable_segments(0)->set_table(kBlocks);
    request.mutable_segments(0)->set_partition(PartitionOf(kBlocks, 0, kPartitions));
    return request;
  }

  static std::vector<float> BlockValues(const Answer& answer) {
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    const auto response = DecodePullResponse(answer.message.bytes);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok() || response->results.size() != 1 ||
        response->results[0].values.size() % sizeof(float) != 0)
      return {};
    std::vector<float> values(response->results[0].values.size() / sizeof(float));
    response->results[0].values.CopyTo(values.data());
    return values;
  }

  std::vector<float> Row(uint64_t key) {
    RequestHeader header;
    header.set_job_id(kJobId);
    header.set_epoch(plane_->epoch());
    return Values(**Send(Method::kPull, RowPull(header, key)));
  }

  SimulatedClock clock_;
  // The end of this server's lease.
  MonotonicTime lease_until_ = MonotonicTime::max();
  // Job.clip_global_norm.
  float clip_global_norm_ = 0;
  // HeartbeatResponse.job_started.
  bool has_started_ = true;
  std::unique_ptr<DataPlane> plane_;
  uint64_t next_ordinal_ = 0;  // of BlockPush
};

using Floats = std::vector<float>;

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_TESTING_DATA_PLANE_FIXTURE_H_
