// One server, whose peers are the test: it sends what they would send, and holds what is sent to them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/crc32c.h"
#include "client_lib/base/eventually.h"
#include "client_lib/base/simulated_clock.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "server/data_plane.h"
#include "server/replication/change_log.h"
#include "server/shard/partition_snapshot.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr uint32_t kPartitions = 2;
constexpr uint32_t kTable = 1;
constexpr std::chrono::milliseconds kLease{1000};

// Holds calls and actions until the test takes them.
class HeldTransport final : public Transport {
 public:
  struct HeldCall {
    std::string address;
    Method method;
    std::string request;
    Done done;
  };

  void Call(const std::string& address, Method method, OutgoingMessage request, MonotonicDuration, Done done) override {
    HeldCall call{address, method, std::string(request.bytes.size(), '\0'), std::move(done)};
    request.bytes.CopyTo(call.request.data());
    calls.push_back(std::move(call));
  }
  void After(MonotonicDuration, absl::AnyInvocable<void()> action) override { actions.push_back(std::move(action)); }
  void Shutdown() override {}

  // Ends what is there now.
  void EndCalls(const absl::Status& status, const std::string& answer = "") {
    for (HeldCall& call : std::exchange(calls, {})) {
      const auto bytes = std::make_shared<std::string>(answer);
      call.done(status, {ByteView(bytes->data(), bytes->size()), bytes});
    }
  }
  void RunActions() {
    for (auto& action : std::exchange(actions, {})) action();
  }
  size_t CallsOf(Method method) const {
    return std::count_if(calls.begin(), calls.end(), [&](const HeldCall& call) { return call.method == method; });
  }

  std::deque<HeldCall> calls;
  std::deque<absl::AnyInvocable<void()>> actions;
};

// A disk on which everything is durable at once, and that is told what to do meanwhile.
class HeldLog final : public ChangeLog {
 public:
  absl::Status CheckRoom(uint64_t) const override { return absl::OkStatus(); }
  void Append(uint32_t, uint64_t, const ByteView&, std::shared_ptr<const void>) override {}
  absl::Status SaveSnapshot(uint32_t, uint64_t, absl::string_view) override { return absl::OkStatus(); }
  void Drop(uint32_t partition) override {
    if (on_drop != nullptr) on_drop(partition);
  }

  std::function<void(uint32_t)> on_drop;
};

class ReplicaRolesTest : public testing::Test {
 protected:
  // This server is server-0; it comes back as another life with another incarnation.
  void Begin(uint64_t incarnation = 1) {
    if (plane_ == nullptr) {
      plane_ = std::make_unique<DataPlane>(options_, clock_, &transport_);
      if (log_ != nullptr) plane_->SetLog(*log_);
    }
    RegisterResponse registration;
    registration.set_job_id(kJobId);
    registration.set_node("server-0");
    registration.set_incarnation(incarnation);
    registration.set_lease_ms(kLease.count());
    *registration.mutable_job() = TheJob();
    plane_->Begin(registration);
  }

  static Job TheJob() {
    Job job;
    job.set_seed(3);
    job.set_partitions(kPartitions);
    job.set_logical_workers(1);
    job.mutable_consistency()->set_mode(ASYNC);
    return job;
  }

  struct Roles {
    uint32_t primary = 0;
    std::vector<uint32_t> backups = {};
    std::vector<uint32_t> learners = {};
    uint64_t since = 1;
    uint64_t learners_since = 0;
  };
  // All servers are in the life of `incarnation`.
  static RoutingTable Routing(uint64_t epoch, const std::vector<Roles>& roles, uint64_t incarnation = 1) {
    RoutingTable routing;
    routing.set_job_id(kJobId);
    routing.set_epoch(epoch);
    for (int i = 0; i < 3; ++i) {
      ServerAddress& server = *routing.add_servers();
      server.set_node("server-" + std::to_string(i));
      server.set_address(std::to_string(i));
      server.set_incarnation(incarnation);
    }
    for (uint32_t p = 0; p < kPartitions; ++p) {
      const Roles& of = roles[std::min<size_t>(p, roles.size() - 1)];
      routing.add_primary(of.primary);
      PartitionReplicas& replicas = *routing.add_replicas();
      replicas.set_primary_since(of.since);
      for (const uint32_t backup : of.backups) replicas.add_backups(backup);
      for (const uint32_t learner : of.learners) {
        replicas.add_learners(learner);
        replicas.add_learners_since(of.learners_since);
      }
    }
    return routing;
  }

