// The fixture of ServerLog's tests: a server's log on a disk that can fail.
#ifndef PAWL_SERVER_STORAGE_TESTING_SERVER_LOG_FIXTURE_H_
#define PAWL_SERVER_STORAGE_TESTING_SERVER_LOG_FIXTURE_H_

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/server_log_harness.h"

namespace pawl {

// A folder that nothing else uses.
inline std::string NewFolder(absl::string_view name) {
  static int number = 0;
  return JoinPath(testing::TempDir(), absl::StrCat(name, "-", getpid(), "-", ++number));
}

// One server after the other on one disk.
class ServerLogTest : public testing::Test {
 protected:
  // Starts a new incarnation of the process.
  void Restart(ServerLogOptions options = ServerLogHarness::QuickOptions("/data")) {
    server_ = nullptr;
    server_ = std::make_unique<ServerLogHarness>(env_, options, FSYNC);
    const absl::Status status = server_->Open();
    ASSERT_TRUE(status.ok()) << status;
  }
  void Kill() {
    env_.KillProcesses();
    server_ = nullptr;
  }
  // Leaves partition 1 at change 11, whose last change is readable but was never known to be
  // durable.
  void KillWithAnUnsettledEnd() {
    server_->Change(1, 10);
    ASSERT_TRUE(server_->WaitDurable(1));
    env_.FailSyncs(1'000'000);
    server_->Change(1);
    ASSERT_TRUE(Eventually([&] { return server_->log().figures().failures > 1; }));
    Kill();
    env_.FailSyncs(0);
  }
  void ExpectAt(uint32_t partition, uint64_t index) {
    ASSERT_TRUE(server_->Has(partition));
    ASSERT_EQ(server_->index(partition), index);
    EXPECT_EQ(server_->fingerprint(partition), ServerLogHarness::FingerprintAt(partition, index));
  }

  FaultEnv env_{1};
  std::unique_ptr<ServerLogHarness> server_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_TESTING_SERVER_LOG_FIXTURE_H_
