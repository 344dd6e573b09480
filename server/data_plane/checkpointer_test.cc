#include "server/data_plane/checkpointer.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "server/replication/testing/fake_durable_log.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/testing/two_servers.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr uint32_t kPartitions = 4;
constexpr uint32_t kTable = 1;

// The result of a call, set on any thread.
template <typename T>
class Outcome {
 public:
  void Set(T value) {
    MutexLock lock(mu_);
    value_ = std::move(value);
  }
  bool has_value() {
    MutexLock lock(mu_);
    return value_.has_value();
  }
  T Wait() {
    Eventually([&] { return has_value(); });
    MutexLock lock(mu_);
    return value_.value_or(T(absl::DeadlineExceededError("the test's patience")));
  }

 private:
  Mutex mu_;
  std::optional<T> value_ PAWL_GUARDED_BY(mu_);
};
using Parts = Outcome<absl::StatusOr<CheckpointOnServerResponse>>;

// An Env that calls `created` and `renamed` after each creation and rename, on the calling thread,
// and counts opened files.
class WatchedEnv final : public ForwardingEnv {
 public:
  WatchedEnv(Env& env, std::function<void(const std::string& to)> renamed)
      : ForwardingEnv(env), renamed_(std::move(renamed)) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    auto file = ForwardingEnv::Create(path);
    if (created != nullptr) created();
    return file;
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    ++opened_for_read;
    return ForwardingEnv::OpenForRead(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    absl::Status status = ForwardingEnv::Rename(from, to);
    renamed_(to);
    return status;
  }

  // Set before use.
  std::function<void()> created;
  std::atomic<size_t> opened_for_read{0};

 private:
  const std::function<void(const std::string& to)> renamed_;
};

// A server that is primary of all partitions.
class CheckpointerTest : public testing::Test {
 protected:
  struct Server {
    explicit Server(Env& env, uint64_t job_id = kJobId, DurableLog* log = nullptr)
        : checkpointer(env, plane, Clock::Real()) {
      if (log != nullptr) plane.SetLog(*log);
      RegisterResponse registration;
      registration.set_job_id(job_id);
      registration.set_node("server-0");
      registration.set_incarnation(1);
      registration.set_lease_ms(1000);
      *registration.mutable_job() = ServerJob(SYNC, kPartitions, /*logical_workers=*/2);
      plane.Begin(registration);
      RoutingTable routing;
      routing.set_job_id(job_id);
      routing.set_epoch(1);
      ServerAddress& server = *routing.add_servers();
      server.set_node("server-0");
      server.set_incarnation(1);
      for (uint32_t p = 0; p < kPartitions; ++p) {
        routing.add_primary(0);
        routing.add_replicas()->set_primary_since(1);
      }
      plane.AdoptRouting(routing);
    }
    ~Server() { checkpointer.Stop(); }

    DataPlane plane{DataPlaneOptions(), Clock::Real()};
    Checkpointer checkpointer;
  };

  void CreateTable() {
    const TableSpec spec = WithSgd(SparseTableSpec("rows", 1, kTable));
    auto created = std::make_shared<Outcome<absl::Status>>();
    server_.plane.CreateTable(1, spec,
                              [created](absl::Status status) { created->Set(std::move(status)); });
    ASSERT_TRUE(created->Wait().ok());
  }

