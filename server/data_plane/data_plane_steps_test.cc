// Step closing with and without helper threads.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "server/data_plane/data_plane.h"
#include "server/replication/testing/fake_durable_log.h"
#include "server/testing/two_servers.h"
#include "server/threads/helper_threads.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr uint32_t kPartitions = 64;
constexpr uint32_t kRanks = 3;
constexpr uint32_t kTable = 1;
constexpr uint32_t kWidth = 4;
constexpr uint64_t kKeys = 4000;
constexpr uint64_t kSteps = 4;

// A server with all partitions, primary or backup of each.
struct Server {
  explicit Server(size_t threads, bool is_primary = true, std::function<void()> appended = nullptr,
                  const Clock& clock = Clock::Real(), bool is_durable = true,
                  float clip_global_norm = 0)
      : clips(clip_global_norm > 0), plane(WithHelp(&helpers), clock), helpers(threads) {
    log.on_append = std::move(appended);
    plane.SetLog(log);
    RegisterResponse registration;
    registration.set_job_id(kJobId);
    registration.set_node(is_primary ? "server-0" : "server-1");
    registration.set_incarnation(1);
    registration.set_lease_ms(1000);
    *registration.mutable_job() = ServerJob(SYNC, kPartitions, kRanks);
    registration.mutable_job()->set_clip_global_norm(clip_global_norm);
    plane.Begin(registration);
    RoutingTable routing = TwoServers(kJobId, 1);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      routing.add_primary(0);
      PartitionReplicas& replicas = *routing.add_replicas();
      replicas.set_primary_since(1);
      replicas.add_backups(1);
    }
    plane.AdoptRouting(routing);
    if (is_durable) MakeAllDurable();
  }

  // Everything written so far and later becomes durable.
  void MakeAllDurable() {
    for (uint32_t p = 0; p < kPartitions; ++p) plane.OnDurable(p);
  }

  static DataPlaneOptions WithHelp(HelperThreads* helpers) {
    DataPlaneOptions options;
    options.helpers = helpers;
    return options;
  }

  absl::Status Send(Method method, const google::protobuf::MessageLite& request) {
    const auto outcome = std::make_shared<Outcome>();
    Begin(method, request, outcome);
    return outcome->Wait();
  }

  struct Outcome {
    Mutex mu;
    std::optional<absl::Status> status PAWL_GUARDED_BY(mu);
    void Set(absl::Status is) {
      MutexLock lock(mu);
      EXPECT_FALSE(status.has_value()) << "answered twice: " << is;
      status = std::move(is);
    }
    bool there() {
      MutexLock lock(mu);
      return status.has_value();
    }
    absl::Status Wait() {
      Eventually([&] { return there(); });
      MutexLock lock(mu);
      return status.value_or(absl::DeadlineExceededError("the test's patience"));
    }
  };

  void Begin(Method method, const google::protobuf::MessageLite& request,
             const std::shared_ptr<Outcome>& outcome) {
    auto bytes = std::make_shared<std::string>(request.SerializeAsString());
    CallContext context;
    context.deadline = Clock::Real().Now() + kTestPatience;
    plane.Handle(
        method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes}, context,
        [outcome](absl::Status status, OutgoingMessage) { outcome->Set(std::move(status)); });
  }

  // Runs a change of all partitions that answers by a callback.
  absl::Status Changed(const std::function<void(DataPlane::Done)>& change) {
    const auto outcome = std::make_shared<Outcome>();
    change([outcome](absl::Status status) { outcome->Set(std::move(status)); });
    return outcome->Wait();
  }

  void CreateTable() {
    TableSpec spec = SparseTableSpec("rows", kWidth, kTable);
    spec.mutable_optimizer()->mutable_adam()->set_learning_rate(0.01);
    const absl::Status created =
        Changed([&](DataPlane::Done done) { plane.CreateTable(1, spec, std::move(done)); });
    ASSERT_TRUE(created.ok()) << created;
  }

  static RequestHeader Header(uint32_t rank, uint64_t step) {
    RequestHeader header;
    header.set_job_id(kJobId);
    header.set_epoch(1);
    header.set_logical_worker(rank);
    header.set_incarnation(1);
    header.set_step(step);
    return header;
  }

  // Pushes random gradients for a third of the keys, one segment for each partition.
  void Push(uint32_t rank, uint64_t step) {
    std::mt19937 random(static_cast<uint32_t>(rank + kRanks * step));
    PushRequest push;
    *push.mutable_header() = Header(rank, step);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      PushSegment& segment = *push.add_segments();
      segment.set_table(kTable);
      segment.set_partition(p);
      segment.set_element_type(FLOAT32);
    }
    for (uint64_t key = 0; key < kKeys; ++key) {
      if (random() % 3 != 0) continue;
      PushSegment& segment =
          *push.mutable_segments(static_cast<int>(PartitionOf(kTable, key, kPartitions)));
      segment.mutable_keys()->append(reinterpret_cast<const char*>(&key), sizeof(key));
      for (uint32_t i = 0; i < kWidth; ++i) {
        const float value = static_cast<float>(random() % 1000) / 333.0f - 1.5f;
        segment.mutable_values()->append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    }
    const absl::Status pushed = Send(Method::kPush, push);
    ASSERT_TRUE(pushed.ok()) << pushed;
  }

  EndStepRequest End(uint32_t rank, uint64_t step) {
    EndStepRequest request;
    *request.mutable_header() = Header(rank, step);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      request.add_partitions(p);
      request.add_segments(1);
    }
    return request;
  }

  void Step(uint64_t step) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) Push(rank, step);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const absl::Status ended = Send(Method::kEndStep, End(rank, step));
      ASSERT_TRUE(ended.ok()) << ended;
    }
    if (!clips) return;
    const absl::Status closed = Send(Method::kEndStep, Close(0, step));
    ASSERT_TRUE(closed.ok()) << closed;
  }

  EndStepRequest Close(uint32_t rank, uint64_t step) {
    EndStepRequest request = End(rank, step);
    request.clear_segments();
    request.set_phase(EndStepRequest::CLOSE);
    request.set_scale(0.25f);
    return request;
  }

  // The digests of the table's parts with all counters that a step changes, and of all state.
  std::string Digests() {
    InspectResponse inspection = *plane.Inspect(1, /*digest=*/true);
    EXPECT_EQ(inspection.digests_size(), static_cast<int>(kPartitions));
    inspection.clear_counters();
    FingerprintResponse fingerprint = *plane.Fingerprint(1);
    for (ReplicaFingerprint& replica : *fingerprint.mutable_replicas()) replica.clear_primary();
    return inspection.SerializeAsString() + fingerprint.SerializeAsString();
  }
  std::string Fingerprints() {
    FingerprintResponse fingerprint = *plane.Fingerprint(1);
    for (ReplicaFingerprint& replica : *fingerprint.mutable_replicas()) replica.clear_primary();
    return fingerprint.SerializeAsString();
  }

  const bool clips;
  FakeDurableLog log;
  DataPlane plane;
  // Destroyed first: its threads work on the data plane.
  HelperThreads helpers;
};

