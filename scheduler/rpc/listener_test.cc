#include "scheduler/rpc/listener.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {
namespace {

class ListenerTest : public testing::Test {
 protected:
  ListenerTest() : former_(absl::StrCat(std::getenv("TEST_TMPDIR"), "/address")) {}
  ~ListenerTest() override { std::remove(former_.c_str()); }

  absl::StatusOr<Listener> ListenAt(int port) {
    return Listen({"127.0.0.1", static_cast<uint16_t>(port)}, former_,
                  grpc::InsecureServerCredentials(), service_);
  }
  void WriteFormer(int port) { std::ofstream(former_) << "127.0.0.1:" << port << "\n"; }

  const std::string former_;
  Scheduler::Service service_;
};

TEST_F(ListenerTest, PortZeroTakesAFreePort) {
  const auto listener = ListenAt(0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_NE(listener->port, 0);
}

TEST_F(ListenerTest, PortZeroReusesTheFormerPort) {
  int port = 0;
  {
    const auto listener = ListenAt(0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    port = listener->port;
    WriteFormer(port);
    const auto other = ListenAt(0);
    ASSERT_TRUE(other.ok()) << "the former port is taken: " << other.status();
    EXPECT_NE(other->port, port);
  }
  const auto again = ListenAt(0);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->port, port);
}

TEST_F(ListenerTest, TakenPortIsRefused) {
  const auto listener = ListenAt(0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(ListenAt(listener->port).status()));
}

TEST_F(ListenerTest, FileWithoutAPortIsIgnored) {
  std::ofstream(former_) << "nonsense";
  EXPECT_TRUE(ListenAt(0).ok());
}

}  // namespace
}  // namespace pawl