  absl::Status Send(Method method, const google::protobuf::MessageLite& request) {
    auto bytes = std::make_shared<std::string>(request.SerializeAsString());
    auto answer = std::make_shared<Outcome<absl::Status>>();
    CallContext context;
    context.deadline = Clock::Real().Now() + kTestPatience;
    server_.plane.Handle(
        method, IncomingMessage{ByteView(bytes->data(), bytes->size()), bytes}, context,
        [answer](absl::Status status, OutgoingMessage) { answer->Set(std::move(status)); });
    return answer->Wait();
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
  // Pushes the gradient -1 for one key of each partition.
  void Push(const RequestHeader& header, uint64_t ordinal = 0) {
    PushRequest push;
    *push.mutable_header() = header;
    std::vector<bool> done(kPartitions);
    for (uint64_t key = 0; push.segments_size() < static_cast<int>(kPartitions); ++key) {
      const uint32_t p = PartitionOf(kTable, key, kPartitions);
      if (done[p]) continue;
      done[p] = true;
      PushSegment& segment = *push.add_segments();
      segment.set_table(kTable);
      segment.set_partition(p);
      segment.set_ordinal(ordinal);
      segment.set_element_type(FLOAT32);
      segment.set_keys(std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
      const float gradient = -1;
      segment.set_values(std::string(reinterpret_cast<const char*>(&gradient), sizeof(gradient)));
    }
    ASSERT_TRUE(Send(Method::kPush, push).ok());
  }
  // Pushes and ends the step.
  void PushAndEnd(uint32_t rank, uint64_t step) {
    Push(Header(rank, step));
    EndStep(rank, step, 1, 0, kPartitions);
  }
  // Ends the step in the partitions [begin, end).
  void EndStep(uint32_t rank, uint64_t step, uint64_t segments, uint32_t begin, uint32_t end) {
    EndStepRequest request;
    *request.mutable_header() = Header(rank, step);
    for (uint32_t p = begin; p < end; ++p) {
      request.add_partitions(p);
      request.add_segments(segments);
    }
    const absl::Status status = Send(Method::kEndStep, request);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Train(uint64_t step) {
    PushAndEnd(0, step);
    PushAndEnd(1, step);
  }

  std::shared_ptr<Parts> Ask(uint64_t step, const std::string& dir = "/checkpoints") {
    CheckpointOnServerRequest request;
    request.set_job_id(kJobId);
    request.set_routing_epoch(1);
    request.set_dir(dir);
    request.set_job_name("job");
    request.set_step(step);
    auto parts = std::make_shared<Parts>();
    server_.checkpointer.Checkpoint(request,
                                    [parts](auto answer) { parts->Set(std::move(answer)); });
    return parts;
  }

  std::shared_ptr<Parts> AskForEnd(uint64_t step, Checkpointer* checkpointer = nullptr,
                                   const std::string& dir = "/checkpoints") {
    CheckpointOnServerRequest request;
    request.set_job_id(kJobId);
    request.set_routing_epoch(1);
    request.set_dir(dir);
    request.set_job_name("job");
    request.set_step(step);
    request.set_is_final(true);
    auto parts = std::make_shared<Parts>();
    if (checkpointer == nullptr) checkpointer = &server_.checkpointer;
    checkpointer->Checkpoint(request, [parts](auto answer) { parts->Set(std::move(answer)); });
    return parts;
  }

  // Completes the checkpoint as the scheduler does.
  std::string WriteManifest(uint64_t step, const CheckpointOnServerResponse& parts,
                            bool is_final = false, uint64_t job_id = kJobId) {
    CheckpointManifest manifest;
    manifest.set_job_id(job_id);
    manifest.set_job_name("job");
    manifest.set_step(step);
    manifest.set_is_final(is_final);
    *manifest.mutable_parts() = parts.parts();
    EXPECT_TRUE(store_.WriteManifest(manifest).ok());
    std::string name = CheckpointStore::NameOf("job", step, is_final);
    if (job_id != kJobId) return name;
    const absl::Status whole = store_.Verify(name);
    EXPECT_TRUE(whole.ok()) << whole;
    return name;
  }
  Partition Read(const std::string& name, uint32_t partition) {
    const auto reader = store_.OpenPart(*store_.ReadManifest(name), partition).value();
    std::string bytes;
    for (absl::string_view block = *reader->NextBlock(); !block.empty();
         block = *reader->NextBlock()) {
      bytes.append(block.data(), block.size());
    }
    const PartitionOptions options{.job_seed = 3,
                                   .partitions = kPartitions,
                                   .logical_workers = 2,
                                   .consistency = ConsistencyOf(SYNC)};
    return LoadPartition(partition, options, ByteView(bytes.data(), bytes.size())).value();
  }

  absl::Status Load(Server& server, const std::string& name, uint64_t job_id) {
    LoadCheckpointRequest request;
    request.set_job_id(job_id);
    request.set_routing_epoch(1);
    request.set_dir("/checkpoints");
    request.set_name(name);
    auto loaded = std::make_shared<Outcome<absl::Status>>();
    server.checkpointer.Load(request,
                             [loaded](absl::Status status) { loaded->Set(std::move(status)); });
    return loaded->Wait();
  }

  // Stops the checkpointer while its thread works: returns once it is stopping, for that thread.
  class Stopper {
   public:
    void Begin(Checkpointer& checkpointer) {
      thread_ = std::thread([this, &checkpointer] {
        checkpointer.Stop();
        stopped_.set_value();
      });
      LoadCheckpointRequest request;
      request.set_dir("/checkpoints");
      EXPECT_TRUE(Eventually([&] {
        const auto is_stopping = std::make_shared<std::atomic<bool>>(false);
        checkpointer.Load(request, [is_stopping](absl::Status status) {
          *is_stopping = absl::IsUnavailable(status);
        });
        return is_stopping->load();
      }));
    }
    // For the test, after Begin.
    void Join() {
      stopped_.get_future().wait();
      thread_.join();
    }

   private:
    std::promise<void> stopped_;
    std::thread thread_;
  };

  FaultEnv env_{1};
  CheckpointStore store_{env_, "/checkpoints"};
  Server server_{env_};
};

TEST_F(CheckpointerTest, FoldersOutsideTheRootsAreRefused) {
  CreateTable();
  Train(0);
  const std::string top = absl::StrCat(std::getenv("TEST_TMPDIR"), "/roots");
  std::filesystem::create_directories(top + "/allowed");
  std::filesystem::create_directories(top + "/secret");
  std::filesystem::create_directory_symlink(top + "/secret", top + "/allowed/link");
  Checkpointer checkpointer(env_, server_.plane, Clock::Real(),
                            AllowedFolders({"/checkpoints", top + "/allowed"}));
  for (const char* dir : {"/secret", "/allowed/../secret", "/allowed/link", "/allowed/link/x"}) {
    EXPECT_EQ(AskForEnd(1, &checkpointer, top + dir)->Wait().status().code(),
              absl::StatusCode::kPermissionDenied)
        << dir;
    LoadCheckpointRequest request;
    request.set_job_id(kJobId);
    request.set_routing_epoch(1);
    request.set_dir(top + dir);
    request.set_name("job-end");
    auto loaded = std::make_shared<Outcome<absl::Status>>();
    checkpointer.Load(request, [loaded](absl::Status status) { loaded->Set(std::move(status)); });
    EXPECT_EQ(loaded->Wait().code(), absl::StatusCode::kPermissionDenied) << dir;
  }
  EXPECT_TRUE(AskForEnd(1, &checkpointer)->Wait().ok());
  checkpointer.Stop();
}

TEST_F(CheckpointerTest, PartitionsAreWrittenAtTheCutDuringTraining) {
  CreateTable();
  const auto parts = Ask(2);
  for (uint64_t step = 0; step < 5; ++step) Train(step);
  const auto answer = parts->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->parts_size(), static_cast<int>(kPartitions));
  const std::string name = WriteManifest(2, *answer);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    const Partition partition = Read(name, p);
    EXPECT_EQ(partition.version(), 2u);
    EXPECT_EQ(partition.log_index(), answer->parts(p).log_index());
  }
}

// In the last partition rank 0 has no data, and has ended step 1 before rank 1 ends step 0.
TEST_F(CheckpointerTest, RankAheadInOnePartitionIsNotAheadInTheCut) {
  CreateTable();
  const auto parts = Ask(1);
  EndStep(0, 0, 0, 0, kPartitions);
  EndStep(1, 0, 0, 0, kPartitions - 1);
  PushRequest push;
  EndStep(0, 1, 0, 0, kPartitions);
  EndStep(1, 0, 0, kPartitions - 1, kPartitions);
  const auto answer = parts->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::string name = WriteManifest(1, *answer);
  EXPECT_EQ(Read(name, 0).clock(0), 1u);
  EXPECT_EQ(Read(name, kPartitions - 1).clock(0), 2u);
  Server other(env_, kJobId + 1);
  ASSERT_TRUE(Load(other, name, kJobId + 1).ok());
  for (uint32_t p = 0; p < kPartitions; ++p) {
    auto held = other.plane.Hold(p);
    ASSERT_TRUE(held.has_value());
    const PartitionOptions options{.job_seed = 3,
                                   .partitions = kPartitions,
                                   .logical_workers = 2,
                                   .consistency = ConsistencyOf(SYNC)};
    std::string bytes;
    while (!held->at_end()) held->Read(bytes.size() + 1, bytes);
    EXPECT_EQ(LoadPartition(p, options, ByteView(bytes.data(), bytes.size()))->clock(0), 1u);
  }
}

TEST_F(CheckpointerTest, ServerWithoutPrimariesAnswersWithNoParts) {
  RoutingTable routing = TwoServers(kJobId, 2);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    routing.add_primary(1);
    routing.add_replicas()->set_primary_since(2);
  }
  server_.plane.AdoptRouting(routing);
  const auto answer = Ask(2)->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->parts_size(), 0);
}