  static std::unique_ptr<Partition> EmptyPartition(uint32_t index) {
    return std::make_unique<Partition>(index, DataPlane::OptionsOf(TheJob(), DataPlaneOptions().max_rows_per_partition));
  }
  static std::string SnapshotOf(const Partition& partition) {
    std::string bytes;
    SavePartition(partition, [&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); });
    return bytes;
  }

  std::shared_ptr<std::optional<absl::Status>> Send(Method method, const google::protobuf::MessageLite& request) {
    auto bytes = std::make_shared<std::string>(request.SerializeAsString());
    auto answer = std::make_shared<std::optional<absl::Status>>();
    CallContext context;
    context.deadline = clock_.Now() + std::chrono::seconds(10);
    plane_->Handle(method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes}, context,
                   [answer](absl::Status status, OutgoingMessage) { *answer = std::move(status); });
    return answer;
  }

  static ReplicationHeader HeaderOf(uint32_t server, uint64_t epoch) {
    ReplicationHeader header;
    header.set_job_id(kJobId);
    header.set_epoch(epoch);
    header.set_node("server-" + std::to_string(server));
    header.set_incarnation(1);
    return header;
  }

  absl::Status Create(uint32_t id = kTable) {
    TableSpec spec;
    spec.set_id(id);
    spec.set_name("rows-" + std::to_string(id));
    spec.set_kind(DENSE);
    spec.set_element_type(FLOAT32);
    spec.add_shape(10);
    spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
    auto created = std::make_shared<absl::Status>(absl::UnknownError("no answer"));
    plane_->CreateTable(plane_->epoch(), spec, [created](absl::Status status) { *created = std::move(status); });
    return *created;
  }

  // Learners that a heartbeat tells of.
  int CaughtUp() {
    clock_.Advance(std::chrono::seconds(1));
    plane_->Tick();
    HeartbeatRequest heartbeat;
    plane_->FillHeartbeat(heartbeat);
    return heartbeat.caught_up_size();
  }

  static PushRequest EmptyPush(uint32_t partition, uint64_t epoch, uint64_t ordinal = 0) {
    PushRequest request;
    request.mutable_header()->set_job_id(kJobId);
    request.mutable_header()->set_epoch(epoch);
    request.mutable_header()->set_client(0);
    request.mutable_header()->set_incarnation(1);
    PushSegment& segment = *request.add_segments();
    segment.set_table(kTable);
    segment.set_partition(partition);
    segment.set_ordinal(ordinal);
    segment.set_element_type(FLOAT32);
    return request;
  }

  // This server and server-2 follow server-1, whose changes 1 to `changes` of partition 0 reach this one. Then server-1 is
  // gone.
  void BecomePrimaryAfter(uint64_t changes) {
    Begin();
    plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0, 2}}, {.primary = 1}}));
    ReplicateRequest request;
    *request.mutable_header() = HeaderOf(1, 1);
    for (uint64_t index = 1; index <= changes; ++index) {
      LogEntry& entry = *request.add_entries();
      entry.set_index(index);
      entry.mutable_best_kept()->set_evaluation(index);
    }
    EXPECT_TRUE((*Send(Method::kReplicate, request))->ok());
    plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {2}, .since = 2}, {.primary = 1}}));
  }

  // Answers the question where server-2 is.
  void AnswerPosition(uint64_t log_index, uint64_t ordered_since) {
    ReplicateResponse response;
    ReplicaPosition& position = *response.add_positions();
    position.set_log_index(log_index);
    position.set_ordered_since(ordered_since);
    transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  }

  // The indices of the entries that are on their way.
  std::vector<uint64_t> EntriesSent() const {
    std::vector<uint64_t> indices;
    for (const HeldTransport::HeldCall& call : transport_.calls) {
      if (call.method != Method::kReplicate) continue;
      ReplicateRequest request;
      EXPECT_TRUE(request.ParseFromString(call.request));
      for (const LogEntry& entry : request.entries()) indices.push_back(entry.index());
    }
    return indices;
  }

  SimulatedClock clock_;
  HeldTransport transport_;
  DataPlaneOptions options_;
  std::unique_ptr<HeldLog> log_;
  std::unique_ptr<DataPlane> plane_;
};

