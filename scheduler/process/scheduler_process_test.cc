#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/process/child_process.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/store/open_store.h"
#include "tests/harness/runfile.h"

namespace pawl {
namespace {

absl::Status StatusCall(const std::string& address) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTestPatience);
  context.set_wait_for_ready(true);
  GetStatusResponse status;
  return FromGrpcStatus(
      Scheduler::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))
          ->GetStatus(&context, GetStatusRequest(), &status));
}

bool LogsNow(const ChildProcess& process, const std::string& words) {
  const std::vector<std::string> lines = process.LogTail(20);
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return absl::StrContains(line, words); });
}

bool Logs(const ChildProcess& process, const std::string& words) {
  return Eventually([&] { return LogsNow(process, words); });
}

// Opening a pipe for writing hangs until a reader opens it.
TEST(SchedulerProcessTest, HangingCurveFileHaltsNoJob) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/hanging");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  ASSERT_EQ(mkfifo((folder + "/hanging").c_str(), 0600), 0);
  std::ofstream(folder + "/job.pbtxt") << "name: 'j' partitions: 8 consistency { mode: ASYNC }";
  const auto program = Runfile("scheduler/pawl-scheduler");
  ASSERT_TRUE(program.ok()) << program.status();
  const auto start = [&](const std::string& name, const std::string& curve_file) {
    return *ChildProcess::Start({name,
                                 *program,
                                 {"--listen=127.0.0.1:0", "--servers=1", "--stop_on_sigterm=false",
                                  absl::StrCat("--data_dir=", folder, "/data"),
                                  absl::StrCat("--job=", folder, "/job.pbtxt"),
                                  absl::StrCat("--curve_file=", folder, "/", curve_file)},
                                 absl::StrCat(folder, "/", name, ".log")});
  };
  const auto end = [](ChildProcess& process) {
    process.Signal(SIGTERM);
    ASSERT_TRUE(process.WaitUntil(Clock::Real().Now() + kTestPatience));
    EXPECT_TRUE(process.ExitedWith(3)) << process.HowItEnded();
  };
  const auto starting = start("starting", "hanging");
  ASSERT_TRUE(Logs(*starting, "seems to hang"));
  end(*starting);
  const auto usual = start("usual", "curve");
  ASSERT_TRUE(
      Eventually([&] { return std::filesystem::exists(folder + "/data/state/state.log"); }));
  usual->Signal(SIGKILL);
  ASSERT_TRUE(usual->WaitUntil(Clock::Real().Now() + kTestPatience));
  const auto restarted = start("restarted", "hanging");
  ASSERT_TRUE(Logs(*restarted, "listening on"));
  std::string address;
  std::ifstream(folder + "/data/address") >> address;
  const absl::Status before = StatusCall(address);
  // A failed worker would take the status of a new job for the state of the one that continues.
  if (!LogsNow(*restarted, "the job continues without it")) {
    EXPECT_EQ(before.code(), absl::StatusCode::kUnavailable) << before;
  }
  EXPECT_TRUE(Logs(*restarted, "the job continues without it"));
  EXPECT_TRUE(StatusCall(address).ok());
  end(*restarted);
}

TEST(SchedulerProcessTest, NewJobFollowsAnEndedOneThatStillLeads) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/following");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const auto program = Runfile("scheduler/pawl-scheduler");
  ASSERT_TRUE(program.ok()) << program.status();
  const auto start = [&](const std::string& job) {
    std::ofstream(folder + "/" + job)
        << "name: '" << job << "' partitions: 8 consistency { mode: ASYNC }";
    return *ChildProcess::Start(
        {job,
         *program,
         {"--listen=127.0.0.1:0", "--servers=1", absl::StrCat("--data_dir=", folder, "/data"),
          absl::StrCat("--job=", folder, "/", job)},
         absl::StrCat(folder, "/", job, ".log")});
  };
  const auto first = start("first");
  ASSERT_TRUE(Logs(*first, "listening on"));
  first->Signal(SIGTERM);
  ASSERT_TRUE(first->WaitUntil(Clock::Real().Now() + kTestPatience));
  EXPECT_TRUE(first->Succeeded()) << first->HowItEnded();
  // The first job's scheduler, which has not left yet.
  auto leader = OpenStore(folder + "/data/state", {});
  ASSERT_TRUE(leader.ok()) << leader.status();
  ASSERT_TRUE((*leader)->Campaign(Clock::Real().Now() + kTestPatience).ok());
  const auto second = start("second");
  ASSERT_TRUE(Logs(*second, "standing by"));
  leader->reset();
  EXPECT_TRUE(Logs(*second, "listening on"));
  second->Signal(SIGTERM);
  EXPECT_TRUE(second->WaitUntil(Clock::Real().Now() + kTestPatience));
}

}  // namespace
}  // namespace pawl
