#include "scheduler/membership/worker_group.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

class WorkerGroupTest : public testing::Test {
 protected:
  // Rank i is hosted by nodes[i], in an incarnation that is new.
  void Host(const std::vector<std::string>& nodes) {
    hosts_.clear();
    for (const std::string& node : nodes) hosts_.push_back({node, ++incarnation_});
  }
  JoinGroupRequest Request(const std::string& node) const {
    JoinGroupRequest request;
    request.set_node(node);
    request.set_incarnation(7);
    for (uint32_t rank = 0; rank < hosts_.size(); ++rank) {
      if (hosts_[rank].node != node || hosts_[rank].leaving) continue;
      GroupRank& to = *request.add_ranks();
      to.set_rank(rank);
      to.set_incarnation(hosts_[rank].incarnation);
    }
    return request;
  }
  absl::Status Join(const JoinGroupRequest& request) {
    absl::Status status = group_.Join(request, hosts_);
    Update();
    return status;
  }
  absl::Status Join(const std::string& node) { return Join(Request(node)); }
  // As the coordinator does after every change.
  std::vector<std::string> Update() {
    std::vector<std::string> refused = group_.OnRanksAssigned(hosts_);
    group_.Form(hosts_, [this] { return ++last_generation_; });
    return refused;
  }
  absl::Status Exchange(const std::string& node, uint64_t generation, const std::string& name,
                        const std::string& value) {
    ExchangeInGroupRequest request;
    request.set_node(node);
    request.set_generation(generation);
    request.set_name(name);
    request.set_value(value);
    return group_.Exchange(request);
  }
  // Both nodes in a group of four ranks.
  void FormTwo() {
    Host({"a", "b", "a", "b"});
    ASSERT_TRUE(Join("b").ok());
    ASSERT_EQ(group_.generation(), 0u);
    ASSERT_TRUE(Join("a").ok());
    ASSERT_NE(group_.generation(), 0u);
  }

  WorkerGroup group_;
  WorkerGroup::Hosts hosts_;
  uint64_t incarnation_ = 100;
  uint64_t last_generation_ = 0;
};

TEST_F(WorkerGroupTest, GroupIsFormedInOrderOfTheLowestRanks) {
  FormTwo();
  const auto of_a = group_.GroupOf("a"), of_b = group_.GroupOf("b");
  ASSERT_TRUE(of_a.has_value() && of_b.has_value());
  EXPECT_EQ(of_a->place(), 0u);
  EXPECT_EQ(of_b->place(), 1u);
  EXPECT_EQ(of_a->generation(), of_b->generation());
  ASSERT_EQ(of_a->members_size(), 2);
  EXPECT_EQ(of_a->members(0).node(), "a");
  EXPECT_EQ(of_a->members(1).ranks(0), 1u);
  EXPECT_EQ(of_a->members(1).ranks(1), 3u);
  EXPECT_FALSE(group_.GroupOf("c").has_value());
}

TEST_F(WorkerGroupTest, RepeatedJoinReturnsTheSameGroup) {
  FormTwo();
  const uint64_t first = group_.generation();
  EXPECT_TRUE(Join("a").ok());
  EXPECT_EQ(group_.generation(), first) << "the response was lost";
  ASSERT_TRUE(Exchange("a", first, "addresses", "x").ok());
  EXPECT_TRUE(Join("a").ok());
  EXPECT_EQ(group_.generation(), 0u) << "it asks for another group";
  EXPECT_EQ(group_.EndReason(first), "a joins again");
  EXPECT_TRUE(Join("b").ok());
  EXPECT_GT(group_.generation(), first);
}

TEST_F(WorkerGroupTest, DifferentJoinEndsTheGroup) {
  FormTwo();
  JoinGroupRequest request = Request("b");
  request.set_has_state(true);
  request.set_dense_steps(3);
  EXPECT_TRUE(Join(request).ok());
  EXPECT_EQ(group_.generation(), 0u);
  EXPECT_TRUE(Join("a").ok());
  EXPECT_FALSE(group_.GroupOf("a")->members(0).has_state());
  EXPECT_EQ(group_.GroupOf("a")->members(1).dense_steps(), 3u);
}