// A routing that takes its time (it waits for whoever has a replica) holds up nobody who only looks where things are.
TEST_F(ReplicaRolesTest, WhileARoutingIsAdoptedRequestsAreAnsweredByTheOneBefore) {
  log_ = std::make_unique<HeldLog>();
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  Create().IgnoreError();
  plane_->AdoptRouting(Routing(2, {{.primary = 0}, {.primary = 1, .backups = {0}, .since = 2}}));
  absl::Status stale;
  log_->on_drop = [&](uint32_t partition) {
    if (partition != 0) return;
    auto push = std::async(std::launch::async, [&] { return *Send(Method::kPush, EmptyPush(1, 2)); });
    ASSERT_EQ(push.wait_for(kTestPatience), std::future_status::ready) << "the request waits for the routing";
    stale = push.get().value();
  };
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .since = 3}, {.primary = 1, .backups = {0}, .since = 2}}));
  EXPECT_TRUE(absl::IsFailedPrecondition(stale)) << stale;
  EXPECT_EQ(plane_->epoch(), 3u);
}

TEST_F(ReplicaRolesTest, ARoutingOfAFormerLifeTakesNothingAway) {
  Begin(/*incarnation=*/2);
  for (uint32_t p = 0; p < kPartitions; ++p) plane_->AddRecovered(EmptyPartition(p));
  plane_->AdoptRouting(Routing(5, {{.primary = 1, .since = 3}}, /*incarnation=*/1));
  EXPECT_EQ(plane_->ReplicasWithData().size(), kPartitions);
  EXPECT_FALSE(plane_->IsRouted());
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .since = 6}}, /*incarnation=*/2));
  EXPECT_EQ(plane_->ReplicasWithData().size(), kPartitions);
  EXPECT_TRUE(plane_->IsRouted());
}

TEST_F(ReplicaRolesTest, WhatWasPromisedBeforeARestartBindsAfterIt) {
  Begin(/*incarnation=*/2);
  plane_->AddRecovered(EmptyPartition(0));
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .since = 6}}, /*incarnation=*/2));
  EXPECT_FALSE(plane_->Serves(0));
  clock_.Advance(kLease);
  EXPECT_TRUE(plane_->Serves(0));
}

TEST_F(ReplicaRolesTest, ASnapshotThatAReplacedPrimaryBeganIsNotItsNextReigns) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  const std::string snapshot = SnapshotOf(*EmptyPartition(0));
  InstallSnapshotRequest piece;
  *piece.mutable_header() = HeaderOf(1, 1);
  piece.set_primary_since(1);
  piece.set_data(snapshot.substr(0, 10));
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, piece))->ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 2, .learners = {0}, .since = 2}}));
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .learners = {0}, .since = 3}}));
  piece.set_offset(10);
  piece.set_data(snapshot.substr(10));
  piece.set_crc32c(Crc32c(0, snapshot.data(), snapshot.size()));
  piece.set_last(true);
  piece.mutable_header()->set_epoch(3);
  const absl::Status status = **Send(Method::kInstallSnapshot, piece);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(plane_->ReplicasWithData().empty());
}

