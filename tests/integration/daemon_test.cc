// Properties of every daemon: health, reflection, a clean end on request, and messages for wrong
// usage.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "tests/harness/free_address.h"
#include "tests/harness/generated_data.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/plain_client.h"
#include "tests/harness/runfile.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{10};

ProcessClusterOptions Serving(uint32_t servers) {
  ProcessClusterOptions options;
  options.job = "name: 'daemons' seed: 3 partitions: 8 consistency { mode: ASYNC }";
  options.servers = servers;
  return options;
}

// Calls grpc.health.v1.Health/Check for the whole server with hand-written messages: an empty
// request, {status} in the response.
int HealthOf(const std::string& address) {
  std::string answer;
  const grpc::Status status =
      CallWithBytes(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()),
                    "/grpc.health.v1.Health/Check", "", /*compressed=*/false, &answer);
  if (!status.ok()) return -static_cast<int>(status.error_code());
  if (answer.size() != 2 || answer[0] != 0x08) return -100;
  return answer[1];  // 1 is SERVING
}

// Calls list_services of grpc.reflection.v1alpha with a hand-written message: field 7 of the
// request is a string. The response contains the services' names verbatim.
std::string ReflectedServices(const std::string& address) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  auto stream = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  stream->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const std::string request("\x3a\x01*", 3);
  grpc::Slice slice(request);
  stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer answer;
  stream->Read(&answer, nullptr);
  queue.Next(&tag, &ok);
  std::string text;
  grpc::Slice bytes;
  if (ok && answer.DumpToSingleSlice(&bytes).ok()) text.assign(bytes.begin(), bytes.end());
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return text;
}

using DaemonTest = ClusterTest;

TEST_F(DaemonTest, SchedulerAndServersAnswerHealthAndReflection) {
  ProcessCluster* const cluster = StartCluster(Serving(1));
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.state() == RUNNING; }, kTimeout)
          .ok());
  const auto server = cluster->AddressOf("server-0");
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(HealthOf(cluster->scheduler_address()), 1);
  // A server serves once it knows its partitions, one heartbeat later.
  EXPECT_TRUE(Eventually([&] { return HealthOf(*server) == 1; }));
  EXPECT_NE(ReflectedServices(cluster->scheduler_address()).find("pawl.Scheduler"),
            std::string::npos);
  const std::string services = ReflectedServices(*server);
  EXPECT_NE(services.find("pawl.Parameter"), std::string::npos);
  EXPECT_NE(services.find("pawl.ServerControl"), std::string::npos);
  EXPECT_NE(services.find("grpc.health.v1.Health"), std::string::npos);
}

TEST_F(DaemonTest, WorkerAnswersHealthAndReflection) {
  const std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
  ASSERT_TRUE(WriteClicks({.samples = 2000}, train).ok());
  const auto address = FreeAddress();
  ASSERT_TRUE(address.ok()) << address.status();
  ProcessClusterOptions options;
  options.job = absl::StrCat(
      "name: 'health' seed: 1 data { train: '", train,
      "' format: LIBSVM } model { fm { dim: 4 } } ",
      "optimizer { sgd { learning_rate: 0.1 } } batch_size: 100 epochs: 100000 partitions: 8");
  options.workers = 1;
  options.flags["worker-0"] = {absl::StrCat("--listen=", *address)};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.steps() > 0; }, kTimeout).ok());
  EXPECT_EQ(HealthOf(*address), 1);
  EXPECT_NE(ReflectedServices(*address).find("grpc.health.v1.Health"), std::string::npos);
}

TEST_F(DaemonTest, SigtermToTheSchedulerEndsAllProcesses) {
  ProcessCluster* const cluster = StartCluster(Serving(2));
  ASSERT_NE(cluster, nullptr);
  cluster->node("scheduler").Signal(SIGTERM);
  const absl::Status ended = cluster->WaitForSuccess(kTimeout);
  EXPECT_TRUE(ended.ok()) << ended;
  const auto metrics = cluster->Metrics();
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ((*metrics)["state"], "STOPPED");
}

