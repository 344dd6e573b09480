#include "server/data_plane.h"

#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/base/elements.h"
#include "client_lib/base/half.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/simulated_clock.h"
#include "client_lib/rpc/codec.h"
#include "gtest/gtest.h"
#include "server/replication/change_log.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr uint32_t kPartitions = 8;
constexpr uint32_t kTable = 1;
constexpr uint32_t kWidth = 2;
constexpr uint32_t kBlocks = 2;
constexpr size_t kBlockFloats = 1000;

// Has room for what it was asked for, and remembers how much that was.
class AskedLog final : public ChangeLog {
 public:
  absl::Status CheckRoom(uint64_t bytes) const override {
    asked = bytes;
    return absl::OkStatus();
  }
  void Append(uint32_t, uint64_t, const ByteView& entry, std::shared_ptr<const void>) override { written += entry.size(); }
  absl::Status SaveSnapshot(uint32_t, uint64_t, absl::string_view) override { return absl::OkStatus(); }
  void Drop(uint32_t) override {}

  mutable uint64_t asked = 0;
  uint64_t written = 0;
};

// A server with all partitions and one table, and what its callers do.
class DataPlaneTest : public testing::Test {
 protected:
  struct Answer {
    absl::Status status;
    IncomingMessage message;
    // Keeps an answer's memory.
    OutgoingMessage outgoing;
  };

  void Start(ConsistencyMode mode, uint32_t logical_workers, DataPlaneOptions options = {}) {
    plane_ = std::make_unique<DataPlane>(options, clock_);
    Job job;
    job.set_seed(3);
    job.set_partitions(kPartitions);
    job.set_logical_workers(logical_workers);
    job.mutable_consistency()->set_mode(mode);
    RegisterResponse registration;
    registration.set_job_id(kJobId);
    registration.set_node("server-0");
    *registration.mutable_job() = job;
    plane_->Begin(registration);
    plane_->AdoptRouting(Routing(1));
    TableSpec spec;
    spec.set_id(kTable);
    spec.set_name("rows");
    spec.set_kind(SPARSE);
    spec.set_element_type(FLOAT32);
    spec.set_row_width(kWidth);
    spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
    ASSERT_TRUE(Create(spec).ok());
  }

  absl::Status Create(const TableSpec& spec) {
    absl::Status created = absl::UnknownError("no answer");
    plane_->CreateTable(plane_->epoch(), spec, [&](absl::Status status) { created = std::move(status); });
    return created;
  }