// It was on the way while another server was the primary in between, and its index says nothing any more.
TEST_F(ReplicaRolesTest, AChangeOfAFormerReignIsRefused) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}}));
  plane_->AdoptRouting(Routing(2, {{.primary = 2, .backups = {0}, .since = 2}}));
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .backups = {0}, .since = 3}}));
  ReplicateRequest request;
  *request.mutable_header() = HeaderOf(1, 1);
  LogEntry& entry = *request.add_entries();
  entry.set_index(1);
  entry.mutable_best_kept()->set_evaluation(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(**Send(Method::kReplicate, request)));
  request.mutable_header()->set_epoch(3);
  const absl::Status status = **Send(Method::kReplicate, request);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ReplicaRolesTest, WhatHasArrivedOfASnapshotIsForgottenWhenItsPrimaryIsReplacedOrSilent) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  InstallSnapshotRequest first;
  *first.mutable_header() = HeaderOf(1, 1);
  first.set_primary_since(1);
  first.set_data("0123456789");
  InstallSnapshotRequest second = first;
  second.set_offset(10);
  InstallSnapshotRequest third = first;
  third.set_offset(20);
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, first))->ok());
  clock_.Advance(kSnapshotPieceTimeout / 2);
  plane_->Tick();
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, second))->ok());
  clock_.Advance(kSnapshotPieceTimeout);
  plane_->Tick();
  EXPECT_TRUE(absl::IsOutOfRange(**Send(Method::kInstallSnapshot, third)));

  ASSERT_TRUE((*Send(Method::kInstallSnapshot, first))->ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 2, .learners = {0}, .since = 2}}));
  plane_->Tick();
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .learners = {0}, .since = 3}}));
  second.mutable_header()->set_epoch(3);
  EXPECT_TRUE(absl::IsOutOfRange(**Send(Method::kInstallSnapshot, second)));
}

TEST_F(ReplicaRolesTest, SnapshotsThatArriveHaveABudgetTogether) {
  options_.max_bytes_arriving = 15;
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  InstallSnapshotRequest piece;
  *piece.mutable_header() = HeaderOf(1, 1);
  piece.set_primary_since(1);
  piece.set_data("0123456789");
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, piece))->ok());
  piece.set_partition(1);
  EXPECT_TRUE(absl::IsResourceExhausted(**Send(Method::kInstallSnapshot, piece)));
  // The one that is there may be as large as it likes.
  piece.set_partition(0);
  piece.set_offset(10);
  EXPECT_TRUE((*Send(Method::kInstallSnapshot, piece))->ok());
  // Begun anew, it does not count twice.
  piece.set_offset(0);
  EXPECT_TRUE((*Send(Method::kInstallSnapshot, piece))->ok());
}

TEST_F(ReplicaRolesTest, AfterCloseNothingIsSentAnyMore) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}, .learners = {2}}}));
  Create().IgnoreError();
  ASSERT_GT(transport_.CallsOf(Method::kReplicate), 0u);
  ASSERT_GT(transport_.CallsOf(Method::kInstallSnapshot), 0u);
  plane_->Close(absl::UnavailableError("the end"));
  transport_.EndCalls(absl::CancelledError("the transport is shut down"));
  transport_.RunActions();
  EXPECT_TRUE(transport_.calls.empty());
  EXPECT_TRUE(transport_.actions.empty());
}

TEST_F(ReplicaRolesTest, AFollowerThatNeedsASnapshotHasNotCaughtUp) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  ASSERT_TRUE(Create().ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .learners = {1}, .learners_since = 2}}));
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), kPartitions);
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), static_cast<int>(kPartitions));
  Create(2).IgnoreError();
  ReplicateResponse lost;
  for (uint32_t p = 0; p < kPartitions; ++p) lost.add_positions()->set_partition(p);
  ASSERT_GT(transport_.CallsOf(Method::kReplicate), 0u);
  transport_.EndCalls(absl::OkStatus(), lost.SerializeAsString());
  EXPECT_EQ(CaughtUp(), 0);
}

// Whatever arrives, something else is on its way already.
TEST_F(ReplicaRolesTest, ALearnerOfAPartitionThatIsPushedWithoutAPauseCatchesUp) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  ASSERT_TRUE(Create().ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .learners = {1}, .learners_since = 2}, {.primary = 0}}));
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  // While the snapshot travels.
  const auto before = Send(Method::kPush, EmptyPush(0, 2, 0));
  EXPECT_TRUE(before->has_value()) << "acknowledged without the learner";
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), 0) << "it lacks what was acknowledged without it";
  uint64_t sent = 0;
  for (uint64_t ordinal = 1; ordinal < 10; ++ordinal) {
    const auto pushed = Send(Method::kPush, EmptyPush(0, 2, ordinal));
    EXPECT_FALSE(pushed->has_value()) << "acknowledged without the learner, which counts";
    ASSERT_FALSE(EntriesSent().empty());
    sent = EntriesSent().back();
    ReplicateResponse response;
    response.add_positions()->set_log_index(sent);
    transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
    EXPECT_EQ(CaughtUp(), 1);
  }
}

