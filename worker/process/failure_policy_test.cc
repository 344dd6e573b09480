#include "worker/process/failure_policy.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(FailurePolicyTest, BadDataFailsOnlyAJobThatHasNotStarted) {
  const absl::Status bad_data = absl::InvalidArgumentError("train.csv, line 7: ...");
  EXPECT_TRUE(ShouldFailJob(bad_data, /*was_ready=*/false, /*job_has_started=*/false))
      << "at the start of the job";
  EXPECT_FALSE(ShouldFailJob(bad_data, /*was_ready=*/false, /*job_has_started=*/true))
      << "a replacement";
  EXPECT_TRUE(ShouldFailJob(bad_data, /*was_ready=*/true, /*job_has_started=*/true));
}

TEST(FailurePolicyTest, TimeoutsDoNotFailTheJob) {
  for (const absl::Status& waited :
       {absl::DeadlineExceededError("pull: no answer"), absl::UnavailableError("server-1")}) {
    for (const bool was_ready : {false, true}) {
      for (const bool started : {false, true})
        EXPECT_FALSE(ShouldFailJob(waited, was_ready, started)) << waited;
    }
  }
}

TEST(FailurePolicyTest, AnyDoneStepMeansTheJobHasStarted) {
  GetStatusResponse job;
  job.add_nodes()->mutable_worker()->set_steps_total(10);
  EXPECT_FALSE(HasStarted(job));
  GetStatusResponse worker = job;
  worker.mutable_nodes(0)->mutable_worker()->set_steps_max(1);
  EXPECT_TRUE(HasStarted(worker));
  GetStatusResponse server = job;
  server.mutable_counters()->set_step(1);
  EXPECT_TRUE(HasStarted(server)) << "the workers have been restarted since";
  GetStatusResponse steps = job;
  steps.set_steps(1);
  EXPECT_TRUE(HasStarted(steps));
}

}  // namespace
}  // namespace pawl
