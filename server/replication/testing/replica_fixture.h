// The fixture of a server whose peers are the test: the test sends what peers would send, and holds
// what is sent to them.
#ifndef PAWL_SERVER_REPLICATION_TESTING_REPLICA_FIXTURE_H_
#define PAWL_SERVER_REPLICATION_TESTING_REPLICA_FIXTURE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/crc32c.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "server/data_plane/data_plane.h"
#include "server/replication/testing/fake_durable_log.h"
#include "server/shard/partition_options.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {

inline constexpr uint64_t kJobId = 77;
inline constexpr uint32_t kPartitions = 2;
inline constexpr uint32_t kTable = 1;
inline constexpr std::chrono::milliseconds kLease{1000};

// Holds calls and actions until the test takes them.
class HeldTransport final : public Transport {
 public:
  struct HeldCall {
    std::string address;
    Method method;
    std::string request;
    MonotonicDuration timeout;
    Done done;
  };

  void Call(const std::string& address, Method method, OutgoingMessage request,
            MonotonicDuration timeout, Done done) override {
    HeldCall call{address, method, std::string(request.bytes.size(), '\0'), timeout,
                  std::move(done)};
    request.bytes.CopyTo(call.request.data());
    calls.push_back(std::move(call));
  }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    last_delay = delay;
    actions.push_back(std::move(action));
  }
  void Forget(const std::string& address) override { forgotten.push_back(address); }
  void Shutdown() override {}

  // Ends the calls that are held now.
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
    return std::count_if(calls.begin(), calls.end(),
                         [&](const HeldCall& call) { return call.method == method; });
  }

  std::deque<HeldCall> calls;
  std::deque<absl::AnyInvocable<void()>> actions;
  std::vector<std::string> forgotten;
  MonotonicDuration last_delay = MonotonicDuration::zero();
};

