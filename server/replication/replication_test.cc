// Two servers in one process that replicate to each other.
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/rpc/request_handler.h"
#include "client_lib/rpc/testing/in_process_transport.h"
#include "gtest/gtest.h"
#include "server/data_plane/data_plane.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr uint32_t kPartitions = 8;
constexpr uint32_t kTable = 1;
constexpr uint32_t kKeys = 64;

// A backup that accepts nothing.
class RefusingHandler final : public RequestHandler {
 public:
  void Handle(Method, IncomingMessage, CallContext, Reply reply) override {
    ++calls;
    reply(absl::UnavailableError("accepts nothing"), OutgoingMessage());
  }

  std::atomic<int> calls{0};
};

class ReplicationTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      DataPlaneOptions options;
      planes_.push_back(std::make_unique<DataPlane>(options, Clock::Real(), transport_.get()));
      RegisterResponse registration;
      registration.set_job_id(kJobId);
      registration.set_node("server-" + std::to_string(i));
      registration.set_incarnation(i + 1);
      registration.set_lease_ms(1000);
      *registration.mutable_job() = ServerJob(ASYNC, kPartitions, /*logical_workers=*/1);
      planes_[i]->Begin(registration);
      Connect(i);
    }
  }

  void TearDown() override {
    transport_->Shutdown();
    transport_.reset();
  }

  void Connect(int server) {
    transport_->SetHandler(std::to_string(server), planes_[server].get());
  }
  void Disconnect(int server) { transport_->SetHandler(std::to_string(server), nullptr); }

  // `since`: the epoch at which the primary became primary.
  static RoutingTable Routing(uint64_t epoch, uint32_t primary, std::vector<uint32_t> backups,
                              std::vector<uint32_t> learners = {}, uint64_t since = 1) {
    RoutingTable routing;
    routing.set_job_id(kJobId);
    routing.set_epoch(epoch);
    for (int i = 0; i < 2; ++i) {
      ServerAddress& server = *routing.add_servers();
      server.set_node("server-" + std::to_string(i));
      server.set_address(std::to_string(i));
      server.set_incarnation(i + 1);
    }
    for (uint32_t p = 0; p < kPartitions; ++p) {
      routing.add_primary(primary);
      PartitionReplicas& replicas = *routing.add_replicas();
      replicas.set_primary_since(since);
      for (const uint32_t backup : backups) replicas.add_backups(backup);
      for (const uint32_t learner : learners) replicas.add_learners(learner);
    }
    return routing;
  }

  void AdoptAll(const RoutingTable& routing) {
    for (const auto& plane : planes_) plane->AdoptRouting(routing);
  }

  // Runs Tick, like a server's main thread, until `holds`.
  bool WaitFor(const std::function<bool()>& holds) {
    return Eventually([&] {
      const bool they_do = holds();
      if (!they_do) {
        for (const auto& plane : planes_) plane->Tick();
      }
      return they_do;
    });
  }

  // An answer that may arrive on another thread.
  struct Answer {
    Mutex mu;
    bool done PAWL_GUARDED_BY(mu) = false;
    absl::Status status PAWL_GUARDED_BY(mu);
    std::string bytes PAWL_GUARDED_BY(mu);

    bool Done() {
      MutexLock lock(mu);
      return done;
    }
  };

  std::shared_ptr<Answer> Send(int server, Method method,
                               const google::protobuf::MessageLite& request) {
    auto bytes = std::make_shared<std::string>(request.SerializeAsString());
    auto answer = std::make_shared<Answer>();
    CallContext context;
    context.deadline = Clock::Real().Now() + kTestPatience;
    planes_[server]->Handle(method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes},
                            context, [answer](absl::Status status, OutgoingMessage message) {
                              MutexLock lock(answer->mu);
                              answer->done = true;
                              answer->status = std::move(status);
                              answer->bytes.resize(message.bytes.size());
                              message.bytes.CopyTo(answer->bytes.data());
                            });
    return answer;
  }

  absl::Status StatusOf(const std::shared_ptr<Answer>& answer) {
    if (!WaitFor([&] { return answer->Done(); }))
      return absl::DeadlineExceededError("the test's patience");
    MutexLock lock(answer->mu);
    return answer->status;
  }

  absl::Status CreateTable(int server) {
    const TableSpec spec = WithSgd(SparseTableSpec("rows", 1, kTable));
    auto answer = std::make_shared<Answer>();
    planes_[server]->CreateTable(planes_[server]->epoch(), spec, [answer](absl::Status status) {
      MutexLock lock(answer->mu);
      answer->done = true;
      answer->status = std::move(status);
    });
    return StatusOf(answer);
  }

  // Push number `ordinal` in each partition: -1 to every key.
  static PushRequest PushOf(uint64_t epoch, uint64_t ordinal) {
    PushRequest request;
    RequestHeader& header = *request.mutable_header();
    header.set_job_id(kJobId);
    header.set_epoch(epoch);
    header.set_client(0);
    header.set_incarnation(1);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      std::string keys, values;
      const float gradient = -1;
      for (uint64_t key = 0; key < kKeys; ++key) {
        if (PartitionOf(kTable, key, kPartitions) != p) continue;
        keys.append(reinterpret_cast<const char*>(&key), sizeof(key));
        values.append(reinterpret_cast<const char*>(&gradient), sizeof(gradient));
      }
      if (keys.empty()) continue;
      PushSegment& segment = *request.add_segments();
      segment.set_table(kTable);
      segment.set_partition(p);
      segment.set_ordinal(ordinal);
      segment.set_element_type(FLOAT32);
      segment.set_keys(keys);
      segment.set_values(values);
    }
    return request;
  }

  absl::Status Push(int server, uint64_t epoch, uint64_t ordinal) {
    return StatusOf(Send(server, Method::kPush, PushOf(epoch, ordinal)));
  }

  // To one key.
  float Value(int server, uint64_t epoch, uint64_t key) {
    PullRequest request;
    request.mutable_header()->set_job_id(kJobId);
    request.mutable_header()->set_epoch(epoch);
    PullSegment& segment = *request.add_segments();
    segment.set_table(kTable);
    segment.set_partition(PartitionOf(kTable, key, kPartitions));
    segment.set_keys(std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
    const auto answer = Send(server, Method::kPull, request);
    const absl::Status status = StatusOf(answer);
    EXPECT_TRUE(status.ok()) << status;
    MutexLock lock(answer->mu);
    PullResponse response;
    EXPECT_TRUE(response.ParseFromString(answer->bytes));
    float value = -1;
    if (response.results_size() == 1)
      std::memcpy(&value, response.results(0).values().data(), sizeof(value));
    return value;
  }

  std::string Fingerprints(int server) {
    auto answer = planes_[server]->Fingerprint(0);
    EXPECT_TRUE(answer.ok()) << answer.status();
    std::string text;
    for (const ReplicaFingerprint& replica : answer->replicas()) {
      text += std::to_string(replica.partition()) + ":" + std::to_string(replica.log_index()) +
              ":" + std::to_string(replica.fingerprint()) + " ";
    }
    return text;
  }

  std::unique_ptr<InProcessTransport> transport_ = std::make_unique<InProcessTransport>();
  std::vector<std::unique_ptr<DataPlane>> planes_;
};