TEST_F(CheckpointerTest, StepAlreadyReachedIsRefused) {
  CreateTable();
  Train(0);
  EXPECT_EQ(Ask(1)->Wait().status().code(), absl::StatusCode::kOutOfRange);
  // Only in one partition.
  EndStep(0, 1, 0, 0, 1);
  EndStep(1, 1, 0, 0, 1);
  EXPECT_EQ(Ask(2)->Wait().status().code(), absl::StatusCode::kOutOfRange);
  EndStep(0, 1, 0, 1, kPartitions);
  EndStep(1, 1, 0, 1, kPartitions);
  const auto parts = Ask(3);
  Train(2);
  EXPECT_TRUE(parts->Wait().ok());
}

TEST_F(CheckpointerTest, RepeatedRequestContinuesAndTheLastIsAnswered) {
  CreateTable();
  const auto first = Ask(2);
  Train(0);
  const auto second = Ask(2);
  EXPECT_EQ(first->Wait().status().code(), absl::StatusCode::kAborted);
  Train(1);
  ASSERT_TRUE(second->Wait().ok());
  Train(2);
  // Written parts stay written.
  const auto third = Ask(2)->Wait();
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->SerializeAsString(), second->Wait()->SerializeAsString());
}

TEST_F(CheckpointerTest, LaterCheckpointEndsTheOneUnderWay) {
  CreateTable();
  const auto first = Ask(5);
  const auto second = Ask(6);
  EXPECT_EQ(first->Wait().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Ask(4)->Wait().status().code(), absl::StatusCode::kAborted);
  for (uint64_t step = 0; step < 6; ++step) Train(step);
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(env_.List("/checkpoints")->size(), 1u);
}

