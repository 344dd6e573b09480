#include "scheduler/status/event_log.h"

#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(EventLogTest, EventsAreListedFromANumberOn) {
  uint64_t now = 1000;
  EventLog log([&now] { return ++now; });
  log.Add(NODE_JOINED, "server-0", "");
  log.Add(NODE_DIED, "server-0", "no heartbeat");
  const std::vector<ClusterEvent> events = log.After(1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].number(), 2u);
  EXPECT_EQ(events[0].unix_ms(), 1002u);
  EXPECT_EQ(events[0].text(), "no heartbeat");
  EXPECT_TRUE(log.After(2).empty());
}

TEST(EventLogTest, OldestEventsAreDropped) {
  EventLog log(nullptr);
  for (size_t i = 0; i < kMaxEvents + 5; ++i) log.Add(NODE_JOINED, "server-0", "");
  EXPECT_EQ(log.After(0).size(), kMaxEvents);
  EXPECT_EQ(log.After(0).front().number(), 6u);
  EXPECT_EQ(log.After(0).back().number(), kMaxEvents + 5);
}

TEST(EventLogTest, RestoredLogContinues) {
  EventLog log(nullptr);
  log.Add(NODE_JOINED, "server-0", "");
  EventLog restored(nullptr);
  restored.Restore(log.Save());
  restored.Add(NODE_LEFT, "server-0", "");
  ASSERT_EQ(restored.After(0).size(), 2u);
  EXPECT_EQ(restored.After(0)[1].number(), 2u);
}

TEST(EventLogTest, TextsAreBounded) {
  EventLog log(nullptr);
  log.Add(NODE_DIED, "server-0", std::string(100000, 'x'));
  EXPECT_EQ(log.After(0)[0].text().size(), kMaxEventTextBytes);
}

}  // namespace
}  // namespace pawl