TEST_F(WorkerGroupTest, RanksOfOthersAreRefused) {
  Host({"a", "b"});
  EXPECT_TRUE(absl::IsInvalidArgument(Join("c"))) << "none";
  JoinGroupRequest twice = Request("a");
  *twice.add_ranks() = twice.ranks(0);
  EXPECT_TRUE(absl::IsInvalidArgument(Join(twice)));
  JoinGroupRequest old = Request("a");
  old.mutable_ranks(0)->set_incarnation(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Join(old)));
  JoinGroupRequest foreign = Request("a");
  foreign.set_node("b");
  EXPECT_TRUE(absl::IsFailedPrecondition(Join(foreign)));
  JoinGroupRequest outside = Request("a");
  outside.mutable_ranks(0)->set_rank(9);
  EXPECT_TRUE(absl::IsFailedPrecondition(Join(outside)));
  Host({"a", "a"});
  JoinGroupRequest half = Request("a");
  half.mutable_ranks()->RemoveLast();
  EXPECT_TRUE(absl::IsFailedPrecondition(Join(half))) << "some of its ranks are missing";
  hosts_[1].leaving = true;
  EXPECT_TRUE(Join(half).ok());
  EXPECT_EQ(group_.generation(), 0u) << "rank 1 is moving to another worker";
  JoinGroupRequest both = half;
  both.add_ranks()->set_rank(1);
  both.mutable_ranks(1)->set_incarnation(hosts_[1].incarnation);
  EXPECT_TRUE(Join(both).ok());
  EXPECT_NE(group_.generation(), 0u) << "its host has not given it up yet";
}

TEST_F(WorkerGroupTest, WaitingWorkerWithOutdatedRanksIsRefused) {
  Host({"a", "b"});
  ASSERT_TRUE(Join("a").ok());
  hosts_[1] = {"a", ++incarnation_};
  EXPECT_EQ(Update(), std::vector<std::string>{"a"});
  ASSERT_TRUE(Join("a").ok());
  EXPECT_EQ(group_.GroupOf("a")->members_size(), 1) << "alone";
}

TEST_F(WorkerGroupTest, MovedRanksAndDeadMembersEndTheGroup) {
  FormTwo();
  uint64_t generation = group_.generation();
  hosts_[3].leaving = true;
  Update();
  EXPECT_EQ(group_.generation(), generation) << "its host ends its step first";
  hosts_[3] = {"a", ++incarnation_};
  Update();
  EXPECT_EQ(group_.generation(), 0u);
  EXPECT_EQ(group_.EndReason(generation), "rank 3 no longer belongs to b");

  FormTwo();
  generation = group_.generation();
  hosts_[0].incarnation = ++incarnation_;
  Update();
  EXPECT_EQ(group_.generation(), 0u) << "the same host, a new incarnation";

  FormTwo();
  generation = group_.generation();
  group_.OnNodeGone("c", "died");
  EXPECT_EQ(group_.generation(), generation);
  group_.OnNodeGone("b", "died");
  EXPECT_EQ(group_.EndReason(generation), "b died");
  EXPECT_TRUE(group_.EndReason(generation + 100).has_value()) << "an unknown generation";
}

TEST_F(WorkerGroupTest, OnlyWaitingWorkersJoinAGroup) {
  Host({"a", "b"});
  ASSERT_TRUE(Join("a").ok());
  group_.Withdraw("a");
  ASSERT_TRUE(Join("b").ok());
  EXPECT_EQ(group_.generation(), 0u);
  group_.OnNodeGone("b", "left");
  ASSERT_TRUE(Join("a").ok());
  EXPECT_EQ(group_.generation(), 0u);
}