TEST_F(ReplicationTest, PushIsAcknowledgedOnceTheBackupHasIt) {
  AdoptAll(Routing(1, 0, {1}));
  ASSERT_TRUE(CreateTable(0).ok());
  RefusingHandler refusing;
  transport_->SetHandler("1", &refusing);
  const auto answer = Send(0, Method::kPush, PushOf(1, 0));
  // Sent again meanwhile, it is a duplicate, and must not be acknowledged either.
  const auto again = Send(0, Method::kPush, PushOf(1, 0));
  // The second try proves that the primary has handled the end of the first.
  ASSERT_TRUE(Eventually([&] { return refusing.calls >= 2; }));
  EXPECT_FALSE(answer->Done());
  EXPECT_FALSE(again->Done());
  Connect(1);
  EXPECT_TRUE(StatusOf(answer).ok());
  EXPECT_TRUE(StatusOf(again).ok());
  EXPECT_EQ(Fingerprints(0), Fingerprints(1));
}

TEST_F(ReplicationTest, ReplicasAreBitIdentical) {
  AdoptAll(Routing(1, 0, {1}));
  ASSERT_TRUE(CreateTable(0).ok());
  for (uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(Push(0, 1, i).ok());
  EXPECT_EQ(Fingerprints(0), Fingerprints(1));
  EXPECT_NE(Fingerprints(0), "");
  EXPECT_EQ(Value(0, 1, 5), 50);
}

TEST_F(ReplicationTest, PromotedBackupHasAllPushesAndRecognizesDuplicates) {
  AdoptAll(Routing(1, 0, {1}));
  ASSERT_TRUE(CreateTable(0).ok());
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(Push(0, 1, i).ok());
  Disconnect(0);
  planes_[1]->AdoptRouting(Routing(2, 1, {}, {}, /*since=*/2));
  ASSERT_TRUE(Push(1, 2, 19).ok());
  EXPECT_EQ(Value(1, 2, 5), 20);
  ASSERT_TRUE(Push(1, 2, 20).ok());
  EXPECT_EQ(Value(1, 2, 5), 21);
  EXPECT_TRUE(absl::IsFailedPrecondition(Push(1, 1, 21))) << "an epoch before the primary's";
}

// All partitions share the backup's streams. Only those with other data may be held up.
TEST_F(ReplicationTest, BackupThatHasDivergedGetsASnapshot) {
  AdoptAll(Routing(1, 0, {1}));
  ASSERT_TRUE(CreateTable(0).ok());
  ASSERT_TRUE(Push(0, 1, 0).ok());
  ReplicateRequest other;
  other.mutable_header()->set_job_id(kJobId);
  other.mutable_header()->set_epoch(1);
  other.mutable_header()->set_node("server-0");
  other.mutable_header()->set_incarnation(1);
  LogEntry& entry = *other.add_entries();
  entry.set_partition(PartitionOf(kTable, 5, kPartitions));
  entry.set_index(3);  // after the table and the push
  entry.set_term(2);
  entry.mutable_best_kept()->set_step(1);
  ASSERT_TRUE(StatusOf(Send(1, Method::kReplicate, other)).ok());
  for (uint64_t ordinal = 1; ordinal < 10; ++ordinal)
    ASSERT_TRUE(Push(0, 1, ordinal).ok()) << "push " << ordinal;
  EXPECT_EQ(Fingerprints(0), Fingerprints(1));
}

TEST_F(ReplicationTest, ReplacedPrimaryAcknowledgesNothing) {
  AdoptAll(Routing(1, 0, {1}));
  ASSERT_TRUE(CreateTable(0).ok());
  ASSERT_TRUE(Push(0, 1, 0).ok());
  // The old primary does not hear of it, as if it had been paused.
  planes_[1]->AdoptRouting(Routing(2, 1, {}, {}, /*since=*/2));
  const absl::Status status = Push(0, 1, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(status.GetPayload(kRoutingPayloadUrl).has_value()) << status;
  EXPECT_EQ(Value(1, 2, 5), 1);
}

TEST_F(ReplicationTest, LearnerCatchesUpAndBecomesABackup) {
  AdoptAll(Routing(1, 0, {}));
  ASSERT_TRUE(CreateTable(0).ok());
  uint64_t ordinal = 0;
  for (; ordinal < 30; ++ordinal) ASSERT_TRUE(Push(0, 1, ordinal).ok());
  AdoptAll(Routing(2, 0, {}, {1}));
  for (; ordinal < 60; ++ordinal) ASSERT_TRUE(Push(0, 1, ordinal).ok());
  EXPECT_TRUE(WaitFor([&] {
    HeartbeatRequest heartbeat;
    planes_[0]->FillHeartbeat(heartbeat);
    return heartbeat.caught_up_size() == static_cast<int>(kPartitions);
  }));
  AdoptAll(Routing(3, 0, {1}));
  for (; ordinal < 70; ++ordinal) ASSERT_TRUE(Push(0, 1, ordinal).ok());
  EXPECT_EQ(Fingerprints(0), Fingerprints(1));
  AdoptAll(Routing(4, 1, {}, {}, /*since=*/4));
  EXPECT_EQ(Value(1, 4, 5), 70);
}

}  // namespace
}  // namespace pawl