TEST_F(ReplicaRolesTest, ALearnerThatNearlyCaughtUpAndTakesNothingIsToldOf) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  ASSERT_TRUE(Create().ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .learners = {1}, .learners_since = 2}, {.primary = 0}}));
  ASSERT_TRUE(Send(Method::kPush, EmptyPush(0, 2, 0))->has_value());
  transport_.EndCalls(absl::OkStatus());
  EXPECT_FALSE(Send(Method::kPush, EmptyPush(0, 2, 1))->has_value()) << "acknowledged without the learner, which counts";
  for (int i = 0; i < 5; ++i) {
    transport_.EndCalls(absl::ResourceExhaustedError("its disk is full"));
    clock_.Advance(std::chrono::seconds(1));
    transport_.RunActions();
  }
  HeartbeatRequest heartbeat;
  plane_->Tick();
  plane_->FillHeartbeat(heartbeat);
  ASSERT_EQ(heartbeat.silent_size(), 1);
  EXPECT_EQ(heartbeat.silent(0).node(), "server-1");
}

// Whoever waits for it does not wait for what another learner lacks.
TEST_F(ReplicaRolesTest, ALearnerThatCountsGetsWhatIsNewOnALaneOfItsOwn) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  ASSERT_TRUE(Create().ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .learners = {1}, .learners_since = 2}, {.primary = 0}}));
  ASSERT_TRUE(Send(Method::kPush, EmptyPush(0, 2, 0))->has_value());
  transport_.EndCalls(absl::OkStatus());
  ASSERT_EQ(EntriesSent().size(), 1u);
  const uint64_t lacked = EntriesSent().front();
  Send(Method::kPush, EmptyPush(0, 2, 1));
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{lacked}) << "it is kept until the others have arrived";
  ReplicateResponse response;
  response.add_positions()->set_log_index(lacked);
  transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{lacked + 1});
}

// It was dropped, with what it had, and has come again, by routings that did not reach its primary.
TEST_F(ReplicaRolesTest, ABackupThatIsALearnerAgainGetsASnapshot) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  plane_->AdoptRouting(Routing(4, {{.primary = 0, .learners = {1}, .learners_since = 4}}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), kPartitions);
  EXPECT_EQ(CaughtUp(), 0);
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), static_cast<int>(kPartitions));
  // Once more, as a learner.
  plane_->AdoptRouting(Routing(7, {{.primary = 0, .learners = {1}, .learners_since = 7}}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), kPartitions);
  EXPECT_EQ(CaughtUp(), 0);
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), static_cast<int>(kPartitions));
  // What has caught up and becomes a backup goes on.
  plane_->AdoptRouting(Routing(8, {{.primary = 0, .backups = {1}}}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
}

TEST_F(ReplicaRolesTest, AFollowerThatTakesNothingForTooLongIsToldOf) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  Create().IgnoreError();
  const auto told = [&] {
    clock_.Advance(std::chrono::seconds(1));
    plane_->Tick();
    HeartbeatRequest heartbeat;
    plane_->FillHeartbeat(heartbeat);
    return heartbeat.silent_size() == 0 ? "" : heartbeat.silent(0).node();
  };
  EXPECT_EQ(told(), "");
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(told(), "") << "no try has failed yet";
  transport_.EndCalls(absl::DeadlineExceededError("nobody answers"));
  EXPECT_EQ(told(), "") << "it may only have been slow";
  transport_.RunActions();
  EXPECT_EQ(told(), "");
  transport_.EndCalls(absl::DeadlineExceededError("nobody answers"));
  EXPECT_EQ(told(), "server-1");
  transport_.RunActions();
  EXPECT_EQ(told(), "server-1");
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(told(), "");
}

