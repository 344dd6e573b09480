#include "worker/process/worker_identity.h"

#include <limits>
#include <string>

#include "client_lib/base/testing/fault_env.h"
#include "client_lib/daemon/node_file.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr char kFolder[] = "/worker";

TEST(WorkerIdentityTest, RestartKeepsTheIdentity) {
  FaultEnv env(1);
  {
    const auto identity = WorkerIdentity::Open(env, kFolder);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ((*identity)->node(), "");
    EXPECT_EQ((*identity)->job_id(), 0u);
    ASSERT_TRUE((*identity)->Update("worker-1", 0xfedcba9876543210).ok());
    EXPECT_EQ((*identity)->node(), "worker-1");
    EXPECT_EQ((*identity)->start_count(), 1u);
  }
  for (const uint32_t start_count : {2u, 3u}) {
    const auto identity = WorkerIdentity::Open(env, kFolder);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ((*identity)->node(), "worker-1");
    EXPECT_EQ((*identity)->job_id(), 0xfedcba9876543210);
    EXPECT_EQ((*identity)->start_count(), start_count);
    ASSERT_TRUE((*identity)->Update("worker-1", 0xfedcba9876543210).ok());
    EXPECT_EQ((*identity)->start_count(), start_count);
  }
}

TEST(WorkerIdentityTest, NewJobReplacesTheOldOne) {
  FaultEnv env(1);
  ASSERT_TRUE((*WorkerIdentity::Open(env, kFolder))->Update("worker-1", 7).ok());
  ASSERT_TRUE((*WorkerIdentity::Open(env, kFolder))->Update("worker-0", 8).ok());
  const auto identity = WorkerIdentity::Open(env, kFolder);
  EXPECT_EQ((*identity)->node(), "worker-0");
  EXPECT_EQ((*identity)->job_id(), 8u);
  EXPECT_EQ((*identity)->start_count(), 3u) << "starts with this folder";
}

TEST(WorkerIdentityTest, DamagedFileMakesANewWorker) {
  FaultEnv env(1);
  ASSERT_TRUE((*WorkerIdentity::Open(env, kFolder))->Update("worker-1", 7).ok());
  const std::string whole = env.Contents("/worker/node");
  for (const size_t kept : {size_t{0}, size_t{9}, whole.size() - 1}) {
    SCOPED_TRACE(kept);
    env.SetContents("/worker/node", whole.substr(0, kept));
    const auto identity = WorkerIdentity::Open(env, kFolder);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ((*identity)->node(), "");
    EXPECT_EQ((*identity)->job_id(), 0u);
    EXPECT_EQ((*identity)->start_count(), 0u);
  }
}

TEST(WorkerIdentityTest, ExhaustedStartCountMakesANewWorker) {
  FaultEnv env(1);
  ASSERT_TRUE(env.MakeFolder(kFolder).ok());
  NodeIdentity last;
  last.set_node("worker-1");
  last.set_life(std::numeric_limits<uint32_t>::max());
  ASSERT_TRUE(WriteNodeFile(env, kFolder, last, kWorkerDaemon).ok());
  const auto identity = WorkerIdentity::Open(env, kFolder);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ((*identity)->node(), "");
}

TEST(WorkerIdentityTest, ServerFolderIsNotTouched) {
  FaultEnv env(1);
  ASSERT_TRUE(env.MakeFolder(kFolder).ok());
  ASSERT_TRUE(WriteNodeFile(env, kFolder, NodeIdentity(), kServerDaemon).ok());
  const std::string before = env.Contents("/worker/node");
  EXPECT_TRUE(absl::IsFailedPrecondition(WorkerIdentity::Open(env, kFolder).status()));
  EXPECT_EQ(env.Contents("/worker/node"), before);
}

TEST(WorkerIdentityTest, TwoWorkersCannotShareAFolder) {
  FaultEnv env(1);
  const auto first = WorkerIdentity::Open(env, kFolder);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsUnavailable(WorkerIdentity::Open(env, kFolder).status()));
}

}  // namespace
}  // namespace pawl