TEST_F(DaemonTest, LeavingSchedulerEndsNoOtherProcess) {
  ProcessClusterOptions options = Serving(1);
  options.flags["scheduler"] = {"--stop_on_sigterm=false"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const auto before =
      cluster->WaitFor([](const auto& status) { return status.state() == RUNNING; }, kTimeout);
  ASSERT_TRUE(before.ok()) << before.status();
  cluster->node("scheduler").Signal(SIGTERM);
  ASSERT_TRUE(cluster->node("scheduler").WaitUntil(Clock::Real().Now() + kTimeout));
  EXPECT_EQ(cluster->node("scheduler").HowItEnded(), "exited with code 3");
  ASSERT_TRUE(cluster->Restart("scheduler").ok());
  const auto after =
      cluster->WaitFor([](const auto& status) { return status.state() == RUNNING; }, kTimeout);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->job_id(), before->job_id());
  EXPECT_FALSE(cluster->node("server-0").HasEnded());
}

TEST_F(DaemonTest, FinishedJobRestartsOnlyOnRequest) {
  ProcessCluster* const cluster = StartCluster(Serving(1));
  ASSERT_NE(cluster, nullptr);
  cluster->node("scheduler").Signal(SIGTERM);
  ASSERT_TRUE(cluster->WaitForSuccess(kTimeout).ok());
  const auto result = cluster->Metrics();
  ASSERT_TRUE(result.ok()) << result.status();

  ASSERT_TRUE(cluster->Restart("scheduler").ok());
  ASSERT_TRUE(cluster->node("scheduler").WaitUntil(Clock::Real().Now() + kTimeout))
      << "the job was started again";
  EXPECT_TRUE(cluster->node("scheduler").Succeeded()) << cluster->node("scheduler").HowItEnded();
  const auto again = cluster->Metrics();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *result);

  const auto program = Runfile("scheduler/pawl-scheduler");
  ASSERT_TRUE(program.ok()) << program.status();
  const std::string log = absl::StrCat(cluster->folder(), "/restarted.log");
  auto restarted = ChildProcess::Start(
      {"restarted",
       *program,
       {"--listen=127.0.0.1:0", absl::StrCat("--data_dir=", cluster->folder(), "/scheduler"),
        absl::StrCat("--job=", cluster->folder(), "/job.pbtxt"), "--workers=0",
        "--restart_ended_job"},
       log});
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_TRUE(Eventually([&] {
    for (const std::string& line : (*restarted)->LogTail(20)) {
      if (absl::StrContains(line, "listening on")) return true;
    }
    return (*restarted)->HasEnded();
  }));
  EXPECT_FALSE((*restarted)->HasEnded()) << (*restarted)->HowItEnded();
  (*restarted)->Signal(SIGTERM);
  EXPECT_TRUE((*restarted)->WaitUntil(Clock::Real().Now() + kTimeout));
}

TEST_F(DaemonTest, SigtermToAServerHandsItsPartitionsOver) {
  ProcessCluster* const cluster = StartCluster(Serving(2));
  ASSERT_NE(cluster, nullptr);
  // A server that leaves early gets no partitions, and the scheduler waits for another one.
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.state() == RUNNING; }, kTimeout)
          .ok());
  cluster->node("server-1").Signal(SIGTERM);
  ASSERT_TRUE(cluster->node("server-1").WaitUntil(Clock::Real().Now() + std::chrono::seconds(10)));
  EXPECT_TRUE(cluster->node("server-1").Succeeded()) << cluster->node("server-1").HowItEnded();
  const auto status = cluster->GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), RUNNING);
  for (const NodeStatus& node : status->nodes()) {
    if (node.role() != SERVER_ROLE) continue;
    EXPECT_EQ(node.partitions(), node.node() == "server-0" ? 8u : 0u) << node.node();
  }
}