TEST_F(CheckpointerTest, DiskErrorIsReportedAndTheNextCheckpointSucceeds) {
  CreateTable();
  env_.SetCapacity(0);
  auto parts = Ask(1);
  Train(0);
  EXPECT_EQ(parts->Wait().status().code(), absl::StatusCode::kResourceExhausted)
      << parts->Wait().status();
  env_.SetUnlimited();
  parts = Ask(2);
  Train(1);
  EXPECT_TRUE(parts->Wait().ok());
}

// The scheduler repeats a request to an UNAVAILABLE server at every tick.
TEST_F(CheckpointerTest, AbsentDiskEndsItWithAFinalError) {
  CreateTable();
  env_.CutPower();
  auto parts = Ask(1);
  Train(0);
  EXPECT_EQ(parts->Wait().status().code(), absl::StatusCode::kInternal) << parts->Wait().status();
  EXPECT_EQ(Ask(1)->Wait().status().code(), absl::StatusCode::kInternal);
}

TEST_F(CheckpointerTest, LoadRestoresTheSameDataAndIsIdempotent) {
  CreateTable();
  const auto parts = Ask(3);
  for (uint64_t step = 0; step < 3; ++step) Train(step);
  const auto answer = parts->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::string name = WriteManifest(3, *answer);
  Server other(env_, kJobId + 1);
  ASSERT_TRUE(Load(other, name, kJobId + 1).ok());
  EXPECT_EQ(other.plane.Fingerprint(1)->SerializeAsString(),
            server_.plane.Fingerprint(1)->SerializeAsString());
  ASSERT_TRUE(Load(other, name, kJobId + 1).ok());
  EXPECT_EQ(other.plane.Fingerprint(1)->SerializeAsString(),
            server_.plane.Fingerprint(1)->SerializeAsString());
}

