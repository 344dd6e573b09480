#include "scheduler/job/rank_director.h"

#include <optional>
#include <string>
#include <vector>

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

class RankDirectorTest : public testing::Test {
 protected:
  static RankDirector::Options TwoRanks() {
    RankDirector::Options options;
    options.ranks.total = 2;
    options.ranks.workers = 1;
    return options;
  }
  static Node Worker(const std::string& name, uint64_t incarnation) {
    Node node;
    node.name = name;
    node.role = WORKER_ROLE;
    node.incarnation = incarnation;
    return node;
  }
  std::vector<std::string> Place() {
    return director_.Place(clock_.Now(), [this] { return ++last_incarnation_; });
  }

  SimulatedClock clock_;
  uint64_t last_incarnation_ = 100;
  RankDirector director_{TwoRanks()};
};

TEST_F(RankDirectorTest, FirstWorkerHostsAllRanks) {
  EXPECT_FALSE(director_.CanStart());
  EXPECT_FALSE(director_.AnyHosted());
  ASSERT_TRUE(director_.CheckJoin(RegisterRequest(), "").ok());
  director_.OnWorkerJoined(RegisterRequest(), Worker("worker-0", 5));
  EXPECT_EQ(Place(), std::vector<std::string>{"worker-0"});
  EXPECT_TRUE(director_.CanStart());
  EXPECT_TRUE(director_.AnyHosted());
  const std::optional<GetAssignmentResponse> assignment =
      director_.AssignmentOf("worker-0", /*restored_step=*/7);
  ASSERT_TRUE(assignment.has_value());
  EXPECT_EQ(assignment->logical_workers_size(), 2);
  EXPECT_EQ(assignment->logical_workers_total(), 2u);
  EXPECT_EQ(assignment->counted_from_step(), 7u);
  EXPECT_EQ(director_.Hosts()[1].node, "worker-0");
}

TEST_F(RankDirectorTest, RanksOfADeadWorkerAreFreeUntilItReturns) {
  director_.OnWorkerJoined(RegisterRequest(), Worker("worker-0", 5));
  Place();
  const std::vector<RankDirector::FreeRank> freed =
      director_.OnWorkerGone(Worker("worker-0", 5), "died", /*dead=*/true, clock_.Now());
  EXPECT_EQ(freed.size(), 2u);
  EXPECT_EQ(director_.StillToRelease(freed).size(), 2u);
  director_.OnWorkerJoined(RegisterRequest(), Worker("worker-0", 6));
  Place();
  EXPECT_EQ(director_.Hosts()[0].node, "worker-0");
  EXPECT_TRUE(director_.StillToRelease(freed).empty());
}

TEST_F(RankDirectorTest, RankWithoutAHostFailsTheJobAfterTheTimeout) {
  director_.OnWorkerJoined(RegisterRequest(), Worker("worker-0", 5));
  Place();
  director_.OnWorkerGone(Worker("worker-0", 5), "died", /*dead=*/true, clock_.Now());
  clock_.Advance(TwoRanks().return_timeout);
  EXPECT_EQ(director_.CheckReturn(clock_.Now()), std::nullopt);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_NE(director_.CheckReturn(clock_.Now()), std::nullopt);
}

TEST(ServeOnlyRankDirectorTest, ServeOnlyJobStartsWithoutWorkers) {
  RankDirector::Options options;
  options.serve_only = true;
  EXPECT_TRUE(RankDirector(options).CanStart());
}

}  // namespace
}  // namespace pawl