// Trains, keeps the best parameters in the middle and restores them at the end.
void TrainAll(Server& server) {
  server.CreateTable();
  for (uint64_t step = 0; step < kSteps; ++step) {
    server.Step(step);
    if (step != 1) continue;
    const absl::Status kept = server.Changed(
        [&](DataPlane::Done done) { server.plane.KeepBest(1, step + 1, std::move(done)); });
    ASSERT_TRUE(kept.ok()) << kept;
  }
}

// Without and with clip_global_norm.
class DataPlaneSteps : public testing::TestWithParam<float> {
 protected:
  static std::unique_ptr<Server> Start(size_t threads, bool is_primary = true) {
    return std::make_unique<Server>(threads, is_primary, nullptr, Clock::Real(),
                                    /*is_durable=*/true, GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(ClipGlobalNorm, DataPlaneSteps, testing::Values(0.0f, 1.0f),
                         [](const testing::TestParamInfo<float>& info) {
                           return info.param > 0 ? "clip" : "none";
                         });

TEST_P(DataPlaneSteps, HelpersDoNotChangeTheResult) {
  const std::unique_ptr<Server> unhelped = Start(0);
  const std::unique_ptr<Server> with_help = Start(4);
  Server& alone = *unhelped;
  Server& helped = *with_help;
  for (Server* server : {&alone, &helped}) TrainAll(*server);
  EXPECT_EQ(helped.Digests(), alone.Digests());
  for (Server* server : {&alone, &helped}) {
    const absl::Status restored = server->Changed(
        [&](DataPlane::Done done) { server->plane.RestoreBest(1, std::move(done)); });
    ASSERT_TRUE(restored.ok()) << restored;
  }
  EXPECT_EQ(helped.Digests(), alone.Digests());
}

// The request in which the primary sends the changes in [begin, end).
ReplicateRequest Changes(const std::vector<std::string>& entries, size_t begin, size_t end) {
  ReplicateRequest changes;
  changes.mutable_header()->set_job_id(kJobId);
  changes.mutable_header()->set_epoch(1);
  changes.mutable_header()->set_node("server-0");
  changes.mutable_header()->set_incarnation(1);
  for (size_t i = begin; i < end; ++i)
    EXPECT_TRUE(changes.add_entries()->ParseFromString(entries[i]));
  return changes;
}

TEST_P(DataPlaneSteps, BackupWithHelpersEqualsItsPrimary) {
  const std::unique_ptr<Server> server = Start(4);
  Server& primary = *server;
  TrainAll(primary);
  const std::vector<std::string> entries = primary.log.entries();
  const ReplicateRequest changes = Changes(entries, 0, entries.size());
  for (const size_t threads : {0, 4}) {
    const std::unique_ptr<Server> backup = Start(threads, /*is_primary=*/false);
    const absl::Status taken = backup->Send(Method::kReplicate, changes);
    ASSERT_TRUE(taken.ok()) << taken;
    EXPECT_EQ(backup->Fingerprints(), primary.Fingerprints());
  }
}

// In a closing step, each thread waits in its first partition until another thread has reached its
// own.
TEST(DataPlaneHelpers, OnlyTheClosingEndUsesHelpers) {
  std::atomic<bool> watches{false};
  Mutex mu;
  std::set<std::thread::id> threads;
  std::atomic<size_t> wanted{1};
  const auto appended = [&] {
    if (!watches) return;
    {
      MutexLock lock(mu);
      threads.insert(std::this_thread::get_id());
    }
    EXPECT_TRUE(Eventually([&] {
      MutexLock lock(mu);
      return threads.size() >= wanted;
    }));
  };
  Server server(2, /*is_primary=*/true, appended);
  server.CreateTable();
  for (uint32_t rank = 0; rank < kRanks; ++rank) server.Push(rank, 0);
  watches = true;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank + 1 == kRanks) wanted = 3;
    ASSERT_TRUE(server.Send(Method::kEndStep, server.End(rank, 0)).ok());
    MutexLock lock(mu);
    EXPECT_EQ(threads.size(), wanted);
  }
  watches = false;
}

// While watched, each thread of a backup waits in its first change until enough others have reached
// theirs.
struct Together {
  explicit Together(size_t threads) : wanted(threads) {}