TEST_F(CheckpointerTest, RepeatedLoadStillWaitsForDurability) {
  CreateTable();
  const auto parts = Ask(1);
  Train(0);
  const std::string name = WriteManifest(1, *parts->Wait());
  FakeDurableLog log;
  log.durable = 0;
  Server other(env_, kJobId + 1, &log);
  for (uint32_t tries = 1; tries <= 3; ++tries) {
    EXPECT_EQ(Load(other, name, kJobId + 1).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(log.replaced().size(), 1u);
  }
  log.durable = ~uint64_t{0};
  EXPECT_TRUE(Load(other, name, kJobId + 1).ok());
  EXPECT_EQ(log.replaced().size(), kPartitions);
}

TEST_F(CheckpointerTest, ChangedPartitionIsNotReplaced) {
  CreateTable();
  const auto parts = Ask(1);
  Train(0);
  const std::string name = WriteManifest(1, *parts->Wait());
  Server other(env_, kJobId + 1);
  const TableSpec spec = WithSgd(SparseTableSpec("another", 1, 2));
  other.plane.CreateTable(1, spec, [](const absl::Status& status) { EXPECT_TRUE(status.ok()); });
  EXPECT_EQ(Load(other, name, kJobId + 1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointerTest, JobsEndIsWrittenByThePrimary) {
  CreateTable();
  for (uint64_t step = 0; step < 3; ++step) Train(step);
  const auto answer = AskForEnd(3)->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::string name = WriteManifest(3, *answer, /*is_final=*/true);
  Server other(env_, kJobId + 1);
  ASSERT_TRUE(Load(other, name, kJobId + 1).ok());
  EXPECT_EQ(other.plane.Fingerprint(1)->SerializeAsString(),
            server_.plane.Fingerprint(1)->SerializeAsString());
}

// A push during the write of one part is thus only in the parts after it: the job's end is one
// moment only if clients no longer push.
TEST_F(CheckpointerTest, AtTheJobsEndPartitionsAreTakenOneByOne) {
  CreateTable();
  Train(0);
  uint64_t pushes = 0;
  WatchedEnv watched(env_, [&](const std::string&) {
    RequestHeader client;
    client.set_job_id(kJobId);
    client.set_epoch(1);
    client.set_client(0);
    client.set_incarnation(1);
    Push(client, pushes++);
  });
  Checkpointer checkpointer(watched, server_.plane, Clock::Real());
  const auto answer = AskForEnd(1, &checkpointer)->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->parts_size(), static_cast<int>(kPartitions));
  for (uint32_t p = 1; p < kPartitions; ++p)
    EXPECT_EQ(answer->parts(p).log_index(), answer->parts(0).log_index() + p);
  const std::string name = WriteManifest(1, *answer, /*is_final=*/true);
  for (uint32_t p = 0; p < kPartitions; ++p)
    EXPECT_EQ(Read(name, p).log_index(), answer->parts(p).log_index());
}

// Otherwise the end of a server takes as long as its disk takes for all its partitions.
TEST_F(CheckpointerTest, StopInterruptsAWrite) {
  CreateTable();
  Train(0);
  std::atomic<int> written{0};
  WatchedEnv watched(env_, [&](const std::string&) { ++written; });
  Checkpointer checkpointer(watched, server_.plane, Clock::Real());
  Stopper stopper;
  bool began = false;
  watched.created = [&] {
    if (!std::exchange(began, true)) stopper.Begin(checkpointer);
  };
  const absl::Status ended = AskForEnd(1, &checkpointer)->Wait().status();
  EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
  stopper.Join();
  EXPECT_EQ(written, 0);
}

TEST_F(CheckpointerTest, StopInterruptsALoad) {
  CreateTable();
  const auto parts = Ask(1);
  Train(0);
  const std::string name = WriteManifest(1, *parts->Wait());
  FakeDurableLog log;
  Server other(env_, kJobId + 1, &log);
  Stopper stopper;
  std::atomic<int> stored{0};
  log.on_store = [&](const HeldSnapshot&) {
    if (++stored == 1) stopper.Begin(other.checkpointer);
  };
  const absl::Status ended = Load(other, name, kJobId + 1);
  EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
  stopper.Join();
  EXPECT_EQ(stored, 1);
}

// The scheduler did not find a part as reported, and asks again.
TEST_F(CheckpointerTest, PartReplacedByAnotherServerIsWrittenAgain) {
  CreateTable();
  Train(0);
  const auto answer = AskForEnd(1)->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  auto other =
      store_.BeginPart({kJobId, "job", 1, /*is_final=*/true}, 2, answer->parts(2).log_index())
          .value();
  ASSERT_TRUE(other->Append("of another history").ok() && other->Commit().ok());
  const auto again = AskForEnd(1)->Wait();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), answer->SerializeAsString());
  WriteManifest(1, *again, /*is_final=*/true);
}

// The scheduler repeats its request while the parts are written; it looks for the parts only after
// an answer.
TEST_F(CheckpointerTest, RepeatedRequestForTheEndContinues) {
  CreateTable();
  Train(0);
  std::atomic<size_t> renamed{0};
  std::atomic<bool> goes_on{false};
  WatchedEnv watched(env_, [&](const std::string&) {
    if (++renamed == kPartitions) {
      EXPECT_TRUE(Eventually([&] { return goes_on.load(); }));
    }
  });
  Checkpointer checkpointer(watched, server_.plane, Clock::Real());
  const auto first = AskForEnd(1, &checkpointer);
  ASSERT_TRUE(Eventually([&] { return renamed == kPartitions; }));
  const auto second = AskForEnd(1, &checkpointer);
  EXPECT_EQ(first->Wait().status().code(), absl::StatusCode::kAborted);
  goes_on = true;
  const auto answer = second->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->parts_size(), static_cast<int>(kPartitions));
  EXPECT_EQ(watched.opened_for_read, 0u);
  EXPECT_TRUE(AskForEnd(1, &checkpointer)->Wait().ok());
  EXPECT_GE(watched.opened_for_read, kPartitions) << "each part is checked";
  EXPECT_EQ(renamed, kPartitions) << "no part is written again";
}