class ReplicaTest : public testing::Test {
 protected:
  // This server is server-0. Another `incarnation` is a restart of it.
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
    registration.mutable_job()->set_min_in_sync(min_in_sync_);
    plane_->Begin(registration);
  }

  static Job TheJob() {
    Job job = ServerJob(ASYNC, kPartitions, /*logical_workers=*/1);
    job.set_replicas(2);
    return job;
  }

  struct Roles {
    uint32_t primary = 0;
    std::vector<uint32_t> backups = {};
    std::vector<uint32_t> learners = {};
    uint64_t since = 1;
    uint64_t learners_since = 0;
    uint64_t created_epoch = 0;
    std::vector<uint32_t> retained = {};
    uint64_t confirm_since = 0;
    std::optional<uint32_t> yielding = std::nullopt;
  };
  // All servers have that incarnation.
  static RoutingTable Routing(uint64_t epoch, const std::vector<Roles>& roles,
                              uint64_t incarnation = 1) {
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
      replicas.set_created_epoch(of.created_epoch);
      replicas.set_confirm_since(of.confirm_since);
      if (of.yielding.has_value()) replicas.set_yielding(*of.yielding);
      for (const uint32_t retained : of.retained) replicas.add_retained(retained);
      for (const uint32_t backup : of.backups) replicas.add_backups(backup);
      for (const uint32_t learner : of.learners) {
        replicas.add_learners(learner);
        replicas.add_learners_since(of.learners_since);
      }
    }
    return routing;
  }

  static std::unique_ptr<Partition> EmptyPartition(uint32_t index) {
    return std::make_unique<Partition>(
        index, PartitionOptionsOf(TheJob(), DataPlaneOptions().max_rows_per_partition));
  }
  // The partition after the changes 1 to `changes` of that term.
  static std::unique_ptr<Partition> PartitionAfter(uint64_t changes, uint64_t term = 1,
                                                   uint32_t index = 0) {
    auto partition = EmptyPartition(index);
    EXPECT_TRUE(partition->SetTerm(term).ok());
    for (uint64_t step = 1; step <= changes; ++step) partition->KeepBest(step);
    return partition;
  }
  static std::string SnapshotOf(const Partition& partition) {
    std::string bytes;
    SavePartition(partition, [&](const void* data, size_t size) {
      bytes.append(static_cast<const char*>(data), size);
    });
    return bytes;
  }

  std::shared_ptr<std::optional<absl::Status>> Send(Method method,
                                                    const google::protobuf::MessageLite& request) {
    auto bytes = std::make_shared<std::string>(request.SerializeAsString());
    auto answer = std::make_shared<std::optional<absl::Status>>();
    CallContext context;
    context.deadline = clock_.Now() + std::chrono::seconds(10);
    plane_->Handle(method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes}, context,
                   [this, answer](absl::Status status, OutgoingMessage message) {
                     *answer = std::move(status);
                     answered_.resize(message.bytes.size());
                     message.bytes.CopyTo(answered_.data());
                   });
    return answer;
  }

  // A stream to server 1 whose owner ignores the answers.
  std::shared_ptr<ReplicationStream> NewStream() {
    struct Owner final : ReplicationStream::Owner {
      ReplicationHeader Header() const override { return {}; }
      void OnAnswer(const ReplicationStream::Server&, const ReplicateResponse&,
                    const std::vector<uint32_t>&, MonotonicTime) override {}
      void OnFailure(const ReplicationStream::Server&, const absl::Status&) override {}
    };
    static Owner owner;
    return std::make_shared<ReplicationStream>(transport_, clock_, "1",
                                               ReplicationStream::Server("server-1", 1), owner);
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
    const TableSpec spec = WithSgd(DenseTableSpec("rows-" + std::to_string(id), {10}, id));
    auto created = std::make_shared<absl::Status>(absl::UnknownError("no answer"));
    plane_->CreateTable(plane_->epoch(), spec,
                        [created](absl::Status status) { *created = std::move(status); });
    return *created;
  }

  HeartbeatRequest Heartbeat() {
    plane_->Tick();
    HeartbeatRequest heartbeat;
    plane_->FillHeartbeat(heartbeat);
    return heartbeat;
  }
  // The number of learners that a heartbeat reports as caught up.
  int CaughtUp() {
    clock_.Advance(std::chrono::seconds(1));
    return Heartbeat().caught_up_size();
  }
  // The followers that a heartbeat reports as silent.
  std::vector<std::string> Silent() {
    std::vector<std::string> nodes;
    const HeartbeatRequest heartbeat = Heartbeat();
    for (const SilentServer& silent : heartbeat.silent()) nodes.push_back(silent.node());
    return nodes;
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

  // A change of partition 0 as its primary sends it. `term`: 0 means the epoch.
  static ReplicateRequest BestKept(uint32_t primary, uint64_t epoch, uint64_t index, uint64_t step,
                                   uint64_t term = 0) {
    ReplicateRequest request;
    *request.mutable_header() = HeaderOf(primary, epoch);
    LogEntry& entry = *request.add_entries();
    entry.set_index(index);
    entry.set_term(term == 0 ? epoch : term);
    entry.mutable_best_kept()->set_step(step);
    return request;
  }

  // The first piece of a snapshot of partition 0, from the primary of term `epoch`.
  static InstallSnapshotRequest FirstPiece(uint32_t primary, uint64_t epoch,
                                           const std::string& data) {
    InstallSnapshotRequest piece;
    *piece.mutable_header() = HeaderOf(primary, epoch);
    piece.set_primary_since(epoch);
    piece.set_data(data);
    return piece;
  }
  // A whole snapshot in one piece.
  static InstallSnapshotRequest WholeSnapshot(uint32_t primary, uint64_t epoch,
                                              const Partition& partition) {
    const std::string snapshot = SnapshotOf(partition);
    InstallSnapshotRequest piece = FirstPiece(primary, epoch, snapshot);
    piece.set_log_index(partition.log_index());
    piece.set_log_term(partition.terms().TermOf(partition.log_index()));
    piece.set_crc32c(Crc32c(0, snapshot.data(), snapshot.size()));
    piece.set_last(true);
    return piece;
  }

  // This server is the primary; server-1 learns partition 0 (or all) from it, and needs a snapshot.
  void BecomePrimaryWithLearner(bool all_partitions = false) {
    Begin();
    plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
    ASSERT_TRUE(Create().ok());
    const Roles learns = {.primary = 0, .learners = {1}, .learners_since = 2};
    plane_->AdoptRouting(Routing(2, {learns, all_partitions ? learns : Roles{.primary = 0}}));
    AnswerEmptyPositions();
    ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), all_partitions ? kPartitions : 1u);
  }

  // This server and server-2 follow server-1, whose changes 1 to `changes` of partition 0 reach
  // this server. Then server-1 is gone.
  void BecomePrimaryAfter(uint64_t changes) {
    Begin();
    plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0, 2}}, {.primary = 1}}));
    for (uint64_t index = 1; index <= changes; ++index) {
      EXPECT_TRUE((*Send(Method::kReplicate, BestKept(1, 1, index, index)))->ok());
    }
    plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {2}, .since = 2}, {.primary = 1}}));
  }

  // Answers the positions of followers that have nothing.
  void AnswerEmptyPositions() {
    ReplicateResponse response;
    for (uint32_t partition = 0; partition < kPartitions; ++partition)
      response.add_positions()->set_partition(partition);
    transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  }

  // Answers the request in flight with the follower's position in partition 0, whose primary this
  // server is in term `follows_since`, and, if it was asked, with the terms of its entries.
  void AnswerPosition(uint64_t log_index, uint64_t follows_since = 1,
                      const std::vector<TermRun>& terms = {}, bool can_go_back = false) {
    ReplicateResponse response;
    ReplicaPosition& position = *response.add_positions();
    position.set_log_index(log_index);
    position.set_follows_since(follows_since);
    position.set_can_go_back(can_go_back);
    for (const TermRun& run : terms) {
      position.add_terms()->set_first_index(run.first_index);
      position.mutable_terms()->rbegin()->set_term(run.term);
    }
    transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  }

  // The indices of the entries in flight.
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
  uint32_t min_in_sync_ = 1;
  // The message of the last answer.
  std::string answered_;
  std::unique_ptr<FakeDurableLog> log_;
  std::unique_ptr<DataPlane> plane_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_TESTING_REPLICA_FIXTURE_H_
