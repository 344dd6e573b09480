#include "server/data_plane/data_plane.h"

#include <future>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/base/elements.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/rpc/codec.h"
#include "gtest/gtest.h"
#include "server/data_plane/testing/data_plane_fixture.h"
#include "server/replication/testing/fake_durable_log.h"

namespace pawl {
namespace {

TEST_F(DataPlaneTest, AnswersUnavailableWithoutARouting) {
  plane_ = std::make_unique<DataPlane>(DataPlaneOptions(), clock_);
  EXPECT_EQ(Push(RowPush(ClientHeader(), 1, {1, 1})).code(), absl::StatusCode::kUnavailable);
}

TEST_F(DataPlaneTest, PushesAndPulls) {
  Start(ASYNC, 1);
  EXPECT_TRUE(Push(RowPush(ClientHeader(), 1, {1, 2})).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

// A server that sends no heartbeat is declared dead.
TEST_F(DataPlaneTest, HeartbeatDoesNotWaitForAPartition) {
  FakeDurableLog log;
  Start(ASYNC, 1);
  plane_->SetLog(log);
  HeartbeatRequest heartbeat;
  std::future<void> filled;
  // Called with the partition's lock.
  log.on_append = [&] {
    filled = std::async(std::launch::async, [&] { plane_->FillHeartbeat(heartbeat); });
    EXPECT_EQ(filled.wait_for(kTestPatience), std::future_status::ready);
  };
  EXPECT_TRUE(Push(RowPush(ClientHeader(), 1, {1, 2})).ok());
  ASSERT_TRUE(filled.valid());
  plane_->Close(absl::UnavailableError("the end"));
}

TEST_F(DataPlaneTest, AssignsOncePerPushIdAndGivesSlots) {
  Start(ASYNC, 1);
  constexpr uint32_t kMoments = 3;
  TableSpec spec = SparseTableSpec("moments", kWidth, kMoments);
  spec.mutable_optimizer()->mutable_momentum()->set_learning_rate(1);
  spec.mutable_optimizer()->mutable_momentum()->set_momentum(0.5f);
  ASSERT_TRUE(Create(spec).ok());
  const auto segment_of = [&](PushRequest& request) {
    PushSegment& segment = *request.mutable_segments(0);
    segment.set_table(kMoments);
    segment.set_partition(PartitionOf(kMoments, 1, kPartitions));
    return &segment;
  };
  PushRequest assign = RowPush(ClientHeader(), 1, {10, 20}, 0);
  PushSegment& segment = *segment_of(assign);
  segment.set_effect(ASSIGN_WITH_SLOTS);
  const Floats slots = {2, 4};
  segment.set_slots(std::string(reinterpret_cast<const char*>(slots.data()), 8));
  PushRequest push = RowPush(ClientHeader(), 1, {1, 1}, 1);
  segment_of(push);
  PullRequest pull = RowPull(ClientHeader(), 1);
  pull.mutable_segments(0)->set_table(kMoments);
  pull.mutable_segments(0)->set_partition(PartitionOf(kMoments, 1, kPartitions));
  pull.mutable_segments(0)->set_with_slots(true);
  const auto pulled = [&] {
    const Answer answer = **Send(Method::kPull, pull);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    const auto response = DecodePullResponse(answer.message.bytes);
    EXPECT_TRUE(response.ok()) << response.status();
    Floats floats(4);
    EXPECT_EQ(response->results[0].values.size(), 8u);
    EXPECT_EQ(response->results[0].slots.size(), 8u);
    response->results[0].values.CopyTo(floats.data());
    response->results[0].slots.CopyTo(floats.data() + 2);
    return floats;
  };
  EXPECT_EQ(pulled(), (Floats{0, 0, 0, 0}));
  ASSERT_TRUE(Push(assign).ok());
  EXPECT_EQ(pulled(), (Floats{10, 20, 2, 4}));
  ASSERT_TRUE(Push(push).ok());
  EXPECT_EQ(pulled(), (Floats{8, 17, 2, 3}));
  // A repetition, and one with another type in the same place.
  ASSERT_TRUE(Push(assign).ok());
  ASSERT_TRUE(Push(As(BFLOAT16, assign)).ok());
  EXPECT_EQ(pulled(), (Floats{8, 17, 2, 3}));
  // Sixteen bits are decoded, and the slots stay FLOAT32.
  assign = As(BFLOAT16, assign);
  assign.mutable_segments(0)->set_ordinal(2);
  ASSERT_TRUE(Push(assign).ok());
  EXPECT_EQ(pulled(), (Floats{10, 20, 2, 4}));
  assign.mutable_segments(0)->set_ordinal(3);
  assign.mutable_segments(0)->set_effect(static_cast<PushEffect>(4));
  EXPECT_EQ(Push(assign).code(), absl::StatusCode::kInvalidArgument);
  assign.mutable_segments(0)->set_effect(APPLY_GRADIENT);
  EXPECT_EQ(Push(assign).code(), absl::StatusCode::kInvalidArgument) << "a gradient with slots";
}

TEST_F(DataPlaneTest, GivesTheSlotsOfBlocks) {
  Start(ASYNC, 1);
  TableSpec spec = DenseTableSpec("blocks", {kBlockFloats}, kBlocks);
  spec.mutable_optimizer()->mutable_adam()->set_learning_rate(1);
  ASSERT_TRUE(Create(spec).ok());
  PushRequest assign = BlockPush(7);
  Floats slots(2 * kBlockFloats + 1, 3);
  assign.mutable_segments(0)->set_effect(ASSIGN_WITH_SLOTS);
  assign.mutable_segments(0)->set_slots(
      std::string(reinterpret_cast<const char*>(slots.data()), slots.size() * sizeof(float)));
  ASSERT_TRUE(Push(assign).ok());
  PullRequest pull = BlockPull();
  pull.mutable_segments(0)->set_with_slots(true);
  const Answer answer = **Send(Method::kPull, pull);
  EXPECT_EQ(BlockValues(answer), Floats(kBlockFloats, 7));
  const auto response = DecodePullResponse(answer.message.bytes);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->results[0].slots.size(), slots.size() * sizeof(float));
  Floats pulled(slots.size());
  response->results[0].slots.CopyTo(pulled.data());
  EXPECT_EQ(pulled, slots);
}

TEST_F(DataPlaneTest, Rank0SetsLearningRates) {
  Start(ASYNC, 2);
  const auto set = [&](uint32_t rank, uint64_t table, float rate) {
    PushRequest request = RowPush(WorkerHeader(rank, 0), 1, {rate});
    request.mutable_segments(0)->set_table(0);
    request.mutable_segments(0)->set_effect(SET_LEARNING_RATES);
    request.mutable_segments(0)->set_keys(
        std::string(reinterpret_cast<const char*>(&table), sizeof(table)));
    return Push(request);
  };
  EXPECT_EQ(set(1, kTable, 0.5f).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(set(0, kTable, -1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(set(0, 9, 0.5f).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(set(0, kTable, 0.5f).ok());
  ASSERT_TRUE(Push(RowPush(ClientHeader(), 1, {2, 4})).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

TEST_F(DataPlaneTest, RankThatAssignsTooLateHearsTheRule) {
  Start(SYNC, 2);
  ASSERT_TRUE(Push(RowPush(WorkerHeader(1, 0), 1, {1, 1})).ok());
  PushRequest assign = RowPush(WorkerHeader(0, 0), 1, {10, 20});
  assign.mutable_segments(0)->set_effect(ASSIGN_RESET_SLOTS);
  const absl::Status status = Push(assign);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("only in the job's first step"), std::string::npos)
      << status;
  EXPECT_EQ(Row(1), (Floats{0, 0}));
}

TEST_F(DataPlaneTest, RefusesTheWholePushIfOnePartIsInvalid) {
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
  refused(StatusCode::kUnavailable,
          [](PushRequest& request, auto&) { request.mutable_header()->set_job_id(1); });
  refused(StatusCode::kOutOfRange,
          [](auto&, PushSegment& segment) { segment.set_partition(kPartitions); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    segment.set_partition((segment.partition() + 1) % kPartitions);
  });
  refused(StatusCode::kInvalidArgument,
          [](auto&, PushSegment& segment) { segment.set_values("short"); });
  refused(StatusCode::kInvalidArgument,
          [](auto&, PushSegment& segment) { segment.mutable_keys()->push_back('x'); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    segment.set_element_type(static_cast<ElementType>(4));
  });
  // Two floats have the size of four 16-bit values.
  refused(StatusCode::kInvalidArgument,
          [](auto&, PushSegment& segment) { segment.set_element_type(BFLOAT16); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    segment.set_element_type(FLOAT16);
    segment.set_values("abc");
  });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    // Infinity in FLOAT16, but a finite number in BFLOAT16.
    segment.set_element_type(FLOAT16);
    segment.set_values(std::string("\x00\x3c\x00\x7c", 4));
  });
  refused(StatusCode::kInvalidArgument,
          [](PushRequest& request, auto&) { request.mutable_header()->clear_sender(); });
  refused(StatusCode::kOutOfRange,
          [](PushRequest& request, auto&) { request.mutable_header()->set_logical_worker(1); });
  refused(StatusCode::kOutOfRange,
          [](PushRequest& request, auto&) { request.mutable_header()->set_client(kMaxClients); });
  refused(StatusCode::kInvalidArgument, [](auto&, PushSegment& segment) {
    const float values[] = {1, std::numeric_limits<float>::quiet_NaN()};
    segment.set_values(std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  });
  EXPECT_EQ(plane_->Counters(false).requests_refused(), 13u)
      << "one of another job is not refused for good";
  // None of the refused pushes has used the push id.
  EXPECT_TRUE(Push(RowPush(ClientHeader(), 1, {1, 2})).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

// What depends on a partition's state is found when the push reaches the partition.
TEST_F(DataPlaneTest, RepetitionCompletesAPushThatOnePartitionHasRefused) {
  Start(ASYNC, 1);
  PushRequest request = RowPush(ClientHeader(), 1, {1, 2});
  AddRow(request, 2, {3, 4});
  ASSERT_NE(request.segments(0).partition(), request.segments(1).partition());
  request.mutable_segments(1)->set_ordinal(kPushWindow + 5);
  EXPECT_EQ(Push(request).code(), absl::StatusCode::kOutOfRange);
  request.mutable_segments(1)->set_ordinal(0);
  EXPECT_TRUE(Push(request).ok());
  EXPECT_EQ(plane_->Counters(false).pushes_deduplicated(), 1u);
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
  EXPECT_EQ(Row(2), (Floats{-3, -4}));
}

TEST_F(DataPlaneTest, RefusesTheWholePushIfOnePartIsRoutedByAnOldEpoch) {
  Start(ASYNC, 1);
  PushRequest request = RowPush(ClientHeader(), 1, {1, 2});
  AddRow(request, 2, {3, 4});
  const uint32_t partition = request.segments(1).partition();
  ASSERT_NE(request.segments(0).partition(), partition);
  RoutingTable routing = Routing(2);
  while (routing.replicas_size() < static_cast<int>(kPartitions))
    routing.add_replicas()->set_primary_since(1);
  routing.mutable_replicas(static_cast<int>(partition))->set_primary_since(2);
  plane_->AdoptRouting(routing);
  EXPECT_EQ(Push(request).code(), absl::StatusCode::kFailedPrecondition);
  request.mutable_header()->set_epoch(2);
  EXPECT_EQ(Push(request), absl::OkStatus());
  EXPECT_EQ(plane_->Counters(false).pushes_deduplicated(), 0u);
}

TEST_F(DataPlaneTest, RefusesSegmentThatDoesNotFitALogRecord) {
  Start(ASYNC, 1);
  PushRequest request = RowPush(ClientHeader(), 1, {1, 2});
  request.mutable_segments(0)->mutable_values()->resize((size_t{64} << 20) - 100);
  const absl::Status status = Push(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the limit is 67104768"), absl::string_view::npos) << status;
}

TEST_F(DataPlaneTest, RoutingTooLargeForAnErrorIsReplacedByItsEpoch) {
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
TEST_F(DataPlaneTest, RoutingWithoutPartitionsOrOfAnotherJobIsIgnored) {
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

TEST_F(DataPlaneTest, AttachesTheRoutingToStaleRequests) {
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

TEST_F(DataPlaneTest, PullIsAnsweredByTheLastEndStep) {
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

TEST_F(DataPlaneTest, PushOfTheNextStepWaitsForIt) {
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

TEST_F(DataPlaneTest, WaitingCallEndsAtItsDeadline) {
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
  // The event it waited for comes later and finds no call.
  EXPECT_TRUE(EndStep(1, 0).ok());
}

TEST_F(DataPlaneTest, WaitingCallOfAGoneCallerIsDropped) {
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

TEST_F(DataPlaneTest, CloseAnswersWaitingAndLaterCalls) {
  Start(SYNC, 2);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto pull = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1));
  plane_->Close(absl::FailedPreconditionError("worker-1 died"));
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ((*pull)->status.message(), "worker-1 died");
  EXPECT_EQ(EndStep(1, 0).message(), "worker-1 died");
}

TEST_F(DataPlaneTest, BytesInFlightBeyondTheLimitAreRefusedWithPushback) {
  DataPlaneOptions options;
  options.max_bytes_in_flight = 100;
  Start(SYNC, 2, options);
  const auto answer = Send(Method::kPull, RowPull(WorkerHeader(0, 0), 1));
  ASSERT_TRUE(answer->value().status.ok());
  PushRequest large = RowPush(WorkerHeader(1, 0), 1, {2, 4});
  for (uint64_t key = 2; key < 10; ++key) AddRow(large, key, {1, 1}, key);
  const absl::Status status = Push(large);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(status.GetPayload(kPushbackPayloadUrl).has_value());
  // Nothing is in flight now, so even a large push is accepted.
  answer->reset();
  EXPECT_TRUE(Push(large).ok());
}

TEST_F(DataPlaneTest, PushesOfTheNextStepDoNotKeepOutThoseOfTheOpenOne) {
  DataPlaneOptions options;
  options.max_bytes_in_flight = 100;
  Start(SYNC, 2, options);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting = Send(Method::kPush, RowPush(WorkerHeader(0, 1), 1, {2, 4}));
  ASSERT_FALSE(waiting->has_value());
  PushRequest needed = RowPush(WorkerHeader(1, 0), 1, {4, 6});
  AddRow(needed, 9, {1, 1});
  ASSERT_TRUE(Push(needed).ok());
  ASSERT_FALSE(waiting->has_value());
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(waiting->has_value());
  EXPECT_TRUE(waiting->value().status.ok()) << waiting->value().status;
  // Neither limit is in use any more.
  EXPECT_TRUE(Push(RowPush(WorkerHeader(0, 1), 1, {2, 4}, 1)).ok());
}

TEST_F(DataPlaneTest, BytesOfPushesOfTheNextStepAreLimited) {
  DataPlaneOptions options;
  options.max_bytes_waiting_for_step = 1;
  Start(SYNC, 2, options);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting = Send(Method::kPush, RowPush(WorkerHeader(0, 1), 1, {2, 4}));
  ASSERT_FALSE(waiting->has_value());
  const absl::Status refused = Push(RowPush(WorkerHeader(0, 1), 1, {2, 4}, 1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(refused.GetPayload(kPushbackPayloadUrl).has_value());
  EXPECT_TRUE(Push(RowPush(WorkerHeader(1, 0), 1, {4, 6})).ok());
  ASSERT_TRUE(EndStep(1, 0).ok());
  EXPECT_TRUE(waiting->value().status.ok());
  EXPECT_TRUE(Push(RowPush(WorkerHeader(0, 1), 1, {2, 4}, 1)).ok());
}

TEST_F(DataPlaneTest, ResumedPushThatFindsTooManyBytesInFlightIsAppliedOnceWhenRepeated) {
  DataPlaneOptions options;
  options.max_bytes_in_flight = 1;
  Start(SYNC, 2, options);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const PushRequest push = RowPush(WorkerHeader(0, 1), 1, {2, 4});
  const auto waiting = Send(Method::kPush, push);
  ASSERT_FALSE(waiting->has_value());
  const auto answer = Send(Method::kPull, RowPull(WorkerHeader(1, 0), 1));
  ASSERT_TRUE(answer->value().status.ok());
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ(waiting->value().status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(waiting->value().status.GetPayload(kPushbackPayloadUrl).has_value());
  answer->reset();
  EXPECT_TRUE(Push(push).ok());
  EXPECT_TRUE(Push(push).ok());
  ASSERT_TRUE(EndStep(0, 1).ok());
  ASSERT_TRUE(EndStep(1, 1).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

TEST_F(DataPlaneTest, ResumedPushIsRefusedWhileTheLogHasNoRoom) {
  FakeDurableLog log;
  Start(SYNC, 2);
  plane_->SetLog(log);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const PushRequest push = RowPush(WorkerHeader(0, 1), 1, {2, 4});
  const auto waiting = Send(Method::kPush, push);
  ASSERT_FALSE(waiting->has_value());
  // The end of the step takes the last room.
  log.on_append = [&] { log.room = absl::ResourceExhaustedError("full"); };
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ(waiting->value().status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(waiting->value().status.GetPayload(kPushbackPayloadUrl).has_value());
  log.on_append = nullptr;
  log.room = absl::OkStatus();
  EXPECT_TRUE(Push(push).ok());
  plane_->Close(absl::UnavailableError("the end"));
}

TEST_F(DataPlaneTest, StepMayTakeHalfOfTheBytesInFlight) {
  EXPECT_EQ(MaxBytesWaitingForStep(size_t{256} << 20), size_t{128} << 20);
  EXPECT_EQ(MaxBytesWaitingForStep(size_t{8} << 30), size_t{1} << 30);
}

TEST_F(DataPlaneTest, RequestBytesOfWaitingPullsAreLimited) {
  DataPlaneOptions options;
  options.max_bytes_waiting_for_step = 1;
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

TEST_F(DataPlaneTest, SegmentsOfWaitingPullsCountEvenWithoutKeys) {
  DataPlaneOptions options;
  options.max_bytes_waiting_for_step = size_t{1} << 20;
  Start(SYNC, 2, options);
  ASSERT_TRUE(EndStep(0, 0).ok());
  PullRequest pull;
  *pull.mutable_header() = WorkerHeader(0, 1);
  for (uint32_t i = 0; i < 16384; ++i) {
    PullSegment& segment = *pull.add_segments();
    segment.set_table(kTable);
    segment.set_partition(i % kPartitions);
  }
  ASSERT_LT(2 * pull.ByteSizeLong(), options.max_bytes_waiting_for_step);
  const auto waiting = Send(Method::kPull, pull);
  ASSERT_FALSE(waiting->has_value());
  const auto refused = Send(Method::kPull, pull);
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((*refused)->status.code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(EndStep(1, 0).ok());
  EXPECT_TRUE(waiting->value().status.ok());
}

TEST_F(DataPlaneTest, PullThatNeedNotWaitIsAnsweredWhileWaitingPullsTakeTheLimit) {
  DataPlaneOptions options;
  options.max_bytes_waiting_for_step = 1;
  Start(SYNC, 2, options);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1));
  ASSERT_FALSE(waiting->has_value());
  const auto straggler = Send(Method::kPull, RowPull(WorkerHeader(1, 0), 2));
  ASSERT_TRUE(straggler->has_value());
  EXPECT_TRUE((*straggler)->status.ok()) << (*straggler)->status;
  ASSERT_TRUE(EndStep(1, 0).ok());
  EXPECT_TRUE(waiting->value().status.ok());
}

TEST_F(DataPlaneTest, DensePullLendsBlocksThatStayUnchanged) {
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
  const auto where = [](const auto& answer) {
    return answer->value().message.bytes.fragments()[1].data();
  };
  EXPECT_EQ(where(first), where(second));
  EXPECT_NE(where(first), where(third));
}

// Memory that the network has not taken yet cannot be freed.
TEST_F(DataPlaneTest, AnswerIsInFlightUntilItsMemoryIsReleased) {
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

TEST_F(DataPlaneTest, CreateTableIsIdempotentForEqualSpecs) {
  Start(ASYNC, 1);
  TableSpec spec = WithSgd(DenseTableSpec("dense", {10}, 2));
  EXPECT_TRUE(Create(spec).ok());
  EXPECT_TRUE(Create(spec).ok());
  spec.set_shape(0, 11);
  EXPECT_EQ(Create(spec).code(), absl::StatusCode::kAlreadyExists);
}

// Each thread is a logical worker that pushes, ends its step and waits for the next one.
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
                         answer = Answer{status, {message.bytes, message.owner}};
                         changed.NotifyAll();
                       });
        MutexLock lock(mu);
        while (!answer.has_value()) {
          if (!changed.WaitUntil(mu, std::chrono::steady_clock::now() + std::chrono::seconds(60)))
            break;
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

TEST_F(DataPlaneTest, PrimaryWithoutFollowersNeedsALeaseUntilJobStart) {
  has_started_ = false;
  Start(SYNC, 1);
  const RequestHeader header = WorkerHeader(0, 0);
  TakeOverRequest take_over;
  *take_over.mutable_header() = header;
  take_over.add_partitions(0);
  lease_until_ = clock_.LeaseNow();
  EXPECT_TRUE(plane_->Served().empty()) << "another server may be the primary";
  EXPECT_TRUE(absl::IsUnavailable((*Send(Method::kTakeOver, take_over))->status));
  EXPECT_TRUE(absl::IsUnavailable(Push(RowPush(header, 7, {1.0f, 2.0f}))));
  EXPECT_TRUE(absl::IsUnavailable(EndStep(0, 0)));
  EXPECT_TRUE(absl::IsUnavailable((*Send(Method::kPull, RowPull(header, 7)))->status));

  has_started_ = true;
  EXPECT_EQ(plane_->Served().size(), kPartitions);
  has_started_ = false;  // as after registering again for the job
  EXPECT_TRUE((*Send(Method::kTakeOver, take_over))->status.ok());
  EXPECT_TRUE((*Send(Method::kPull, RowPull(header, 7)))->status.ok());
  EXPECT_TRUE(Push(RowPush(header, 7, {1.0f, 2.0f})).ok());
  EXPECT_TRUE(EndStep(0, 0).ok()) << "also for partitions without a push";
}

TEST_F(DataPlaneTest, SoleCopyIsRetainedUntilThisServerIsPrimaryAgain) {
  Start(ASYNC, 1);
  ASSERT_TRUE(Push(RowPush(ClientHeader(), 7, {1.0f, 2.0f})).ok());
  const uint32_t partition = PartitionOf(kTable, 7, kPartitions);
  RoutingTable no_primary = Routing(2);
  no_primary.set_primary(static_cast<int>(partition), UINT32_MAX);
  plane_->AdoptRouting(no_primary);
  EXPECT_EQ(plane_->Served().size(), kPartitions - 1);
  std::set<uint32_t> kept;
  for (const RecoveredReplica& replica : plane_->ReplicasWithData())
    kept.insert(replica.partition());
  EXPECT_TRUE(kept.contains(partition)) << "the data would be lost on return";

  plane_->AdoptRouting(Routing(3));
  EXPECT_EQ(plane_->Served().size(), kPartitions);
  RequestHeader header = ClientHeader();
  header.set_epoch(3);
  const auto answer = Send(Method::kPull, RowPull(header, 7));
  ASSERT_TRUE((*answer)->status.ok()) << (*answer)->status;
  EXPECT_EQ(plane_->Counters(/*may_be_old=*/false).rows(), 1u);

  // Another server is the primary: the data here is no longer needed.
  RoutingTable elsewhere = Routing(4);
  elsewhere.set_primary(static_cast<int>(partition), 1);
  plane_->AdoptRouting(elsewhere);
  for (const RecoveredReplica& replica : plane_->ReplicasWithData())
    EXPECT_NE(replica.partition(), partition);
}

}  // namespace
}  // namespace pawl