TEST_F(ReplicaRolesTest, NobodyIsToldOfWhoIsToTakeNothingMore) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1, 2}}}));
  Create().IgnoreError();
  clock_.Advance(std::chrono::seconds(3));
  transport_.EndCalls(absl::DeadlineExceededError("nobody answers"));
  transport_.RunActions();
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {2}}}));
  transport_.EndCalls(absl::DeadlineExceededError("nobody answers"));
  plane_->Tick();
  HeartbeatRequest heartbeat;
  plane_->FillHeartbeat(heartbeat);
  ASSERT_EQ(heartbeat.silent_size(), 1);
  EXPECT_EQ(heartbeat.silent(0).node(), "server-2");
  transport_.RunActions();
  clock_.Advance(std::chrono::seconds(1));
  plane_->Tick();
  plane_->FillHeartbeat(heartbeat);
  ASSERT_EQ(heartbeat.silent_size(), 1);
  EXPECT_EQ(heartbeat.silent(0).node(), "server-2");
}

TEST_F(ReplicaRolesTest, AfterAFailoverABackupGetsTheChangesThatItLacks) {
  BecomePrimaryAfter(3);
  ASSERT_EQ(transport_.CallsOf(Method::kReplicate), 1u);
  ReplicateRequest question;
  ASSERT_TRUE(question.ParseFromString(transport_.calls.front().request));
  EXPECT_EQ(question.entries_size(), 0);
  ASSERT_EQ(question.asks_position_size(), 1);
  EXPECT_EQ(question.asks_position(0), 0u);
  // One of the new reign, meanwhile.
  Create().IgnoreError();
  AnswerPosition(/*log_index=*/1, /*ordered_since=*/1);
  EXPECT_EQ(EntriesSent(), (std::vector<uint64_t>{2, 3, 4}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
}

TEST_F(ReplicaRolesTest, AfterAFailoverABackupThatHasEverythingGetsNothing) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/3, /*ordered_since=*/1);
  EXPECT_TRUE(transport_.calls.empty());
}

// Changes that only it has were never acknowledged, and the new primary gives their indices to others.
TEST_F(ReplicaRolesTest, AfterAFailoverABackupThatIsAheadGetsASnapshot) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/4, /*ordered_since=*/1);
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_TRUE(EntriesSent().empty());
}

TEST_F(ReplicaRolesTest, AfterAFailoverABackupWithTheChangesOfAnotherReignGetsASnapshot) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/2, /*ordered_since=*/7);
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_TRUE(EntriesSent().empty());
}

// Its entries are of the replica that was there before the snapshot.
TEST_F(ReplicaRolesTest, AfterAFailoverWhatWasSentBeforeASnapshotIsNotSentOn) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0, 2}}, {.primary = 1}}));
  ReplicateRequest request;
  *request.mutable_header() = HeaderOf(1, 1);
  for (uint64_t index = 1; index <= 2; ++index) {
    LogEntry& entry = *request.add_entries();
    entry.set_index(index);
    entry.mutable_best_kept()->set_evaluation(index);
  }
  ASSERT_TRUE((*Send(Method::kReplicate, request))->ok());
  auto other = EmptyPartition(0);
  for (uint64_t evaluation = 11; evaluation <= 13; ++evaluation) other->KeepBest(evaluation);
  const std::string snapshot = SnapshotOf(*other);
  InstallSnapshotRequest piece;
  *piece.mutable_header() = HeaderOf(1, 1);
  piece.set_primary_since(1);
  piece.set_log_index(other->log_index());
  piece.set_data(snapshot);
  piece.set_crc32c(Crc32c(0, snapshot.data(), snapshot.size()));
  piece.set_last(true);
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, piece))->ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {2}, .since = 2}, {.primary = 1}}));
  AnswerPosition(/*log_index=*/1, /*ordered_since=*/1);
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_TRUE(EntriesSent().empty());
}