TEST_F(DaemonTest, SigtermDuringTrainingEndsEveryWorker) {
  const std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/long.libsvm");
  ASSERT_TRUE(WriteClicks({.samples = 2000}, train).ok());
  ProcessClusterOptions options;
  options.job = absl::StrCat(
      "name: 'long' seed: 1 data { train: '", train, "' format: LIBSVM } model { fm { dim: 4 } } ",
      "optimizer { sgd { learning_rate: 0.1 } } consistency { mode: SYNC } batch_size: 100 ",
      "epochs: 100000 logical_workers: 2 partitions: 8");
  options.workers = 2;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.steps() > 10; }, kTimeout).ok());
  for (const char* name : {"scheduler", "server-0", "worker-0", "worker-1"})
    cluster->node(name).Signal(SIGTERM);
  const absl::Status ended = cluster->WaitForSuccess(kTimeout);
  EXPECT_TRUE(ended.ok()) << ended;
}

TEST_F(DaemonTest, SchedulerReportsProgressOfVerification) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/verified");
  const std::string train = absl::StrCat(folder, "/train.libsvm");
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(WriteClicks({.samples = 500}, train).ok());
  ProcessClusterOptions options;
  options.job = absl::StrCat(
      "name: 'verified' seed: 1 data { train: '", train,
      "' format: LIBSVM } model { fm { dim: 4 } } ",
      "optimizer { sgd { learning_rate: 0.1 } } batch_size: 100 epochs: 2 logical_workers: 1 ",
      "partitions: 8 checkpoint { dir: '", folder, "/checkpoints' every_steps: 5 }");
  options.workers = 1;
  ProcessCluster* cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const absl::Status ended = cluster->WaitForSuccess(std::chrono::seconds(60));
  ASSERT_TRUE(ended.ok()) << ended;

  const auto program = Runfile("tests/chaos/pawl-scheduler-with-failpoints");
  ASSERT_TRUE(program.ok()) << program.status();
  const auto address = FreeAddress();
  ASSERT_TRUE(address.ok()) << address.status();
  ChildOptions scheduler_options = {
      "restoring",
      *program,
      {"--listen=" + *address, absl::StrCat("--data_dir=", folder, "/scheduler"), "--workers=1",
       absl::StrCat("--job=", cluster->folder(), "/job.pbtxt"),
       absl::StrCat("--restore=", folder, "/checkpoints")},
      folder + "/restoring.log"};
  scheduler_options.environment = {"PAWL_FAILPOINTS=restore.verifying=pause:600000"};
  auto scheduler = ChildProcess::Start(scheduler_options);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  constexpr int kNotServing = 2;
  EXPECT_TRUE(Eventually([&] { return HealthOf(*address) == kNotServing; })) << HealthOf(*address);
  const auto stub =
      Scheduler::NewStub(grpc::CreateChannel(*address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  GetStatusResponse status;
  const grpc::Status answered = stub->GetStatus(&context, GetStatusRequest(), &status);
  ASSERT_TRUE(answered.ok()) << answered.error_message();
  EXPECT_EQ(status.state(), STARTING);
  EXPECT_EQ(status.checkpoint().verifying(), folder + "/checkpoints");
  // A signal does not wait for the verification.
  (*scheduler)->Signal(SIGTERM);
  ASSERT_TRUE((*scheduler)->WaitUntil(Clock::Real().Now() + kTimeout));
  EXPECT_TRUE((*scheduler)->Succeeded()) << (*scheduler)->HowItEnded();

  // A service manager must start it again.
  scheduler_options.arguments.push_back("--stop_on_sigterm=false");
  scheduler = ChildProcess::Start(scheduler_options);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  EXPECT_TRUE(Eventually([&] { return HealthOf(*address) == kNotServing; })) << HealthOf(*address);
  (*scheduler)->Signal(SIGTERM);
  ASSERT_TRUE((*scheduler)->WaitUntil(Clock::Real().Now() + kTimeout));
  EXPECT_TRUE((*scheduler)->ExitedWith(3)) << (*scheduler)->HowItEnded();
  scheduler_options.arguments.pop_back();

  scheduler_options.environment.clear();
  scheduler = ChildProcess::Start(scheduler_options);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  EXPECT_TRUE(Eventually([&] { return HealthOf(*address) == 1; })) << HealthOf(*address);
  (*scheduler)->Signal(SIGTERM);
  EXPECT_TRUE((*scheduler)->WaitUntil(Clock::Real().Now() + kTimeout));
}

// Sends SIGTERM when the log contains `words`; the process must end within a second with exit code
// 0.
void ExpectPromptEnd(const std::string& scheduler, const std::string& words) {
  SCOPED_TRACE(words);
  const auto folder = MakeOutputFolder("prompt_end");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto path = Runfile("worker/pawl-worker");
  ASSERT_TRUE(path.ok()) << path.status();
  auto worker =
      ChildProcess::Start({"worker", *path, {"--scheduler=" + scheduler}, *folder + "/log"});
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE(Eventually([&] {
    for (const std::string& line : (*worker)->LogTail(20)) {
      if (absl::StrContains(line, words)) return true;
    }
    return false;
  }));
  const MonotonicTime asked = Clock::Real().Now();
  (*worker)->Signal(SIGTERM);
  ASSERT_TRUE((*worker)->WaitUntil(asked + kTimeout));
  EXPECT_LT(Seconds(Clock::Real().Now() - asked), 1);
  EXPECT_TRUE((*worker)->Succeeded()) << (*worker)->HowItEnded();
}

TEST_F(DaemonTest, SigtermEndsAWorkerThatHasNotJoined) {
  const auto missing_scheduler = FreeAddress();
  ASSERT_TRUE(missing_scheduler.ok()) << missing_scheduler.status();
  ExpectPromptEnd(*missing_scheduler, "serving health checks on");

  // A job without its servers publishes no routing.
  const std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/waiting.libsvm");
  ASSERT_TRUE(WriteClicks({.samples = 200}, train).ok());
  const std::string job = absl::StrCat(std::getenv("TEST_TMPDIR"), "/waiting.pbtxt");
  std::ofstream(job) << "name: 'waiting' seed: 1 data { train: '" << train
                     << "' format: LIBSVM } model { fm { dim: 4 } } optimizer { sgd { "
                        "learning_rate: 0.1 } } batch_size: 100";
  const auto program = Runfile("scheduler/pawl-scheduler");
  ASSERT_TRUE(program.ok()) << program.status();
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/waiting");
  const auto address = FreeAddress();
  ASSERT_TRUE(address.ok()) << address.status();
  auto scheduler =
      ChildProcess::Start({"scheduler",
                           *program,
                           {"--listen=" + *address, "--data_dir=" + folder, "--job=" + job},
                           folder + ".log"});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  ASSERT_TRUE(Eventually([&] { return HealthOf(*address) == 1; }));
  ExpectPromptEnd(*address, "serving health checks on");
}

TEST_F(DaemonTest, DamagedFilesEndAServerWithExitCodeTwo) {
  for (const std::string damaged : {"log", "node"}) {
    SCOPED_TRACE(damaged);
    ProcessClusterOptions options = Serving(1);
    options.job += " durability: LOG";
    ProcessCluster* const cluster = StartCluster(options);
    ASSERT_NE(cluster, nullptr);
    ASSERT_TRUE(
        cluster->WaitFor([](const auto& status) { return status.state() == RUNNING; }, kTimeout)
            .ok());
    // The log's first record creates a table.
    auto client = PlainClient::Join(cluster->scheduler_address());
    ASSERT_TRUE(client.ok()) << client.status();
    const TableSpec spec = LedgerTable("t", 1);
    const auto table = (*client)->CreateTable(spec);
    ASSERT_TRUE(table.ok()) << table.status();
    const std::filesystem::path data = std::filesystem::path(cluster->folder()) / "server-0";
    ASSERT_TRUE(
        Eventually([&] { return std::filesystem::exists(data / "log" / "0000000001.log"); }));
    cluster->node("server-0").Signal(SIGKILL);
    ASSERT_TRUE(cluster->node("server-0").WaitUntil(Clock::Real().Now() + kTimeout));
    std::fstream file(damaged == "log" ? data / "log" / "0000000001.log" : data / "node",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(20);
    file.put('\xee');
    file.close();
    ASSERT_TRUE(cluster->Restart("server-0").ok());
    ASSERT_TRUE(cluster->node("server-0").WaitUntil(Clock::Real().Now() + kTimeout));
    EXPECT_EQ(cluster->node("server-0").HowItEnded(), "exited with code 2");
    EXPECT_NE(cluster->Log("server-0").find("is damaged at offset"), std::string::npos)
        << cluster->Log("server-0");
  }
}

// One replica, so that the server's memory has the only good copy.
TEST_F(DaemonTest, FlippedBitInARunningServersLogIsRepaired) {
  ProcessClusterOptions options = Serving(1);
  options.job += " durability: LOG";
  options.fixed_ports = true;
  options.flags["server-0"] = {"--scrub_bytes_per_s=1000000000"};
  options.lease = std::chrono::seconds(4);
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  auto client = PlainClient::Join(cluster->scheduler_address());
  ASSERT_TRUE(client.ok()) << client.status();
  const TableSpec spec = LedgerTable("t", 1);
  const auto table = (*client)->CreateTable(spec);
  ASSERT_TRUE(table.ok()) << table.status();
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<float> gradients(keys.size(), -1.0f);
  ASSERT_TRUE((*client)->PushRows(*table, keys, gradients).ok());

  const std::filesystem::path log =
      std::filesystem::path(cluster->folder()) / "server-0" / "log" / "0000000001.log";
  ASSERT_TRUE(std::filesystem::exists(log));
  std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
  constexpr int kInARecord = 60;
  file.seekg(kInARecord);
  const char flipped = static_cast<char>(file.get() ^ 1);
  file.seekp(kInARecord);
  file.put(flipped);
  file.close();
  const auto found = cluster->WaitFor(
      [](const GetStatusResponse& status) { return status.counters().files_damaged() == 1; },
      kTimeout);
  ASSERT_TRUE(found.ok()) << found.status() << cluster->Log("server-0");
  const auto repaired = cluster->WaitFor(
      [](const GetStatusResponse& status) { return status.counters().files_repaired() == 1; },
      3 * kTimeout);
  ASSERT_TRUE(repaired.ok()) << repaired.status() << cluster->Log("server-0");
  EXPECT_FALSE(std::filesystem::exists(log));

  cluster->node("server-0").Signal(SIGKILL);
  ASSERT_TRUE(cluster->node("server-0").WaitUntil(Clock::Real().Now() + kTimeout));
  ASSERT_TRUE(cluster->Restart("server-0").ok());
  ASSERT_TRUE(cluster->WaitUntilMember("server-0", kTimeout).ok()) << cluster->Log("server-0");
  auto reader = PlainClient::Join(cluster->scheduler_address());
  ASSERT_TRUE(reader.ok()) << reader.status();
  // A restarted server waits for a lease, because its previous process may have made promises.
  absl::StatusOr<std::vector<float>> rows;
  EXPECT_TRUE(Eventually([&] {
    rows = (*reader)->PullRows(*table, keys);
    return rows.ok();
  })) << rows.status();
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(*rows, std::vector<float>(keys.size(), 1.0f));
}

TEST_F(DaemonTest, FlippedBitInACheckpointCausesANewCheckpoint) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/rot");
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(WriteClicks({.samples = 2000}, folder + "/train.libsvm").ok());
  ProcessClusterOptions options;
  // No checkpoint is due before the end.
  options.job = absl::StrCat(
      "name: 'rot' seed: 1 data { train: '", folder,
      "/train.libsvm' format: LIBSVM } model { fm { dim: 4 } } ",
      "optimizer { sgd { learning_rate: 0.1 } } batch_size: 100 epochs: 100000 partitions: 8 ",
      "durability: MEMORY checkpoint { dir: '", folder, "/checkpoints' keep: 5 }");
  options.workers = 1;
  options.flags["scheduler"] = {"--scrub_bytes_per_s=1000000000"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.steps() > 0; }, kTimeout).ok());
  const auto stub = Scheduler::NewStub(
      grpc::CreateChannel(cluster->scheduler_address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 3 * kTimeout);
  CheckpointResponse first;
  const grpc::Status made = stub->Checkpoint(&context, CheckpointRequest(), &first);
  ASSERT_TRUE(made.ok()) << made.error_message();

  const std::string part = first.folder() + "/p3.part";
  std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
  constexpr int kInABlock = 100;
  file.seekg(kInABlock);
  const char flipped = static_cast<char>(file.get() ^ 1);
  file.seekp(kInABlock);
  file.put(flipped);
  file.close();
  ASSERT_TRUE(file.good()) << part;
  const auto replaced = cluster->WaitFor(
      [](const GetStatusResponse& status) { return status.counters().files_repaired() == 1; },
      3 * kTimeout);
  ASSERT_TRUE(replaced.ok()) << replaced.status() << cluster->Log("scheduler");
  EXPECT_EQ(replaced->counters().files_damaged(), 1u);
  EXPECT_EQ(replaced->checkpoint().completed(), 2u);
  EXPECT_GT(replaced->checkpoint().last_step(), first.step());
  EXPECT_TRUE(std::filesystem::exists(replaced->checkpoint().last_folder() + "/MANIFEST"));
  EXPECT_TRUE(std::filesystem::exists(part)) << "the damaged checkpoint stays until its turn";
  EXPECT_NE(cluster->Log("scheduler").find(part + " is damaged at offset "), std::string::npos)
      << cluster->Log("scheduler");
  cluster->node("scheduler").Signal(SIGTERM);
  const absl::Status ended = cluster->WaitForSuccess(kTimeout);
  EXPECT_TRUE(ended.ok()) << ended;
}