TEST_F(WorkerGroupTest, ExchangeCompletesWithTheLastValue) {
  FormTwo();
  const uint64_t generation = group_.generation();
  ASSERT_TRUE(Exchange("b", generation, "addresses", "of b").ok());
  EXPECT_FALSE(group_.Values(generation, "addresses")->has_value());
  ASSERT_TRUE(Exchange("a", generation, "addresses", "").ok()) << "an empty one counts";
  ASSERT_TRUE(Exchange("a", generation, "addresses", "").ok()) << "repeated";
  const auto values = group_.Values(generation, "addresses");
  ASSERT_TRUE(values.ok() && values->has_value());
  EXPECT_EQ((*values)->values(0), "");
  EXPECT_EQ((*values)->values(1), "of b");
  EXPECT_TRUE(absl::IsAlreadyExists(Exchange("b", generation, "addresses", "something else")));
  EXPECT_TRUE(absl::IsInvalidArgument(Exchange("c", generation, "addresses", "")));
  EXPECT_TRUE(absl::IsAborted(Exchange("a", generation + 1, "addresses", "")));
  group_.OnNodeGone("b", "died");
  EXPECT_TRUE(absl::IsAborted(group_.Values(generation, "addresses").status()));
}

TEST_F(WorkerGroupTest, ExchangesAreBounded) {
  Host({"a"});
  ASSERT_TRUE(Join("a").ok());
  const uint64_t generation = group_.generation();
  EXPECT_TRUE(absl::IsInvalidArgument(Exchange("a", generation, "", "")));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Exchange("a", generation, std::string(kMaxExchangeNameBytes + 1, 'n'), "")));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Exchange("a", generation, "n", std::string(kMaxExchangeBytes + 1, 'v'))));
  for (size_t i = 0; i < kMaxExchangeNames; ++i) {
    EXPECT_TRUE(
        Exchange("a", generation, absl::StrCat(i), std::string(kMaxExchangeBytes, 'v')).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Exchange("a", generation, "one more", "")));
}

// Checks the invariants after random events.
TEST_F(WorkerGroupTest, InvariantsHoldInRandomSequences) {
  const std::vector<std::string> nodes = {"a", "b", "c", "d"};
  int formed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    group_ = WorkerGroup();
    hosts_.assign(1 + random() % 6, {});
    // The members of each generation.
    std::map<uint64_t, std::string> told;
    std::set<uint64_t> over;
    for (int step = 0; step < 400; ++step) {
      const std::string& node = nodes[random() % nodes.size()];
      const uint64_t before = group_.generation();
      const bool was_in_it = group_.GroupOf(node).has_value();
      bool must_end = false;
      switch (random() % 8) {
        case 0: {
          WorkerGroup::HostedRank& rank = hosts_[random() % hosts_.size()];
          rank = {random() % 5 == 0 ? "" : node, ++incarnation_};
          must_end = true;
          Update();
          break;
        }
        case 1:
          if (random() % 4 != 0) break;
          for (WorkerGroup::HostedRank& rank : hosts_) {
            if (rank.node == node) rank.node.clear();
          }
          group_.OnNodeGone(node, "died");
          must_end = was_in_it;
          Update();
          break;
        case 2:
          group_.Withdraw(node);
          break;
        case 3:
          if (was_in_it) {
            EXPECT_TRUE(Exchange(node, before, "n", node).ok());
          }
          break;
        default:
          for (const std::string& joining : nodes) {
            if (random() % 2 == 0) Join(joining).IgnoreError();
          }
      }
      const uint64_t now = group_.generation();
      EXPECT_FALSE(before != 0 && must_end && now == before);
      if (before != now && before != 0) {
        over.insert(before);
        EXPECT_TRUE(group_.EndReason(before).has_value());
      }
      EXPECT_FALSE(over.contains(now)) << "an ended group is back";
      std::set<uint32_t> ranks;
      for (const std::string& member : nodes) {
        const auto mine = group_.GroupOf(member);
        if (!mine.has_value()) continue;
        EXPECT_EQ(mine->generation(), now);
        EXPECT_EQ(mine->members(static_cast<int>(mine->place())).node(), member);
        std::string list;
        for (const GroupMember& each : mine->members())
          absl::StrAppend(&list, each.ShortDebugString());
        EXPECT_EQ(told.try_emplace(now, list).first->second, list)
            << "all members see the same list";
        for (const uint32_t rank : mine->members(static_cast<int>(mine->place())).ranks()) {
          EXPECT_TRUE(ranks.insert(rank).second) << "rank " << rank << " twice";
          EXPECT_EQ(hosts_[rank].node, member);
        }
      }
      EXPECT_EQ(ranks.size(), now == 0 ? 0 : hosts_.size());
      formed += now != before && now != 0;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(formed, 1000);
}

}  // namespace
}  // namespace pawl
