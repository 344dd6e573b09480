#include "worker/process/failure_policy.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(FailurePolicyTest, WhoseDataIsBadFromTheStartEndsTheJobOnlyIfNobodyHasTrained) {
  const absl::Status bad_data = absl::InvalidArgumentError("train.csv, line 7: ...");
  EXPECT_TRUE(FailsTheJob(bad_data, /*trained=*/false, /*job_has_begun=*/false))
      << "the job's start";
  EXPECT_FALSE(FailsTheJob(bad_data, /*trained=*/false, /*job_has_begun=*/true)) << "a replacement";
  EXPECT_TRUE(FailsTheJob(bad_data, /*trained=*/true, /*job_has_begun=*/true));
}

TEST(FailurePolicyTest, WhoHasWaitedForOthersDoesNotEndTheJob) {
  for (const absl::Status& waited :
       {absl::DeadlineExceededError("pull: no answer"), absl::UnavailableError("server-1")}) {
    for (const bool trained : {false, true}) {
      for (const bool begun : {false, true})
        EXPECT_FALSE(FailsTheJob(waited, trained, begun)) << waited;
    }
  }
}

TEST(FailurePolicyTest, AJobHasBegunWhenAnybodyHasDoneAStep) {
  GetStatusResponse job;
  job.add_nodes()->mutable_worker()->set_steps_total(10);
  EXPECT_FALSE(HasBegun(job));
  GetStatusResponse worker = job;
  worker.mutable_nodes(0)->mutable_worker()->set_steps_max(1);
  EXPECT_TRUE(HasBegun(worker));
  GetStatusResponse server = job;
  server.mutable_counters()->set_step(1);
  EXPECT_TRUE(HasBegun(server)) << "the workers have been restarted since";
  GetStatusResponse steps = job;
  steps.set_steps(1);
  EXPECT_TRUE(HasBegun(steps));
}

}  // namespace
}  // namespace pawl
