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
  const auto logs_now = [](const ChildProcess& process, const std::string& words) {
    const std::vector<std::string> lines = process.LogTail(20);
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return absl::StrContains(line, words); });
  };
  const auto logs = [&](const ChildProcess& process, const std::string& words) {
    return Eventually([&] { return logs_now(process, words); });
  };
  const auto end = [](ChildProcess& process) {
    process.Signal(SIGTERM);
    ASSERT_TRUE(process.WaitUntil(Clock::Real().Now() + kTestPatience));
    EXPECT_TRUE(process.ExitedWith(3)) << process.HowItEnded();
  };
  const auto starting = start("starting", "hanging");
  ASSERT_TRUE(logs(*starting, "seems to hang"));
  end(*starting);
  const auto usual = start("usual", "curve");
  ASSERT_TRUE(
      Eventually([&] { return std::filesystem::exists(folder + "/data/state/state.log"); }));
  usual->Signal(SIGKILL);
  ASSERT_TRUE(usual->WaitUntil(Clock::Real().Now() + kTestPatience));
  const auto restarted = start("restarted", "hanging");
  ASSERT_TRUE(logs(*restarted, "listening on"));
  std::string address;
  std::ifstream(folder + "/data/address") >> address;
  const absl::Status before = StatusCall(address);
  // A failed worker would take the status of a new job for the state of the one that continues.
  if (!logs_now(*restarted, "the job continues without it")) {
    EXPECT_EQ(before.code(), absl::StatusCode::kUnavailable) << before;
  }
  EXPECT_TRUE(logs(*restarted, "the job continues without it"));
  EXPECT_TRUE(StatusCall(address).ok());
  end(*restarted);
}

}  // namespace
}  // namespace pawl