// Runs a daemon that must end at once.
void ExpectRefused(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& words, int exit_code) {
  SCOPED_TRACE(absl::StrCat(program, " ", arguments.empty() ? "" : arguments[0]));
  const auto folder = MakeOutputFolder("usage");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto path = Runfile(program);
  ASSERT_TRUE(path.ok()) << path.status();
  auto child = ChildProcess::Start({program, *path, arguments, *folder + "/log"});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->WaitUntil(Clock::Real().Now() + kTimeout)) << "it runs";
  EXPECT_EQ((*child)->HowItEnded(), absl::StrCat("exited with code ", exit_code));
  const std::vector<std::string> log = (*child)->LogTail(20);
  std::string text;
  for (const std::string& line : log) absl::StrAppend(&text, line, "\n");
  EXPECT_NE(text.find(words), std::string::npos) << text;
}

void ExpectUsageError(const std::string& program, const std::vector<std::string>& arguments,
                      const std::string& words) {
  ExpectRefused(program, arguments, words, /*exit_code=*/2);
}

TEST_F(DaemonTest, WrongUsageIsRefusedWithExitCodeTwo) {
  const std::string data = absl::StrCat("--data_dir=", std::getenv("TEST_TMPDIR"), "/data");
  for (const char* program :
       {"scheduler/pawl-scheduler", "server/pawl-server", "worker/pawl-worker"}) {
    ExpectUsageError(program, {"--no_such_flag=1"}, "no_such_flag");
    ExpectUsageError(program, {"argument"}, "argument");
  }
  ExpectUsageError("server/pawl-server", {}, "scheduler");
  ExpectUsageError("worker/pawl-worker", {}, "scheduler");
  ExpectUsageError("scheduler/pawl-scheduler", {data}, "job");
  ExpectUsageError("scheduler/pawl-scheduler", {data, "--job=/nowhere/job.pbtxt"},
                   "/nowhere/job.pbtxt");
}

