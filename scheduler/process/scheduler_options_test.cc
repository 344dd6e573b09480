#include "scheduler/process/scheduler_options.h"

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

SchedulerOptions OptionsOf(const std::string& job_text) {
  SchedulerOptions options;
  options.job = testing::TempDir() + "/job.pbtxt";
  std::ofstream(options.job) << job_text;
  return options;
}

// A job that only serves tables.
SchedulerOptions ServeOnlyOptions() {
  return OptionsOf("name: 'tables' optimizer { sgd { learning_rate: 0.1 } }");
}

std::string ErrorOf(const SchedulerOptions& options) {
  return std::string(MakeCoordinatorOptions(options).status().message());
}

TEST(SchedulerOptionsTest, ServeOnlyJobNeedsNoWorkers) {
  const auto made = MakeCoordinatorOptions(ServeOnlyOptions());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->workers, 0);
  EXPECT_EQ(made->servers, 1);
  EXPECT_EQ(made->lease.count(), 1000);
}

TEST(SchedulerOptionsTest, ErrorNamesTheFlag) {
  EXPECT_EQ(ErrorOf(SchedulerOptions()), "--job=FILE is missing");
  SchedulerOptions options = ServeOnlyOptions();
  options.workers = -2;
  EXPECT_TRUE(absl::StrContains(ErrorOf(options), "--workers=-2")) << ErrorOf(options);
  options = ServeOnlyOptions();
  options.servers = 0;
  EXPECT_TRUE(absl::StrContains(ErrorOf(options), "--servers=0")) << ErrorOf(options);
  options = ServeOnlyOptions();
  options.lease_ms = options.heartbeat_interval_ms;
  EXPECT_TRUE(absl::StrContains(ErrorOf(options), "--lease_ms=200")) << ErrorOf(options);
  options = ServeOnlyOptions();
  options.recovery_timeout_s = -1;
  EXPECT_TRUE(absl::StrContains(ErrorOf(options), "--recovery_timeout_s=-1")) << ErrorOf(options);
}

TEST(SchedulerOptionsTest, FoldersOutsideTheRootsAreRefusedAtTheStart) {
  const std::string roots = testing::TempDir() + "/roots";
  const auto with_folder = [](const std::string& dir) {
    return OptionsOf("name: 'tables' optimizer { sgd { learning_rate: 0.1 } } checkpoint { dir: '" +
                     dir + "' }");
  };
  SchedulerOptions options = with_folder(roots + "/a");
  EXPECT_EQ(ErrorOf(options), "");
  options.checkpoint_roots = {"/elsewhere", roots};
  EXPECT_EQ(ErrorOf(options), "");
  options.restore = roots + "/a";
  EXPECT_EQ(ErrorOf(options), "");
  options.restore = "/tmp/../etc";
  EXPECT_EQ(ErrorOf(options),
            "--restore: dir /tmp/../etc is in none of the folders of --checkpoint_roots");
  options = with_folder("/other/folder");
  options.checkpoint_roots = {roots};
  EXPECT_EQ(ErrorOf(options),
            options.job +
                ": checkpoint.dir: dir /other/folder is in none of the folders of "
                "--checkpoint_roots");
}

TEST(SchedulerOptionsTest, ReplicasFlagOverridesTheJob) {
  SchedulerOptions options = ServeOnlyOptions();
  options.replicas = 2;
  EXPECT_TRUE(absl::StrContains(ErrorOf(options), "replicas is 2, but --servers=1"))
      << ErrorOf(options);
  options.servers = 2;
  const auto made = MakeCoordinatorOptions(options);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->job.replicas(), 2);
}

}  // namespace
}  // namespace pawl
