#include "worker/dense/group_operations.h"

#include <array>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "worker/collective/testing/fake_group.h"

namespace pawl {
namespace {

constexpr std::chrono::minutes kLimit{1};

// Both members of a group.
class GroupOperationsTest : public testing::Test {
 protected:
  GroupOperationsTest() {
    std::thread threads[2];
    for (uint32_t p = 0; p < 2; ++p) {
      formers_[p] = groups_.Join("m" + std::to_string(p));
      threads[p] = std::thread([this, p] {
        GroupRank rank;
        rank.set_rank(p);
        members_[p] = *formers_[p]->Form({rank}, std::nullopt, Interrupt());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  GroupOperations OperationsOf(size_t place) {
    return {*members_[place].collective, kLimit, [this] { return check_membership_.reason(); }};
  }

  FakeGroups groups_{2};
  Interrupt check_membership_;
  std::unique_ptr<GroupFormer> formers_[2];
  Group members_[2];
};

TEST_F(GroupOperationsTest, OperationsMatchTheCollectives) {
  GroupOperations one = OperationsOf(0);
  GroupOperations other = OperationsOf(1);
  EXPECT_EQ(one.size(), 2u);
  EXPECT_EQ(other.place(), 1u);
  const std::array<float, 2> given = {1, 2};
  std::array<float, 2> taken = {};
  float share = 0;
  const int64_t number = 7;
  int64_t least = 0;
  std::array<int64_t, 2> numbers = {};
  const auto run = [&](GroupOperations::End first, GroupOperations::End second) {
    EXPECT_TRUE(one.Await(std::move(first)).ok());
    EXPECT_TRUE(other.Await(std::move(second)).ok());
  };
  const std::array<float, 2> second = {10, 20};
  std::array<float, 2> unused = {};
  float second_share = 0;
  run(one.AllReduce(given.data(), taken.data(), 2, Reduction::kSum),
      other.AllReduce(second.data(), unused.data(), 2, Reduction::kSum));
  EXPECT_EQ(taken, (std::array<float, 2>{11, 22}));
  run(one.ReduceScatter(given.data(), &share, 1, Reduction::kSum),
      other.ReduceScatter(second.data(), &second_share, 1, Reduction::kSum));
  EXPECT_EQ(share, 11);
  EXPECT_EQ(second_share, 22);
  const int64_t second_number = 5;
  int64_t second_least = 0;
  run(one.AllReduce(&number, &least, 1, Reduction::kMin),
      other.AllReduce(&second_number, &second_least, 1, Reduction::kMin));
  EXPECT_EQ(least, 5);
  std::array<int64_t, 2> second_numbers = {};
  run(one.AllGather(&number, numbers.data(), 1),
      other.AllGather(&second_number, second_numbers.data(), 1));
  EXPECT_EQ(numbers, (std::array<int64_t, 2>{7, 5}));
  std::array<float, 2> sent = second;
  run(one.Broadcast(taken.data(), 2, 1), other.Broadcast(sent.data(), 2, 1));
  EXPECT_EQ(taken, second);
}

TEST_F(GroupOperationsTest, LeavingMemberDoesNotWaitForTheOthers) {
  GroupOperations one = OperationsOf(0);
  int64_t number = 0;
  GroupOperations::End end = one.Broadcast(&number, 1, 0);
  check_membership_.Set(absl::AbortedError("the ranks have changed"));
  EXPECT_EQ(one.Await(std::move(end)), absl::AbortedError("the ranks have changed"));
}

TEST_F(GroupOperationsTest, FailedOperationReturnsItsError) {
  groups_.BeforeEach([](const FakeGroups::Operation&) { return std::set<std::string>{"m0"}; });
  GroupOperations one = OperationsOf(0);
  GroupOperations other = OperationsOf(1);
  int64_t numbers[2] = {};
  GroupOperations::End end = one.Broadcast(&numbers[0], 1, 1);
  GroupOperations::End other_end = other.Broadcast(&numbers[1], 1, 1);
  EXPECT_EQ(one.Await(std::move(end)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(other.Await(std::move(other_end)).ok());
}

}  // namespace
}  // namespace pawl