TEST_F(DaemonTest, DurationOutOfBoundsIsRefusedByName) {
  const std::string data = absl::StrCat("--data_dir=", std::getenv("TEST_TMPDIR"), "/times");
  const std::string job = absl::StrCat(std::getenv("TEST_TMPDIR"), "/times.pbtxt");
  std::ofstream(job) << "name: 'times'";
  const auto refuse = [&](const std::string& flag, const std::string& bounds) {
    ExpectUsageError("scheduler/pawl-scheduler", {flag, data, "--job=" + job},
                     absl::StrCat(flag, " must be ", bounds));
  };
  refuse("--start_timeout_ms=0", "1 to 1000000000");
  refuse("--start_timeout_ms=4000000000", "1 to 1000000000");
  refuse("--linger_ms=4000000000", "0 to 1000000000");
}

TEST_F(DaemonTest, SchedulerAndNodeDoNotShareADataDirectory) {
  ProcessCluster* const cluster = StartCluster(Serving(1));
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.state() == RUNNING; }, kTimeout)
          .ok());
  const std::string to = absl::StrCat("--scheduler=", cluster->scheduler_address());
  const std::string of_scheduler = absl::StrCat("--data_dir=", cluster->folder(), "/scheduler");
  const std::string of_server = absl::StrCat("--data_dir=", cluster->folder(), "/server-0");
  ExpectUsageError("server/pawl-server", {of_scheduler, to}, "belongs to a pawl-scheduler");
  ExpectUsageError("worker/pawl-worker", {of_scheduler, to}, "belongs to a pawl-scheduler");
  ExpectUsageError("scheduler/pawl-scheduler",
                   {of_server, absl::StrCat("--job=", cluster->folder(), "/job.pbtxt"),
                    "--workers=0", "--listen=127.0.0.1:0"},
                   "belongs to a pawl-server");
  // The other server may end: systemd starts this one again after exit code 1.
  ExpectRefused("server/pawl-server", {of_server, to}, "in use by another process",
                /*exit_code=*/1);
  // The refusals changed nothing: both restart.
  for (const char* name : {"scheduler", "server-0"}) {
    cluster->node(name).Signal(SIGKILL);
    ASSERT_TRUE(cluster->node(name).WaitUntil(Clock::Real().Now() + kTimeout));
    ASSERT_TRUE(cluster->Restart(name).ok());
  }
  const auto again =
      cluster->WaitFor([](const auto& status) { return status.state() == RUNNING; }, kTimeout);
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_F(DaemonTest, BadJobFileIsRefusedByField) {
  const std::string data = absl::StrCat("--data_dir=", std::getenv("TEST_TMPDIR"), "/data");
  const auto refuse = [&](const std::string& name, const std::string& job,
                          const std::string& words) {
    const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name, ".pbtxt");
    std::ofstream(path) << job;
    ExpectUsageError("scheduler/pawl-scheduler", {data, "--listen=127.0.0.1:0", "--job=" + path},
                     words);
  };
  const std::string good =
      "name: 'j' data { train: 'x' format: LIBSVM } model { fm { dim: 4 } } batch_size: 8 ";
  refuse("unknown", good + "optimizer { sgd { learning_rate: 0.1 } } speed: 9", "speed");
  refuse("rate", good + "optimizer { sgd { learning_rate: -1 } }", "learning_rate");
  refuse("missing_file", good + "optimizer { sgd { learning_rate: 0.1 } }", "data.train");
  refuse("no_name", "seed: 1", "name");
  refuse("backup", "name: 'j' logical_workers: 2 consistency { mode: SYNC backup_workers: 2 }",
         "backup_workers");
}

}  // namespace
}  // namespace pawl