  // Server 0 has all partitions but `elsewhere`.
  static RoutingTable Routing(uint64_t epoch, int elsewhere = -1) {
    RoutingTable routing;
    routing.set_job_id(kJobId);
    routing.set_epoch(epoch);
    routing.add_servers()->set_node("server-0");
    routing.add_servers()->set_node("server-1");
    for (int p = 0; p < static_cast<int>(kPartitions); ++p) routing.add_primary(p == elsewhere ? 1 : 0);
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

  // One segment for one key.
  static void AddRow(PushRequest& request, uint64_t key, std::vector<float> values, uint64_t ordinal = 0) {
    PushSegment& segment = *request.add_segments();
    segment.set_table(kTable);
    segment.set_partition(PartitionOf(kTable, key, kPartitions));
    segment.set_ordinal(ordinal);
    segment.set_element_type(FLOAT32);
    segment.set_keys(std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
    segment.set_values(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }

  // The same gradients in another type. REQUIRES: they are of FLOAT32.
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

  static PushRequest RowPush(const RequestHeader& header, uint64_t key, std::vector<float> values, uint64_t ordinal = 0) {
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

  // Sends what protobuf serializes; `answer` is filled when the reply comes.
  std::shared_ptr<std::optional<Answer>> Send(Method method, const google::protobuf::MessageLite& request,
                                              MonotonicDuration timeout = std::chrono::seconds(10)) {
    auto bytes = std::make_shared<std::string>(request.SerializeAsString());
    auto answer = std::make_shared<std::optional<Answer>>();
    CallContext context;
    context.deadline = clock_.Now() + timeout;
    plane_->Handle(method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes}, context,
                   [answer](absl::Status status, OutgoingMessage message) {
                     EXPECT_FALSE(answer->has_value()) << "answered twice";
                     *answer = Answer{status, {message.bytes, message.owner}, message};
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

  // A dense table of one block.
  void CreateBlocks() {
    TableSpec spec;
    spec.set_id(kBlocks);
    spec.set_name("blocks");
    spec.set_kind(DENSE);
    spec.set_element_type(FLOAT32);
    spec.add_shape(kBlockFloats);
    spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
    ASSERT_TRUE(Create(spec).ok());
  }

  PushRequest BlockPush(float value) {
    PushRequest request = RowPush(ClientHeader(), 0, std::vector<float>(kBlockFloats, value), next_ordinal_++);
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
    if (!response.ok() || response->results.size() != 1 || response->results[0].size() % sizeof(float) != 0) return {};
    std::vector<float> values(response->results[0].size() / sizeof(float));
    response->results[0].CopyTo(values.data());
    return values;
  }

  std::vector<float> Row(uint64_t key) {
    RequestHeader header;
    header.set_job_id(kJobId);
    header.set_epoch(plane_->epoch());
    return Values(**Send(Method::kPull, RowPull(header, key)));
  }

  SimulatedClock clock_;
  std::unique_ptr<DataPlane> plane_;
  uint64_t next_ordinal_ = 0;  // of BlockPush
};

using Floats = std::vector<float>;

TEST_F(DataPlaneTest, AnswersUnavailableBeforeItHasARouting) {
  plane_ = std::make_unique<DataPlane>(DataPlaneOptions(), clock_);
  EXPECT_EQ(Push(RowPush(ClientHeader(), 1, {1, 1})).code(), absl::StatusCode::kUnavailable);
}

TEST_F(DataPlaneTest, PushesAndPulls) {
  Start(ASYNC, 1);
  EXPECT_TRUE(Push(RowPush(ClientHeader(), 1, {1, 2})).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

TEST_F(DataPlaneTest, RefusesAPushAsAWholeIfOnePartOfItIsWrong) {
  Start(ASYNC, 1);
  const auto refused = [&](absl::StatusCode code, auto spoil) {
    PushRequest request = RowPush(ClientHeader(), 1, {1, 2});
    AddRow(request, 2, {3, 4});
    spoil(request, *request.mutable_segments(1));
    EXPECT_EQ(Push(request).code(), code);
    EXPECT_EQ(Row(1), (Floats{0, 0}));
  };
  using absl::StatusCode;
  refused(StatusCode::kNotFound, [](auto&, PushSegment& segment) { segment.set_table(9); });
  refused(StatusCode::kNotFound, [](PushRequest& request, auto&) { request.mutable_header()->set_job_id(1); });
  refused(StatusCode::kOutOfRange, [](auto&, PushSegment& segment) { segment.set_partition(kPartitions); });
  refused(StatusCode::kInvalidArgument,
          [](auto&, PushSegment& segment) { segment.set_partition((segment.partition() + 1) % kPartitions); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) { segment.set_values("short"); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) { segment.mutable_keys()->push_back('x'); });
  refused(StatusCode::kInvalidArgument,
          [](auto&, PushSegment& segment) { segment.set_element_type(static_cast<ElementType>(4)); });
  // The values of two floats are those of four numbers of 16 bits.
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) { segment.set_element_type(BFLOAT16); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    segment.set_element_type(FLOAT16);
    segment.set_values("abc");
  });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    // Infinity as FLOAT16; as BFLOAT16 it would be a number.
    segment.set_element_type(FLOAT16);
    segment.set_values(std::string("\x00\x3c\x00\x7c", 4));
  });
  refused(StatusCode::kInvalidArgument, [](PushRequest& request, auto&) { request.mutable_header()->clear_sender(); });
  refused(StatusCode::kOutOfRange, [](PushRequest& request, auto&) { request.mutable_header()->set_logical_worker(1); });
  refused(StatusCode::kOutOfRange, [](PushRequest& request, auto&) { request.mutable_header()->set_client(kMaxClients); });
  refused(StatusCode::kOutOfRange, [](auto&, PushSegment& segment) { segment.set_ordinal(kPushWindow + 5); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    const float values[] = {1, std::numeric_limits<float>::quiet_NaN()};
    segment.set_values(std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  });
  EXPECT_EQ(plane_->Counters(false).requests_refused(), 15u);
  // None of these has used up the push id.
  EXPECT_TRUE(Push(RowPush(ClientHeader(), 1, {1, 2})).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

TEST_F(DataPlaneTest, RefusesASegmentThatWouldNotFitIntoARecordOfTheLog) {
  Start(ASYNC, 1);
  PushRequest request = RowPush(ClientHeader(), 1, {1, 2});
  request.mutable_segments(0)->mutable_values()->resize((size_t{64} << 20) - 100);
  const absl::Status status = Push(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the limit is 67104768"), absl::string_view::npos) << status;
}

TEST_F(DataPlaneTest, TakesGradientsOfAnyTypeAndTakesTheUnspecifiedForFloats) {
  Start(ASYNC, 1);
  uint64_t ordinal = 0;
  const auto push = [&](ElementType type, std::vector<float> values) {
    PushRequest request = RowPush(ClientHeader(), 1, values, ordinal++);
    request.mutable_segments(0)->set_element_type(type);
    std::string bytes(values.size() * ElementBytes(type), '\0');
    EncodeElements(type, values.data(), values.size(), bytes.data());
    request.mutable_segments(0)->set_values(bytes);
    return Push(request);
  };
  EXPECT_TRUE(push(BFLOAT16, {1, 1.0f / 3}).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -FloatOfBfloat16(Bfloat16Of(1.0f / 3))}));
  EXPECT_TRUE(push(FLOAT16, {-1, 0}).ok());
  EXPECT_TRUE(push(ELEMENT_TYPE_UNSPECIFIED, {0, 0.5f}).ok());
  EXPECT_EQ(Row(1), (Floats{0, -FloatOfBfloat16(Bfloat16Of(1.0f / 3)) - 0.5f}));
}

TEST_F(DataPlaneTest, ASegmentOf16BitsMustFitAsTheFloatsThatItBecomes) {
  Start(ASYNC, 1);
  PushRequest request = RowPush(ClientHeader(), 1, {1, 2});
  request.mutable_segments(0)->set_element_type(BFLOAT16);
  request.mutable_segments(0)->mutable_values()->resize(size_t{33} << 20);
  const absl::Status status = Push(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the limit is 67104768"), absl::string_view::npos) << status;
}

TEST_F(DataPlaneTest, AnExponentIsOfFloat16AloneAndWithinBounds) {
  Start(ASYNC, 1);
  EXPECT_TRUE(Push(As(FLOAT16, RowPush(ClientHeader(), 1, {3e-9f, -1e-10f}), -40)).ok());
  const Floats row = Row(1);
  EXPECT_NEAR(row[0], -3e-9f, 3e-12f);
  EXPECT_NEAR(row[1], 1e-10f, 1e-13f);
  for (const auto& [type, exponent] : {std::pair(FLOAT16, 113), {FLOAT16, -126}, {BFLOAT16, 1}, {FLOAT32, -1}}) {
    PushRequest request = As(type, RowPush(ClientHeader(), 1, {1, 2}, 1));
    request.mutable_segments(0)->set_exponent(exponent);
    const absl::Status status = Push(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("exponent"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(Row(1), row);
}

TEST_F(DataPlaneTest, ADuplicateInAnotherTypeIsADuplicate) {
  Start(ASYNC, 1);
  ASSERT_TRUE(Push(RowPush(ClientHeader(), 1, {1, 2})).ok());
  const auto answer = Send(Method::kPush, As(BFLOAT16, RowPush(ClientHeader(), 1, {1, 2})));
  ASSERT_TRUE((*answer)->status.ok());
  PushResponse response;
  ASSERT_TRUE(DecodeSmall((*answer)->message.bytes, response).ok());
  EXPECT_EQ(response.deduplicated(), 1u);
  EXPECT_EQ(response.accepted(), 0u);
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

TEST_F(DataPlaneTest, AMessageOf16BitsIsInFlightWithTheFloatsThatItBecomes) {
  PushRequest waiting;
  *waiting.mutable_header() = WorkerHeader(0, 1);
  for (uint64_t key = 1; key < 20; ++key) AddRow(waiting, key, {1, 1}, key);
  waiting = As(BFLOAT16, waiting);
  const PushRequest small = RowPush(WorkerHeader(1, 0), 1, {2, 4});
  const size_t decoded = 19 * (sizeof(uint64_t) + kWidth * sizeof(float));
  for (const size_t missing : {0, 1}) {
    DataPlaneOptions options;
    options.max_bytes_in_flight = waiting.ByteSizeLong() + decoded + small.ByteSizeLong() - missing;
    Start(SYNC, 2, options);
    ASSERT_TRUE(EndStep(0, 0).ok());
    const auto answer = Send(Method::kPush, waiting);
    ASSERT_FALSE(answer->has_value());
    EXPECT_EQ(Push(small).code(), missing == 0 ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted);
    plane_->Close(absl::UnavailableError("the end"));
  }
}

TEST_F(DataPlaneTest, TheLogIsAskedForRoomForTheFloats) {
  AskedLog log;
  Start(ASYNC, 1);
  CreateBlocks();
  // Replicas that began without a log do not wait for it.
  plane_->SetLog(log);
  const PushRequest floats = BlockPush(1);
  for (const ElementType type : {FLOAT32, BFLOAT16, FLOAT16}) {
    log.written = 0;
    PushRequest request = As(type, floats);
    request.mutable_segments(0)->set_ordinal(next_ordinal_++);
    const size_t values = kBlockFloats * ElementBytes(type);
    EXPECT_TRUE(Push(request).ok());
    EXPECT_EQ(log.asked, request.ByteSizeLong() - values + kBlockFloats * sizeof(float));
    EXPECT_GT(log.written, kBlockFloats * sizeof(float));
    EXPECT_LT(log.written, log.asked + 100);
  }
  plane_->Close(absl::UnavailableError("the end"));
}

// It keeps a small message of FLOAT32, and of one of 16 bits the floats alone.
TEST_F(DataPlaneTest, AnEarlyGradientOf16BitsKeepsNothingOfItsMessage) {
  for (const ElementType type : {FLOAT32, BFLOAT16, FLOAT16}) {
    Start(SYNC, 4);
    std::vector<std::weak_ptr<const void>> messages;
    for (const uint32_t rank : {3u, 2u, 1u, 0u}) {
      auto bytes = std::make_shared<std::string>(
          As(type, RowPush(WorkerHeader(rank, 0), 1, {1.0f + rank, 0.5f})).SerializeAsString());
      messages.push_back(bytes);
      CallContext context;
      context.deadline = clock_.Now() + std::chrono::seconds(10);
      absl::Status pushed = absl::UnknownError("no answer");
      const ByteView view(bytes->data(), bytes->size());
      plane_->Handle(Method::kPush, IncomingMessage{view, std::move(bytes)}, context,
                     [&pushed](absl::Status status, OutgoingMessage) { pushed = std::move(status); });
      ASSERT_TRUE(pushed.ok()) << pushed;
    }
    EXPECT_EQ(messages[0].expired(), type != FLOAT32);
    EXPECT_EQ(messages[1].expired(), type != FLOAT32);
    EXPECT_EQ(messages[2].expired(), type != FLOAT32);
    EXPECT_TRUE(messages[3].expired());
    for (uint32_t rank = 0; rank < 4; ++rank) ASSERT_TRUE(EndStep(rank, 0).ok());
    EXPECT_EQ(Row(1), (Floats{-2.5f, -0.5f}));
  }
}

TEST_F(DataPlaneTest, ARoutingThatIsTooLargeForAnErrorSendsItsEpoch) {
  Start(ASYNC, 1);
  const uint32_t partition = PartitionOf(kTable, 1, kPartitions);
  RoutingTable large = Routing(2, partition);
  large.mutable_servers(1)->set_address(std::string(300 << 10, 'a'));
  plane_->AdoptRouting(large);
  const absl::Status status = Push(RowPush(ClientHeader(), 1, {1, 2}));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  RoutingTable routing;
  ASSERT_TRUE(status.GetPayload(kRoutingPayloadUrl).has_value());
  ASSERT_TRUE(routing.ParseFromString(std::string(*status.GetPayload(kRoutingPayloadUrl))));
  EXPECT_EQ(routing.epoch(), 2u);
  EXPECT_EQ(routing.job_id(), kJobId);
  EXPECT_EQ(routing.primary_size(), 0);
  EXPECT_EQ(routing.servers_size(), 0);
}

// A peer may attach anything to an error.
TEST_F(DataPlaneTest, ARoutingWithoutPartitionsOrOfAnotherJobChangesNothing) {
  Start(ASYNC, 1);
  ASSERT_TRUE(Push(RowPush(ClientHeader(), 7, {1.0f, 2.0f})).ok());
  RoutingTable brief;
  brief.set_job_id(kJobId);
  brief.set_epoch(2);
  plane_->AdoptRouting(brief);
  RoutingTable of_another_job = Routing(3);
  of_another_job.set_job_id(kJobId + 1);
  plane_->AdoptRouting(of_another_job);
  RoutingTable with_less = Routing(4);
  with_less.mutable_primary()->RemoveLast();
  plane_->AdoptRouting(with_less);
  RoutingTable with_more = Routing(5);
  with_more.add_primary(0);
  plane_->AdoptRouting(with_more);
  EXPECT_EQ(plane_->epoch(), 1u);
  EXPECT_EQ(Row(7), (Floats{-1.0f, -2.0f}));
}

TEST_F(DataPlaneTest, TellsTheRoutingToWhoHasAnOldOne) {
  Start(ASYNC, 1);
  const uint32_t partition = PartitionOf(kTable, 1, kPartitions);
  plane_->AdoptRouting(Routing(2, partition));
  const auto check = [&](PushRequest request, uint64_t epoch) {
    request.mutable_header()->set_epoch(epoch);
    const absl::Status status = Push(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    RoutingTable routing;
    ASSERT_TRUE(status.GetPayload(kRoutingPayloadUrl).has_value());
    ASSERT_TRUE(routing.ParseFromString(std::string(*status.GetPayload(kRoutingPayloadUrl))));
    EXPECT_EQ(routing.epoch(), 2u);
    EXPECT_EQ(routing.primary(partition), 1u);
  };
  check(RowPush(ClientHeader(), 1, {1, 2}), 1);  // an old epoch
  check(RowPush(ClientHeader(), 1, {1, 2}), 2);  // the right one, the wrong server
  PushRequest ahead = RowPush(ClientHeader(), 1, {1, 2});
  ahead.mutable_header()->set_epoch(3);
  EXPECT_EQ(Push(ahead).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(plane_->Counters(false).requests_refused(), 0u);
}

TEST_F(DataPlaneTest, APullWaitsForItsStepAndIsAnsweredByTheLastEndStep) {
  Start(SYNC, 2);
  ASSERT_TRUE(Push(RowPush(WorkerHeader(0, 0), 1, {2, 4})).ok());
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto pull = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1));
  EXPECT_FALSE(pull->has_value());
  EXPECT_EQ(plane_->Counters(false).waiting_calls(), 1u);
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ(Values(**pull), (Floats{-1, -2}));
  EXPECT_EQ(plane_->Counters(false).waiting_calls(), 0u);
}

TEST_F(DataPlaneTest, APushOfTheNextStepWaitsForItToBegin) {
  Start(SYNC, 2);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto push = Send(Method::kPush, RowPush(WorkerHeader(0, 1), 1, {2, 4}));
  EXPECT_FALSE(push->has_value());
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(push->has_value());
  EXPECT_TRUE((*push)->status.ok());
  ASSERT_TRUE(EndStep(0, 1).ok());
  ASSERT_TRUE(EndStep(1, 1).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

TEST_F(DataPlaneTest, AWaitingCallEndsAtItsDeadline) {
  Start(SYNC, 2);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto pull = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1), std::chrono::seconds(5));
  clock_.Advance(std::chrono::seconds(4));
  plane_->Tick();
  EXPECT_FALSE(pull->has_value());
  clock_.Advance(std::chrono::seconds(1));
  plane_->Tick();
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ((*pull)->status.code(), absl::StatusCode::kDeadlineExceeded);
  // What it waited for comes later and finds nobody.
  EXPECT_TRUE(EndStep(1, 0).ok());
}

TEST_F(DataPlaneTest, AWaitingCallOfAGoneCallerIsForgotten) {
  Start(SYNC, 2);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const std::string bytes = RowPull(WorkerHeader(0, 1), 1).SerializeAsString();
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  bool answered = false;
  plane_->Handle(Method::kPull, IncomingMessage{ByteView(bytes.data(), bytes.size()), nullptr},
                 CallContext{clock_.Now() + std::chrono::hours(1), cancelled},
                 [&](absl::Status, OutgoingMessage) { answered = true; });
  plane_->Tick();
  EXPECT_FALSE(answered);
  *cancelled = true;
  plane_->Tick();
  EXPECT_TRUE(answered);
}

TEST_F(DataPlaneTest, CloseAnswersAllWhoWaitAndAllWhoCome) {
  Start(SYNC, 2);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto pull = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1));
  plane_->Close(absl::FailedPreconditionError("worker-1 died"));
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ((*pull)->status.message(), "worker-1 died");
  EXPECT_EQ(EndStep(1, 0).message(), "worker-1 died");
}

TEST_F(DataPlaneTest, RefusesMoreBytesInFlightThanItsLimitAndSaysWhenToComeBack) {
  DataPlaneOptions options;
  options.max_bytes_in_flight = 100;
  Start(SYNC, 2, options);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting = Send(Method::kPush, RowPush(WorkerHeader(0, 1), 1, {2, 4}));
  ASSERT_FALSE(waiting->has_value());
  PushRequest large = RowPush(WorkerHeader(1, 0), 1, {2, 4});
  for (uint64_t key = 2; key < 10; ++key) AddRow(large, key, {1, 1}, key);
  const absl::Status status = Push(large);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(status.GetPayload(kPushbackPayloadUrl).has_value());
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(waiting->has_value());
  // Nothing is in flight now, so even a large one is taken.
  large.mutable_header()->set_step(1);
  EXPECT_TRUE(Push(large).ok());
}

TEST_F(DataPlaneTest, PullsThatWaitKeepOnlySoManyBytesOfRequests) {
  DataPlaneOptions options;
  options.max_waiting_pull_bytes = 1;
  Start(SYNC, 2, options);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1));
  ASSERT_FALSE(waiting->has_value());
  const auto refused = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 2));
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((*refused)->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*refused)->status.GetPayload(kPushbackPayloadUrl).has_value());
  ASSERT_TRUE(EndStep(1, 0).ok());
  EXPECT_TRUE(waiting->value().status.ok());
  EXPECT_TRUE((*Send(Method::kPull, RowPull(WorkerHeader(0, 1), 2)))->status.ok());
}

TEST_F(DataPlaneTest, ADensePullRefersToTheBlocksAndKeepsThemAsTheyWere) {
  Start(ASYNC, 1);
  CreateBlocks();
  ASSERT_TRUE(Push(BlockPush(1)).ok());
  const auto first = Send(Method::kPull, BlockPull());
  const auto second = Send(Method::kPull, BlockPull());
  ASSERT_TRUE(Push(BlockPush(1)).ok());
  const auto third = Send(Method::kPull, BlockPull());
  EXPECT_EQ(BlockValues(**first), Floats(kBlockFloats, -1));
  EXPECT_EQ(BlockValues(**second), Floats(kBlockFloats, -1));
  EXPECT_EQ(BlockValues(**third), Floats(kBlockFloats, -2));
  const auto where = [](const auto& answer) { return answer->value().message.bytes.fragments()[1].data(); };
  EXPECT_EQ(where(first), where(second));
  EXPECT_NE(where(first), where(third));
}

// What the network has not taken yet is memory that cannot be freed.
TEST_F(DataPlaneTest, AnAnswerIsInFlightUntilItsMemoryIsGivenBack) {
  DataPlaneOptions options;
  options.max_bytes_in_flight = 3 * kBlockFloats * sizeof(float) / 2;
  Start(ASYNC, 1, options);
  CreateBlocks();
  const auto first = Send(Method::kPull, BlockPull());
  ASSERT_TRUE((*first)->status.ok());
  const auto refused = Send(Method::kPull, BlockPull());
  EXPECT_EQ((*refused)->status.code(), absl::StatusCode::kResourceExhausted);
  first->reset();
  const auto last = Send(Method::kPull, BlockPull());
  ASSERT_TRUE((*last)->status.ok());
  plane_.reset();
  EXPECT_EQ(BlockValues(**last), Floats(kBlockFloats, 0));
}

TEST_F(DataPlaneTest, CreateTableIsIdempotentForAnEqualSpecOnly) {
  Start(ASYNC, 1);
  TableSpec spec;
  spec.set_id(2);
  spec.set_name("dense");
  spec.set_kind(DENSE);
  spec.set_element_type(FLOAT32);
  spec.add_shape(10);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  EXPECT_TRUE(Create(spec).ok());
  EXPECT_TRUE(Create(spec).ok());
  spec.set_shape(0, 11);
  EXPECT_EQ(Create(spec).code(), absl::StatusCode::kAlreadyExists);
}

// Every thread is a logical worker that pushes, ends its step and waits for the next one.
TEST_F(DataPlaneTest, WorkersOnManyThreadsAgreeOnEveryStep) {
  constexpr uint32_t kWorkers = 4;
  constexpr uint64_t kSteps = 50;
  Start(SYNC, kWorkers);
  const auto work = [&](uint32_t rank) {
    for (uint64_t step = 0; step < kSteps; ++step) {
      Mutex mu;
      CondVar changed;
      std::optional<Answer> answer;
      const auto call = [&](Method method, const google::protobuf::MessageLite& request) {
        auto bytes = std::make_shared<std::string>(request.SerializeAsString());
        answer.reset();
        plane_->Handle(method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes},
                       CallContext{clock_.Now() + std::chrono::seconds(100), nullptr},
                       [&](absl::Status status, OutgoingMessage message) {
                         MutexLock lock(mu);
                         answer = Answer{status, {message.bytes, message.owner}, message};
                         changed.NotifyAll();
                       });
        MutexLock lock(mu);
        while (!answer.has_value()) {
          if (!changed.WaitUntil(mu, std::chrono::steady_clock::now() + std::chrono::seconds(60))) break;
        }
        return answer.has_value() && answer->status.ok();
      };
      ASSERT_TRUE(call(Method::kPull, RowPull(WorkerHeader(rank, step), 1)));
      // Each step subtracts the mean of the gradients, which is 1.
      ASSERT_EQ(Values(*answer), (Floats{-static_cast<float>(step), -static_cast<float>(step)}));
      ASSERT_TRUE(call(Method::kPush, RowPush(WorkerHeader(rank, step), 1, {1, 1})));
      EndStepRequest end;
      *end.mutable_header() = WorkerHeader(rank, step);
      ASSERT_TRUE(call(Method::kEndStep, end));
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Row(1), (Floats{-static_cast<float>(kSteps), -static_cast<float>(kSteps)}));
}

TEST_F(DataPlaneTest, WhatNobodyElseHasIsKeptUntilThisServerIsThePrimaryAgain) {
  Start(ASYNC, 1);
  ASSERT_TRUE(Push(RowPush(ClientHeader(), 7, {1.0f, 2.0f})).ok());
  const uint32_t partition = PartitionOf(kTable, 7, kPartitions);
  RoutingTable nobody = Routing(2);
  nobody.set_primary(static_cast<int>(partition), UINT32_MAX);
  plane_->AdoptRouting(nobody);
  EXPECT_FALSE(plane_->Serves(partition));
  std::set<uint32_t> kept;
  for (const RecoveredReplica& replica : plane_->ReplicasWithData()) kept.insert(replica.partition());
  EXPECT_TRUE(kept.contains(partition)) << "it would come back without it";

  plane_->AdoptRouting(Routing(3));
  EXPECT_TRUE(plane_->Serves(partition));
  RequestHeader header = ClientHeader();
  header.set_epoch(3);
  const auto answer = Send(Method::kPull, RowPull(header, 7));
  ASSERT_TRUE((*answer)->status.ok()) << (*answer)->status;
  EXPECT_EQ(plane_->Counters(/*may_be_old=*/false).rows(), 1u);

  // Another one is the primary: what is here is of no use.
  RoutingTable elsewhere = Routing(4);
  elsewhere.set_primary(static_cast<int>(partition), 1);
  plane_->AdoptRouting(elsewhere);
  for (const RecoveredReplica& replica : plane_->ReplicasWithData()) EXPECT_NE(replica.partition(), partition);
}

}  // namespace
}  // namespace pawl
