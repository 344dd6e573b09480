#include "server/threads/work_thread.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(WorkThreadTest, EverythingAddedRunsInOrderBeforeStopReturns) {
  std::vector<int> order;
  WorkThread thread;
  for (int i = 0; i < 100; ++i) thread.Add([&order, i] { order.push_back(i); });
  thread.Stop();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkThreadTest, WorkRunsAtOnceAfterStop) {
  WorkThread thread;
  thread.Stop();
  std::thread::id ran_on;
  thread.Add([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

}  // namespace
}  // namespace pawl