  const size_t wanted;
  std::atomic<bool> watches{false};
  Mutex mu;
  std::set<std::thread::id> threads PAWL_GUARDED_BY(mu);

  size_t Count() {
    MutexLock lock(mu);
    return threads.size();
  }
  void Come() {
    if (!watches) return;
    {
      MutexLock lock(mu);
      threads.insert(std::this_thread::get_id());
    }
    EXPECT_TRUE(Eventually([&] { return Count() >= wanted; }));
  }
};

TEST(DataPlaneHelpers, BackupUsesHelpersOnlyForTheClosingEnd) {
  Server primary(0);
  primary.CreateTable();
  for (uint32_t rank = 0; rank < kRanks; ++rank) primary.Push(rank, 0);
  for (uint32_t rank = 0; rank + 1 < kRanks; ++rank) {
    ASSERT_TRUE(primary.Send(Method::kEndStep, primary.End(rank, 0)).ok());
  }
  const size_t before = primary.log.entries().size();
  ASSERT_TRUE(primary.Send(Method::kEndStep, primary.End(kRanks - 1, 0)).ok());
  const std::vector<std::string> entries = primary.log.entries();

  Together together(2);
  std::atomic<bool> busy{false};
  std::atomic<bool> over{false};
  std::atomic<size_t> helped{0};
  Server backup(1, /*is_primary=*/false, [&] { together.Come(); });
  backup.helpers.Offer([&] {
    busy = true;
    EXPECT_TRUE(Eventually([&] { return over.load(); }));
  });
  ASSERT_TRUE(Eventually([&] { return busy.load(); }));
  // The queue has room for one more offer, which no thread takes.
  for (size_t i = 0; i + 1 < kMaxPendingOffers; ++i) backup.helpers.Offer([&] { ++helped; });
  ASSERT_TRUE(backup.Send(Method::kReplicate, Changes(entries, 0, before)).ok());
  backup.helpers.Offer([&] { ++helped; });
  over = true;
  EXPECT_TRUE(Eventually([&] { return helped == kMaxPendingOffers; })) << helped;

  together.watches = true;
  ASSERT_TRUE(backup.Send(Method::kReplicate, Changes(entries, before, entries.size())).ok());
  together.watches = false;
  EXPECT_EQ(together.Count(), 2u);
  EXPECT_EQ(backup.Fingerprints(), primary.Fingerprints());
}

// Together the ends close the step, although no single one does.
TEST(DataPlaneHelpers, BackupUsesHelpersForEndsInOneMessage) {
  Server primary(0);
  primary.CreateTable();
  primary.Step(0);
  const std::vector<std::string> entries = primary.log.entries();
  Together together(3);
  Server backup(2, /*is_primary=*/false, [&] { together.Come(); });
  together.watches = true;
  ASSERT_TRUE(backup.Send(Method::kReplicate, Changes(entries, 0, entries.size())).ok());
  EXPECT_EQ(together.Count(), 3u);
  EXPECT_EQ(backup.Fingerprints(), primary.Fingerprints());
}

TEST(DataPlaneHelpers, DeadlineForFollowersExcludesTheWork) {
  SimulatedClock clock;
  Server server(
      0, /*is_primary=*/true, [&] { clock.Advance(std::chrono::seconds(1)); }, clock,
      /*is_durable=*/false);
  ASSERT_LT(DataPlaneOptions().control_deadline, std::chrono::seconds(kPartitions));
  const auto outcome = std::make_shared<Server::Outcome>();
  server.plane.KeepBest(1, 1, [outcome](absl::Status status) { outcome->Set(std::move(status)); });
  ASSERT_EQ(server.log.entries().size(), kPartitions);
  server.plane.Tick();
  EXPECT_FALSE(outcome->there());
  server.MakeAllDurable();
  const absl::Status kept = outcome->Wait();
  EXPECT_TRUE(kept.ok()) << kept;
}

// Calls that wait for one partition do not wait for the others.
TEST(DataPlaneHelpers, PullResumesOnceItsPartitionsHaveClosed) {
  std::atomic<uint32_t> closed{0};
  std::atomic<bool> counts{false};
  Server server(0, /*is_primary=*/true, [&] { closed += counts; });
  server.CreateTable();
  for (uint32_t rank = 0; rank < kRanks; ++rank) server.Push(rank, 0);
  uint64_t key = 0;
  while (PartitionOf(kTable, key, kPartitions) != 0) ++key;
  PullRequest pull;
  *pull.mutable_header() = Server::Header(0, 1);
  PullSegment& segment = *pull.add_segments();
  segment.set_table(kTable);
  segment.set_partition(0);
  segment.set_keys(std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
  const std::string bytes = pull.SerializeAsString();
  CallContext context;
  context.deadline = Clock::Real().Now() + kTestPatience;
  uint32_t closed_before = 0;
  server.plane.Handle(Method::kPull, IncomingMessage{ByteView(bytes.data(), bytes.size()), nullptr},
                      context, [&](const absl::Status& status, const OutgoingMessage&) {
                        EXPECT_TRUE(status.ok()) << status;
                        closed_before = closed;
                      });
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    counts = rank + 1 == kRanks;
    ASSERT_TRUE(server.Send(Method::kEndStep, server.End(rank, 0)).ok());
  }
  EXPECT_EQ(closed, kPartitions);
  EXPECT_EQ(closed_before, 1u);
}

// Close waits for no call, and every call is answered.
TEST(DataPlaneHelpers, ServerMayCloseDuringAStepClose) {
  Server server(4);
  server.CreateTable();
  for (uint32_t rank = 0; rank < kRanks; ++rank) server.Push(rank, 0);
  for (uint32_t rank = 0; rank + 1 < kRanks; ++rank) {
    ASSERT_TRUE(server.Send(Method::kEndStep, server.End(rank, 0)).ok());
  }
  std::thread closer([&] { server.plane.Close(absl::UnavailableError("the server is ending")); });
  const absl::Status ended = server.Send(Method::kEndStep, server.End(kRanks - 1, 0));
  EXPECT_TRUE(ended.ok() || absl::IsUnavailable(ended)) << ended;
  closer.join();
}

// Otherwise the step could be closed with an end that a new primary lacks, and the close refused.
TEST(DataPlaneHelpers, SquaresAreAnsweredOnceAllEndsAreDurable) {
  Server server(0, /*is_primary=*/true, nullptr, Clock::Real(), /*is_durable=*/false,
                /*clip_global_norm=*/1);
  std::vector<std::shared_ptr<Server::Outcome>> outcomes;
  const auto begin = [&](const EndStepRequest& request) {
    outcomes.push_back(std::make_shared<Server::Outcome>());
    server.Begin(Method::kEndStep, request, outcomes.back());
  };
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EndStepRequest end = server.End(rank, 0);
    end.clear_segments();
    begin(end);
  }
  EndStepRequest await = server.Close(0, 0);
  await.set_phase(EndStepRequest::AWAIT_ALL);
  begin(await);
  for (const auto& outcome : outcomes) EXPECT_FALSE(outcome->there());
  server.MakeAllDurable();
  for (const auto& outcome : outcomes) {
    const absl::Status status = outcome->Wait();
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(DataPlaneHelpers, FirstCloseUsesHelpers) {
  Mutex mu;
  std::set<std::thread::id> threads;
  std::atomic<size_t> wanted{1};
  const auto appended = [&] {
    {
      MutexLock lock(mu);
      threads.insert(std::this_thread::get_id());
    }
    EXPECT_TRUE(Eventually([&] {
      MutexLock lock(mu);
      return threads.size() >= wanted;
    }));
  };
  Server server(2, /*is_primary=*/true, appended, Clock::Real(), /*is_durable=*/true,
                /*clip_global_norm=*/1);
  server.CreateTable();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    server.Push(rank, 0);
    ASSERT_TRUE(server.Send(Method::kEndStep, server.End(rank, 0)).ok());
  }
  {
    MutexLock lock(mu);
    threads.clear();
  }
  wanted = 3;
  ASSERT_TRUE(server.Send(Method::kEndStep, server.Close(1, 0)).ok());
  MutexLock lock(mu);
  EXPECT_EQ(threads.size(), 3u);
}

}  // namespace
}  // namespace pawl