// Nobody else was to have them: what came under that index before was of another order.
TEST_F(ReplicaRolesTest, AfterAFailoverChangesThatWereNotKeptAreNotMistakenForOlderOnes) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0, 2}}, {.primary = 1}}));
  const auto replicate = [&](uint32_t primary, uint64_t epoch, uint64_t index, uint64_t evaluation) {
    ReplicateRequest request;
    *request.mutable_header() = HeaderOf(primary, epoch);
    LogEntry& entry = *request.add_entries();
    entry.set_index(index);
    entry.mutable_best_kept()->set_evaluation(evaluation);
    ASSERT_TRUE((*Send(Method::kReplicate, request))->ok());
  };
  replicate(1, 1, 1, 1);
  replicate(1, 1, 2, 2);
  plane_->AdoptRouting(Routing(2, {{.primary = 2, .backups = {0}, .since = 2}, {.primary = 1}}));
  auto other = EmptyPartition(0);
  other->KeepBest(1);
  const std::string snapshot = SnapshotOf(*other);
  InstallSnapshotRequest piece;
  *piece.mutable_header() = HeaderOf(2, 2);
  piece.set_primary_since(2);
  piece.set_log_index(other->log_index());
  piece.set_data(snapshot);
  piece.set_crc32c(Crc32c(0, snapshot.data(), snapshot.size()));
  piece.set_last(true);
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, piece))->ok());
  replicate(2, 2, 2, 12);
  plane_->AdoptRouting(Routing(3, {{.primary = 0, .backups = {1}, .since = 3}, {.primary = 1}}));
  AnswerPosition(/*log_index=*/1, /*ordered_since=*/2);
  EXPECT_TRUE(EntriesSent().empty());
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
}

// What a lane carried when its server stopped being the primary is answered in the server's next reign.
TEST_F(ReplicaRolesTest, AnAnswerThatWasNotAskedForIsNoPosition) {
  BecomePrimaryAfter(3);
  ReplicateResponse response;
  response.add_positions()->set_log_index(1);
  response.mutable_positions(0)->set_ordered_since(1);
  // The question is asked again in another reign while this answer is on its way.
  plane_->AdoptRouting(Routing(3, {{.primary = 2, .backups = {0}, .since = 3}, {.primary = 1}}));
  plane_->AdoptRouting(Routing(4, {{.primary = 0, .backups = {2}, .since = 4}, {.primary = 1}}));
  transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  EXPECT_TRUE(EntriesSent().empty());
}

TEST_F(ReplicaRolesTest, ASnapshotThatDidNotArriveIsSentAgainAfterAPauseThatGrows) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .learners = {1}}, {.primary = 0}}));
  const auto fails_and_comes_after = [&](MonotonicDuration pause) {
    ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
    transport_.EndCalls(absl::UnavailableError("no"));
    plane_->Tick();
    clock_.Advance(pause - std::chrono::milliseconds(1));
    plane_->Tick();
    plane_->Tick();
    EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
    clock_.Advance(std::chrono::milliseconds(1));
    transport_.RunActions();
    EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  };
  fails_and_comes_after(kSnapshotRetryInterval);
  fails_and_comes_after(2 * kSnapshotRetryInterval);
  fails_and_comes_after(4 * kSnapshotRetryInterval);
  for (int i = 0; i < 10; ++i) {
    transport_.EndCalls(absl::UnavailableError("no"));
    clock_.Advance(kMaxSnapshotRetryInterval);
    transport_.RunActions();
  }
  fails_and_comes_after(kMaxSnapshotRetryInterval);
}

TEST_F(ReplicaRolesTest, EntriesBehindASnapshotAreKeptUpToTheBacklogOfALearner) {
  constexpr size_t kEntryBytes = kMaxLearnerBacklogBytes / 4;
  const auto memory = std::make_shared<std::string>(kEntryBytes, '\0');
  Replica replica(0, /*logs=*/false);
  MutexLock lock(replica.mu);
  Follower& follower = replica.followers.emplace_back();
  follower.lane = std::make_shared<ReplicationLane>(transport_, clock_, "1", ReplicationLane::Events());
  follower.state = Follower::State::kInstalling;
  for (uint64_t i = 1; i <= 4; ++i) replica.SendToFollowers({0, i, ByteView(memory->data(), kEntryBytes), memory});
  EXPECT_EQ(follower.state, Follower::State::kInstalling);
  replica.SendToFollowers({0, 5, ByteView(memory->data(), kEntryBytes), memory});
  EXPECT_EQ(follower.state, Follower::State::kNeedsSnapshot);
  EXPECT_EQ(follower.held_bytes, 0u);
  EXPECT_EQ(follower.failed_installs, 1u);
}

}  // namespace
}  // namespace pawl
