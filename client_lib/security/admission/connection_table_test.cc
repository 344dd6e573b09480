#include "client_lib/security/admission/connection_table.h"

#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ConnectionTableTest : public ::testing::Test {
 protected:
  static ConnectionLimits Limits() {
    ConnectionLimits limits;
    limits.max_connections = 6;
    limits.max_connections_per_host = 4;
    limits.max_silent_per_host = 2;
    limits.handshakes_per_second_per_host = 10;
    limits.burst_handshakes_per_host = 2;
    limits.max_silence = seconds(5);
    return limits;
  }

  // Returns the descriptor.
  int Add(const std::string& host) {
    ++last_;
    table_.Add(last_, Inode(last_), {absl::StrCat(host, ":", last_), host}, now_);
    return last_;
  }
  static uint64_t Inode(int descriptor) { return static_cast<uint64_t>(descriptor) * 100; }
  bool HasRoomFor(const std::string& host) { return table_.HasRoomFor({"", host}); }
  // A connection that gRPC has.
  int AddHandedOver(const std::string& host) {
    const int descriptor = Add(host);
    table_.SetQueued(descriptor);
    EXPECT_EQ(table_.TakeTurns(now_), std::vector<int>{descriptor});
    return descriptor;
  }

  ConnectionTable table_{Limits()};
  MonotonicTime now_{seconds(100)};
  int last_ = 10;
};

TEST_F(ConnectionTableTest, HostAndListenerHaveLimits) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(HasRoomFor("a"));
    Add("a");
  }
  EXPECT_FALSE(HasRoomFor("a"));
  Add("b");
  const int last = Add("b");
  EXPECT_TRUE(HasRoomFor("c"));
  EXPECT_FALSE(table_.HasRoom());
  table_.Remove(last);
  EXPECT_TRUE(table_.HasRoom());
  EXPECT_FALSE(HasRoomFor("a"));
}

TEST_F(ConnectionTableTest, OldestSilentConnectionOfAHostIsReplaced) {
  const int first = Add("a");
  Add("b");
  Add("a");
  EXPECT_EQ(table_.SilentBeyondLimit("a"), std::nullopt);
  Add("a");
  EXPECT_EQ(table_.SilentBeyondLimit("a"), first);
  table_.Remove(first);
  EXPECT_EQ(table_.SilentBeyondLimit("a"), std::nullopt);
}

TEST_F(ConnectionTableTest, OldestSilentConnectionOfAllIsFound) {
  AddHandedOver("a");
  const int first = Add("b");
  const int second = Add("a");
  EXPECT_EQ(table_.OldestSilent(), first);
  table_.SetQueued(first);
  EXPECT_EQ(table_.OldestSilent(), second);
  table_.Remove(second);
  EXPECT_EQ(table_.OldestSilent(), std::nullopt);
}

TEST_F(ConnectionTableTest, ConnectionWithAHandshakeIsNotSilent) {
  const int first = Add("a");
  table_.SetQueued(first);
  const int second = Add("a");
  Add("a");
  EXPECT_EQ(table_.SilentBeyondLimit("a"), std::nullopt);
  Add("a");
  EXPECT_EQ(table_.SilentBeyondLimit("a"), second);
}

TEST_F(ConnectionTableTest, HandshakesOfAHostTakeTurns) {
  const int first = Add("a");
  const int second = Add("a");
  const int third = Add("a");
  const int other = Add("b");
  for (const int descriptor : {first, second, third, other}) table_.SetQueued(descriptor);
  std::vector<int> turns = table_.TakeTurns(now_);
  EXPECT_EQ(std::set<int>(turns.begin(), turns.end()), (std::set<int>{first, second, other}));
  EXPECT_TRUE(table_.HasQueued());
  EXPECT_TRUE(table_.TakeTurns(now_ + milliseconds(50)).empty());
  EXPECT_EQ(table_.TakeTurns(now_ + milliseconds(110)), std::vector<int>{third});
  EXPECT_FALSE(table_.HasQueued());
}

TEST_F(ConnectionTableTest, HostOfAConnectionThatIsShutDownHasNoBurst) {
  const int offender = AddHandedOver("a");
  AddHandedOver("b");
  table_.OnShutDown(offender, now_);
  // Once for each connection.
  now_ += seconds(1);
  table_.OnShutDown(offender, now_);
  for (int i = 0; i < 2; ++i) table_.Remove(AddHandedOver("a"));
  const int next = Add("a");
  const int other = Add("b");
  for (const int descriptor : {next, other}) table_.SetQueued(descriptor);
  EXPECT_EQ(table_.TakeTurns(now_), std::vector<int>{other});
  EXPECT_EQ(table_.TakeTurns(now_ + milliseconds(110)), std::vector<int>{next});
}

TEST_F(ConnectionTableTest, SilenceAndWaitingEndInTime) {
  AddHandedOver("a");
  const int silent = Add("b");
  now_ += seconds(4);
  const int queued = Add("b");
  table_.SetQueued(queued);
  EXPECT_TRUE(table_.Overdue(now_).empty());
  EXPECT_EQ(table_.Overdue(now_ + seconds(1)), std::vector<int>{silent});
  table_.Remove(silent);
  EXPECT_EQ(table_.Overdue(now_ + seconds(5)), std::vector<int>{queued});
}

TEST_F(ConnectionTableTest, EndedConnectionsAreFoundByTheirInode) {
  const int open = AddHandedOver("a");
  AddHandedOver("a");
  Add("a");
  Add("a");
  EXPECT_FALSE(HasRoomFor("a"));
  // Another socket has the descriptor of the second one.
  table_.Sweep(now_, [&](int descriptor, uint64_t inode) {
    return descriptor == open && inode == Inode(open);
  });
  EXPECT_EQ(table_.size(), 3u);
  EXPECT_TRUE(HasRoomFor("a"));
}

TEST_F(ConnectionTableTest, DescriptorThatIsUsedAgainReplacesItsConnection) {
  const int descriptor = AddHandedOver("a");
  table_.Add(descriptor, 7, {"b:1", "b"}, now_);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.Find(descriptor)->remote.host, "b");
  EXPECT_EQ(table_.DescriptorOf(absl::StrCat("a:", descriptor)), std::nullopt);
}

TEST_F(ConnectionTableTest, ConnectionsAreFoundByAddress) {
  const int descriptor = Add("a");
  EXPECT_EQ(table_.DescriptorOf(absl::StrCat("a:", descriptor)), descriptor);
  EXPECT_EQ(table_.DescriptorOf("a:1"), std::nullopt);
  // One that has ended does not hide the next one.
  table_.Add(7, 8, {absl::StrCat("a:", descriptor), "a"}, now_);
  table_.Remove(descriptor);
  EXPECT_EQ(table_.DescriptorOf(absl::StrCat("a:", descriptor)), 7);
}

// Otherwise a host that connects and disconnects would always have a full burst.
TEST_F(ConnectionTableTest, HostWithoutConnectionsIsRememberedUntilItsTurnsAreBack) {
  for (int i = 0; i < 2; ++i) table_.Remove(AddHandedOver("a"));
  table_.Sweep(now_, [](int, uint64_t) { return true; });
  const int descriptor = Add("a");
  table_.SetQueued(descriptor);
  EXPECT_TRUE(table_.TakeTurns(now_).empty());
  EXPECT_FALSE(table_.TakeTurns(now_ + seconds(1)).empty());
}

}  // namespace
}  // namespace pawl