TEST_F(CheckpointerTest, PartitionThatMovesAtTheEndIsLeftOut) {
  CreateTable();
  Train(0);
  RoutingTable routing = TwoServers(kJobId, 2);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    routing.add_primary(p == 1 ? 1 : 0);
    routing.add_replicas()->set_primary_since(p == 1 ? 2 : 1);
  }
  std::atomic<size_t> renamed{0};
  WatchedEnv watched(env_, [&](const std::string&) {
    if (++renamed == 1) server_.plane.AdoptRouting(routing);
  });
  Checkpointer checkpointer(watched, server_.plane, Clock::Real());
  EXPECT_EQ(AskForEnd(1, &checkpointer)->Wait().status().code(), absl::StatusCode::kAborted);
  const auto answer = AskForEnd(1, &checkpointer)->Wait();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->parts_size(), static_cast<int>(kPartitions) - 1);
  EXPECT_EQ(answer->parts(1).partition(), 2u);
  EXPECT_EQ(renamed, kPartitions - 1) << "each part is written once";
}

TEST_F(CheckpointerTest, EndAtAnotherStepThanAPartitionIsRefused) {
  CreateTable();
  Train(0);
  EndStep(0, 1, 0, 0, 1);
  EndStep(1, 1, 0, 0, 1);
  EXPECT_EQ(AskForEnd(2)->Wait().status().code(), absl::StatusCode::kFailedPrecondition);
}

// A checkpoint requested ahead may be for a step that is never reached.
TEST_F(CheckpointerTest, EndReplacesTheCheckpointUnderWay) {
  CreateTable();
  Train(0);
  const auto ahead = Ask(5);
  ASSERT_TRUE(AskForEnd(1)->Wait().ok());
  EXPECT_EQ(ahead->Wait().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Ask(5)->Wait().status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(AskForEnd(1)->Wait().ok());
}

TEST_F(CheckpointerTest, FailedEndStartsOverOnRequest) {
  CreateTable();
  Train(0);
  env_.SetCapacity(0);
  EXPECT_EQ(AskForEnd(1)->Wait().status().code(), absl::StatusCode::kResourceExhausted);
  env_.SetUnlimited();
  EXPECT_TRUE(AskForEnd(1)->Wait().ok());
}

// The scheduler completed it and died before recording that, and the server was restarted since.
TEST_F(CheckpointerTest, CompletedEndIsAnswered) {
  CreateTable();
  Train(0);
  const auto parts = AskForEnd(1)->Wait();
  ASSERT_TRUE(parts.ok());
  WriteManifest(1, *parts, /*is_final=*/true);
  Checkpointer restarted(env_, server_.plane, Clock::Real());
  const auto again = AskForEnd(1, &restarted)->Wait();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), parts->SerializeAsString());
}

TEST_F(CheckpointerTest, EndOfAnotherJobIsRefused) {
  CreateTable();
  Train(0);
  CheckpointOnServerResponse parts;
  for (uint32_t p = 0; p < kPartitions; ++p) {
    *parts.add_parts() =
        store_.BeginPart({kJobId + 1, "job", 1, /*is_final=*/true}, p, 1).value()->Commit().value();
  }
  WriteManifest(1, parts, /*is_final=*/true, kJobId + 1);
  Checkpointer restarted(env_, server_.plane, Clock::Real());
  EXPECT_EQ(AskForEnd(1, &restarted)->Wait().status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(CheckpointerTest, EndAnswersTheWaitingCall) {
  CreateTable();
  const auto parts = Ask(1);
  server_.checkpointer.Stop();
  EXPECT_EQ(parts->Wait().status().code(), absl::StatusCode::kUnavailable);
  Train(0);
  EXPECT_EQ(Ask(2)->Wait().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CheckpointerTest, RelativeFolderIsRefused) {
  EXPECT_EQ(Ask(1, "checkpoints")->Wait().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pawl
