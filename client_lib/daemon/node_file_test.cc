#include "client_lib/daemon/node_file.h"

#include <string>

#include "absl/strings/match.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

NodeIdentity Identity() {
  NodeIdentity identity;
  identity.set_node("server-3");
  identity.set_job_id(77);
  identity.mutable_job()->set_name("job");
  identity.mutable_job()->set_seed(5);
  return identity;
}

TEST(NodeFileTest, WrittenIdentitySurvivesPowerLoss) {
  FaultEnv env(1);
  EXPECT_EQ(ReadNodeFile(env, "/", kServerDaemon).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteNodeFile(env, "/", Identity(), kServerDaemon).ok());
  env.CutPower();
  env.RestorePower();
  EXPECT_EQ(ReadNodeFile(env, "/", kServerDaemon)->SerializeAsString(),
            Identity().SerializeAsString());
}

TEST(NodeFileTest, FileIsReadableText) {
  FaultEnv env(1);
  ASSERT_TRUE(WriteNodeFile(env, "/", Identity(), kServerDaemon).ok());
  const std::string contents = env.Contents("/node");
  EXPECT_TRUE(absl::StartsWith(contents, "# crc32c ")) << contents;
  EXPECT_TRUE(absl::StrContains(contents, "node: \"server-3\"\n")) << contents;
}

TEST(NodeFileTest, NamesOnDiskAreThoseOfTheFirstVersion) {
  FaultEnv env(1);
  NodeIdentity identity = Identity();
  identity.set_clearing(true);
  identity.set_over(true);
  identity.set_life(3);
  ASSERT_TRUE(WriteNodeFile(env, "/", identity, kServerDaemon).ok());
  const std::string contents = env.Contents("/node");
  EXPECT_EQ(contents.substr(contents.find('\n') + 1),
            "node: \"server-3\"\njob_id: 77\njob {\n  name: \"job\"\n  seed: 5\n}\n"
            "clearing: true\nover: true\nlife: 3\n");
}

TEST(NodeFileTest, ServerAndWorkerCannotShareAFolder) {
  FaultEnv env(1);
  ASSERT_TRUE(WriteNodeFile(env, "/", Identity(), kServerDaemon).ok());
  const absl::Status status = ReadNodeFile(env, "/", kWorkerDaemon).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "--data_dir")) << status;
}

TEST(NodeFileTest, SchedulerAndNodeFoldersAreDistinguished) {
  FaultEnv node(1);
  ASSERT_TRUE(CheckIsNotNodeFolder(node, "/", /*holds_store=*/false).ok());
  ASSERT_TRUE(CheckIsNotNodeFolder(node, "/missing", /*holds_store=*/false).ok());
  const auto lock = node.LockFolder("/");
  ASSERT_TRUE(lock.ok()) << lock.status();
  node.SetContents("/LOCK", "");
  EXPECT_EQ(CheckIsNotNodeFolder(node, "/", /*holds_store=*/false).code(),
            absl::StatusCode::kFailedPrecondition);
  // A scheduler that keeps its state in its data folder locks that folder too.
  EXPECT_TRUE(CheckIsNotNodeFolder(node, "/", /*holds_store=*/true).ok());
  node.SetContents("/node", "x");
  EXPECT_EQ(CheckIsNotNodeFolder(node, "/", /*holds_store=*/true).code(),
            absl::StatusCode::kFailedPrecondition);

  FaultEnv scheduler(1);
  EXPECT_TRUE(CheckIsNotSchedulerFolder(scheduler, "/").ok());
  for (const char* name : {"/state.log", "/address", "/metrics.json"}) {
    FaultEnv env(1);
    env.SetContents(name, "x");
    const absl::Status status = CheckIsNotSchedulerFolder(env, "/");
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_TRUE(absl::StrContains(status.message(), "--data_dir")) << status;
  }
}

TEST(NodeFileTest, EveryTruncationAndFlippedByteIsDetected) {
  FaultEnv env(1);
  ASSERT_TRUE(WriteNodeFile(env, "/", Identity(), kServerDaemon).ok());
  const std::string contents = env.Contents("/node");
  for (size_t i = 0; i < contents.size(); ++i) {
    std::string damaged = contents;
    damaged[i] ^= 0x20;
    for (const std::string& bytes : {damaged, contents.substr(0, i)}) {
      env.SetContents("/node", bytes);
      const absl::Status status = ReadNodeFile(env, "/", kServerDaemon).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << ": " << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "/node is damaged at offset ")) << status;
    }
  }
}

}  // namespace
}  // namespace pawl
