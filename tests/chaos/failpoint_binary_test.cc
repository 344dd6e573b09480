// Production programs have no failpoint that could be armed; test programs have.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/child_process.h"
#include "gtest/gtest.h"
#include "tests/harness/runfile.h"

namespace pawl {
namespace {

std::unique_ptr<ChildProcess> RunProgram(const std::string& program,
                                         const std::string& failpoints) {
  const auto path = Runfile(program);
  EXPECT_TRUE(path.ok()) << path.status();
  auto child = ChildProcess::Start({.name = program,
                                    .program = *path,
                                    .arguments = {},
                                    .log = absl::StrCat(testing::TempDir(), "/probe.log"),
                                    .environment = {absl::StrCat("PAWL_FAILPOINTS=", failpoints)}});
  EXPECT_TRUE(child.ok()) << child.status();
  EXPECT_TRUE((*child)->WaitUntil(Clock::Real().Now() + std::chrono::seconds(30)));
  return *std::move(child);
}

bool ReadsFailpoints(const std::string& program) {
  const auto path = Runfile(program);
  EXPECT_TRUE(path.ok()) << path.status();
  std::ifstream file(*path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  EXPECT_GT(bytes.size(), 1000u);
  return absl::StrContains(bytes, "PAWL_FAILPOINTS");
}

TEST(FailpointBinaryTest, TestProgramObeysTheEnvironment) {
  const auto killed = RunProgram("tests/chaos/failpoint_probe_with_failpoints", "probe.here=crash");
  EXPECT_TRUE(killed->KilledBy(SIGKILL)) << killed->HowItEnded();
  const auto failed = RunProgram("tests/chaos/failpoint_probe_with_failpoints", "probe.here=error");
  EXPECT_EQ(failed->LogTail(1), std::vector<std::string>{"failed"});
  const auto wrong =
      RunProgram("tests/chaos/failpoint_probe_with_failpoints", "probe.here=explode");
  EXPECT_EQ(wrong->HowItEnded(), "exited with code 2");
}

TEST(FailpointBinaryTest, ProductionProgramIgnoresTheEnvironment) {
  const auto passed = RunProgram("tests/chaos/failpoint_probe", "probe.here=crash");
  EXPECT_TRUE(passed->Succeeded()) << passed->HowItEnded();
  EXPECT_EQ(passed->LogTail(1), std::vector<std::string>{"passed"});
}

TEST(FailpointBinaryTest, ProductionDaemonsLackTheVariable) {
  EXPECT_FALSE(ReadsFailpoints("server/pawl-server"));
  EXPECT_FALSE(ReadsFailpoints("scheduler/pawl-scheduler"));
  EXPECT_TRUE(ReadsFailpoints("tests/chaos/pawl-server-with-failpoints"));
  EXPECT_TRUE(ReadsFailpoints("tests/chaos/pawl-scheduler-with-failpoints"));
}

}  // namespace
}  // namespace pawl
