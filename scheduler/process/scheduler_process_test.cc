#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/process/child_process.h"
#include "gtest/gtest.h"
#include "tests/harness/runfile.h"

namespace pawl {
namespace {

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
  const auto logs = [](const ChildProcess& process, const std::string& words) {
    return Eventually([&] {
      for (const std::string& line : process.LogTail(20)) {
        if (absl::StrContains(line, words)) return true;
      }
      return false;
    });
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
  EXPECT_TRUE(logs(*restarted, "the job continues without it"));
  end(*restarted);
}

}  // namespace
}  // namespace pawl
