#include "worker/worker_identity.h"

#include "client_lib/base/fault_env.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr char kFolder[] = "/worker";

TEST(WorkerIdentityTest, AWorkerIsTheSameInItsNextLife) {
  FaultEnv env(1);
  {
    const auto identity = WorkerIdentity::Open(env, kFolder);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ((*identity)->node(), "");
    EXPECT_EQ((*identity)->job_id(), 0u);
    ASSERT_TRUE((*identity)->Become("worker-1", 0xfedcba9876543210).ok());
    EXPECT_EQ((*identity)->node(), "worker-1");
    EXPECT_EQ((*identity)->life(), 1u);
  }
  for (const uint32_t life : {2u, 3u}) {
    const auto identity = WorkerIdentity::Open(env, kFolder);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ((*identity)->node(), "worker-1");
    EXPECT_EQ((*identity)->job_id(), 0xfedcba9876543210);
    EXPECT_EQ((*identity)->life(), life);
    ASSERT_TRUE((*identity)->Become("worker-1", 0xfedcba9876543210).ok());
    EXPECT_EQ((*identity)->life(), life);
  }
}

TEST(WorkerIdentityTest, ANewJobReplacesTheOldOne) {
  FaultEnv env(1);
  ASSERT_TRUE((*WorkerIdentity::Open(env, kFolder))->Become("worker-1", 7).ok());
  ASSERT_TRUE((*WorkerIdentity::Open(env, kFolder))->Become("worker-0", 8).ok());
  const auto identity = WorkerIdentity::Open(env, kFolder);
  EXPECT_EQ((*identity)->node(), "worker-0");
  EXPECT_EQ((*identity)->job_id(), 8u);
  EXPECT_EQ((*identity)->life(), 3u) << "of the folder's processes";
}

TEST(WorkerIdentityTest, WithADamagedFileItIsANewWorker) {
  for (const char* damaged : {"", "worker-1", "worker-1 7\n", "worker-1 xyz 1\n", "worker-1 7 x\n", " 7 1\n",
                              "worker-1 7 8 9\n", "worker-1 7 4294967295\n"}) {
    SCOPED_TRACE(damaged);
    FaultEnv env(1);
    ASSERT_TRUE(env.MakeFolder(kFolder).ok());
    env.SetContents("/worker/node", damaged);
    const auto identity = WorkerIdentity::Open(env, kFolder);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ((*identity)->node(), "");
    EXPECT_EQ((*identity)->job_id(), 0u);
  }
}

TEST(WorkerIdentityTest, TwoWorkersDoNotShareAFolder) {
  FaultEnv env(1);
  const auto first = WorkerIdentity::Open(env, kFolder);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsUnavailable(WorkerIdentity::Open(env, kFolder).status()));
}

}  // namespace
}  // namespace pawl
