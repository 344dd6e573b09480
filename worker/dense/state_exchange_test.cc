#include "worker/dense/state_exchange.h"

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "spdlog/spdlog.h"
#include "worker/collective/testing/fake_group.h"

namespace pawl {
namespace {

// Created before any thread: ThreadSanitizer does not see that the system's spdlog creates its
// loggers once for all threads.
[[maybe_unused]] spdlog::logger* const kLogger = spdlog::default_logger_raw();

constexpr std::chrono::minutes kLimit{1};
constexpr int64_t kNone = DenseState::kNone;

// The contents of a bucket at a version; different for every bucket and version.
float Weight(size_t bucket, int64_t version) {
  return static_cast<float>(10 * version + static_cast<int64_t>(bucket));
}
float Slot(size_t bucket, int64_t version) { return 1000 + Weight(bucket, version); }

// Three members with two buckets of four elements each, with one slot per element. The parameter:
// whether slots are shared.
class StateExchangeTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kElements = 4;

  StateExchangeTest() {
    Optimizer spec;
    spec.mutable_momentum()->set_learning_rate(0.5f);
    rule_ = *UpdateRule::Create(spec);
    layout_ = std::make_unique<DenseLayout>(std::vector<uint64_t>{kElements, kElements}, *rule_,
                                            kElements * sizeof(float));
  }
  void SetUp() override { ASSERT_EQ(layout_->buckets().size(), 2u); }

  struct Member {
    Member(const DenseLayout& layout, const UpdateRule& rule)
        : made(*DenseState::Create(layout, rule, *memory)),
          state(*made),
          shares(layout, rule, state) {}
    const std::unique_ptr<DenseMemory> memory = DenseMemory::CreateOnHost();
    const std::unique_ptr<DenseState> made;
    DenseState& state;
    SlotShares shares;
    absl::Status status;
    bool failed = false;
  };

  // Adds a member whose buckets have these versions, each with the version before in its other
  // buffer.
  Member& Add(const std::vector<int64_t>& versions, float more = 0) {
    Member& member = *members_.emplace_back(std::make_unique<Member>(*layout_, *rule_));
    for (size_t b = 0; b < versions.size(); ++b) {
      if (versions[b] == kNone) continue;
      const uint64_t version = static_cast<uint64_t>(versions[b]);
      if (version > 0) {
        std::fill_n(member.state.weights(b, version - 1), kElements,
                    Weight(b, versions[b] - 1) + more);
        member.state.Publish(b, version - 1);
      }
      std::fill_n(member.state.weights(b, version), kElements, Weight(b, versions[b]) + more);
      std::fill_n(member.state.slots(b), kElements, Slot(b, versions[b]) + more);
      member.state.Publish(b, version);
      member.shares.SetWhole(b);
    }
    return member;
  }

  // Runs every member of a group. The operation of the given number, if any, fails for the given
  // members.
  void Run(uint64_t earliest, uint64_t failing_operation = UINT64_MAX,
           std::set<std::string> failing = {}) {
    FakeGroups groups(static_cast<uint32_t>(members_.size()));
    groups.BeforeEach([&](const FakeGroups::Operation& operation) {
      reached_ = reached_ || operation.number == failing_operation;
      return operation.number == failing_operation ? failing : std::set<std::string>();
    });
    std::vector<std::unique_ptr<GroupFormer>> formers;
    for (size_t p = 0; p < members_.size(); ++p)
      formers.push_back(groups.Join("m" + std::to_string(p)));
    std::vector<std::thread> threads;
    for (size_t p = 0; p < members_.size(); ++p) {
      threads.emplace_back([this, earliest, p, &former = *formers[p]] {
        GroupRank rank;
        rank.set_rank(static_cast<uint32_t>(p));
        const Group group = *former.Form({rank}, std::nullopt, Interrupt());
        GroupOperations operations(*group.collective, kLimit, [] { return absl::OkStatus(); });
        Member& member = *members_[p];
        StateExchange exchange(*layout_, member.state, GetParam() ? &member.shares : nullptr,
                               operations);
        member.status = exchange.Run(earliest, [&]() -> absl::StatusOr<uint64_t> {
          ++loads_;
          if (!load_status_.ok()) return load_status_;
          for (const size_t b : {0, 1}) {
            std::fill_n(member.state.weights(b, 2), kElements, Weight(b, 2));
            std::fill_n(member.state.slots(b), kElements, Slot(b, 2));
            member.state.Publish(b, 2);
          }
          return 2;
        });
        member.failed = exchange.failed();
        if (!member.status.ok()) group.collective->Abort(member.status);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Checks that the bucket's weights and slots are all of this version, as added with `more`.
  void ExpectBucket(const Member& member, size_t bucket, int64_t version, float more = 0) {
    EXPECT_EQ(member.state.versions()[bucket], version);
    for (const float weight : member.state.Values(bucket, static_cast<uint64_t>(version))) {
      EXPECT_EQ(weight, Weight(bucket, version) + more);
    }
    for (const float slot : member.state.Slots(bucket))
      EXPECT_EQ(slot, Slot(bucket, version) + more);
  }

  std::unique_ptr<const UpdateRule> rule_;
  std::unique_ptr<DenseLayout> layout_;
  std::vector<std::unique_ptr<Member>> members_;
  absl::Status load_status_;
  std::atomic<int> loads_ = 0;
  std::atomic<bool> reached_ = false;
};

INSTANTIATE_TEST_SUITE_P(All, StateExchangeTest, testing::Bool(),
                         [](const auto& of) { return of.param ? "Shares" : "Whole"; });

TEST_P(StateExchangeTest, OneMemberLoadsStateForAll) {
  for (int i = 0; i < 3; ++i) Add({kNone, kNone});
  Run(2);
  for (const auto& member : members_) {
    EXPECT_TRUE(member->status.ok()) << member->status;
    for (const size_t b : {0, 1}) ExpectBucket(*member, b, 2);
    EXPECT_EQ(member->state.lost_steps(), 0u);
  }
  EXPECT_EQ(loads_, 1);
}

TEST_P(StateExchangeTest, StepsWithoutGradientsAreLost) {
  for (const int64_t version : {kNone, int64_t{2}}) {
    members_.clear();
    for (int i = 0; i < 3; ++i)
      Add({version, version}).state.set_lost_steps(version == kNone ? 0 : 1);
    Run(7);
    for (const auto& member : members_) {
      EXPECT_TRUE(member->status.ok()) << member->status;
      EXPECT_EQ(member->state.versions(), (std::vector<int64_t>{7, 7}));
      EXPECT_EQ(member->state.lost_steps(), version == kNone ? 5u : 6u);
      EXPECT_EQ(member->state.Values(1, 7)[0], Weight(1, 2));
      EXPECT_EQ(member->state.Slots(1)[0], Slot(1, 2));
    }
  }
}

TEST_P(StateExchangeTest, MemberThatMissedAStepEndGetsIt) {
  Add({3, 3}).state.set_lost_steps(1);
  Add({4, 3}).state.set_lost_steps(2);
  // Already has the newest version, and shows by its values whether it was overwritten.
  Add({4, 3}, 0.5f).state.set_lost_steps(3);
  Run(3);
  for (const auto& member : members_) EXPECT_TRUE(member->status.ok()) << member->status;
  ExpectBucket(*members_[0], 0, 4);
  ExpectBucket(*members_[0], 1, 3);
  EXPECT_EQ(members_[0]->state.lost_steps(), 3u);
  ExpectBucket(*members_[1], 0, 4);
  ExpectBucket(*members_[2], 0, 4, 0.5f);
  ExpectBucket(*members_[2], 1, 3, 0.5f);
  EXPECT_EQ(members_[2]->state.lost_steps(), 3u);
  EXPECT_EQ(loads_, 0);
}

TEST_P(StateExchangeTest, JoinerGetsTheVersionBeforeOfABucketAhead) {
  Add({4, 3});
  Add({3, 3});
  Member& joiner = *members_.emplace_back(std::make_unique<Member>(*layout_, *rule_));
  Run(3);
  ExpectBucket(joiner, 0, 4);
  ExpectBucket(joiner, 1, 3);
  EXPECT_EQ(*joiner.state.VersionFor(3, kLimit, Interrupt()), 3u);
  EXPECT_EQ(joiner.state.Values(0, 3)[0], Weight(0, 3));
}

TEST_P(StateExchangeTest, VersionBeforeIsNotSentIfNoBucketIsAhead) {
  Add({4, 4});
  Member& joiner = *members_.emplace_back(std::make_unique<Member>(*layout_, *rule_));
  Run(3);
  EXPECT_EQ(*joiner.state.VersionFor(3, kLimit, Interrupt()), 4u);
  for (const size_t b : {0, 1}) ExpectBucket(joiner, b, 4);
}

TEST_P(StateExchangeTest, BrokenExchangeLeavesOneVersionPerBucket) {
  // The bucket that is ahead is the first or the last.
  for (const std::vector<int64_t>& ahead :
       {std::vector<int64_t>{4, 3}, std::vector<int64_t>{3, 4}}) {
    uint64_t number = 0;
    do {
      members_.clear();
      reached_ = false;
      Add(ahead);
      Add({3, 3});
      Add({kNone, kNone});
      Run(3, number++, {"m1", "m2"});
      for (size_t b = 0; b < 2; ++b) {
        const int64_t behind = members_[1]->state.versions()[b];
        const int64_t joiner = members_[2]->state.versions()[b];
        ExpectBucket(*members_[1], b, behind == ahead[b] ? ahead[b] : 3);
        // A rank may be reading the version before.
        EXPECT_EQ(members_[1]->state.Values(b, static_cast<uint64_t>(behind - 1))[0],
                  Weight(b, behind - 1));
        if (joiner != kNone) ExpectBucket(*members_[2], b, ahead[b]);
      }
    } while (reached_);
    // The loop covered all operations.
    EXPECT_GT(number, 6u);
    EXPECT_TRUE(members_[2]->status.ok());
  }
}

TEST_P(StateExchangeTest, MemberTwoStepsBehindCannotContinue) {
  Add({5, 5});
  Add({3, 3});
  Run(3);
  EXPECT_EQ(members_[1]->status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(members_[1]->failed);
  EXPECT_FALSE(members_[0]->status.ok());
  EXPECT_FALSE(members_[0]->failed);
}

TEST_P(StateExchangeTest, LostStepsAreCountedOnceAfterABreak) {
  uint64_t number = 0;
  do {
    members_.clear();
    reached_ = false;
    for (int i = 0; i < 2; ++i) Add({2, 2}).state.set_lost_steps(1);
    Add({kNone, kNone});
    // The others see the end of the operation, and have counted if it was the last one.
    Run(7, number, {"m1"});
    const bool broke = reached_;
    Run(7);
    for (const auto& member : members_) {
      EXPECT_TRUE(member->status.ok())
          << member->status << " after a break at operation " << number;
      EXPECT_FALSE(member->failed);
      EXPECT_EQ(member->state.versions(), (std::vector<int64_t>{7, 7}));
      EXPECT_EQ(member->state.lost_steps(), 6u);
      for (const size_t b : {0, 1}) EXPECT_EQ(member->state.Values(b, 7)[0], Weight(b, 2));
    }
    reached_ = broke;
    ++number;
  } while (reached_);
  EXPECT_GT(number, 4u);
}

TEST_P(StateExchangeTest, LostStepsAreCountedOnceAfterTwoBreaks) {
  constexpr uint64_t kBeyond = 12;
  for (uint64_t first = 0; first < kBeyond; ++first) {
    for (uint64_t second = 0; second < kBeyond; ++second) {
      members_.clear();
      for (int i = 0; i < 2; ++i) Add({2, 2}).state.set_lost_steps(1);
      Add({kNone, kNone});
      // The last member may have counted and the others not; then the first one may have a bucket
      // of that state without the count.
      Run(7, first, {"m0", "m1"});
      Run(7, second, {"m1"});
      Run(7);
      for (const auto& member : members_) {
        ASSERT_TRUE(member->status.ok())
            << member->status << " after breaks at operations " << first << " and " << second;
        EXPECT_EQ(member->state.versions(), (std::vector<int64_t>{7, 7}));
        EXPECT_EQ(member->state.lost_steps(), 6u);
        for (const size_t b : {0, 1}) EXPECT_EQ(member->state.Values(b, 7)[0], Weight(b, 2));
      }
    }
  }
}

TEST_P(StateExchangeTest, UnreachableServersMayReturn) {
  for (const bool away : {true, false}) {
    members_.clear();
    for (int i = 0; i < 2; ++i) Add({kNone, kNone});
    load_status_ = away ? absl::UnavailableError("away") : absl::DataLossError("damaged");
    Run(0);
    EXPECT_EQ(members_[0]->status.code(), load_status_.code());
    EXPECT_EQ(members_[0]->failed, !away);
    EXPECT_FALSE(members_[1]->failed);
  }
}

// A bucket of six elements after a step of four members; the last has left. The first has
// seen the end of the step, the second has prepared its share, the third has no state.
TEST(StateExchangeOfSharesTest, SlotsComeFromTheMembersThatUpdatedThem) {
  Optimizer spec;
  spec.mutable_momentum()->set_learning_rate(0.5f);
  const auto rule = *UpdateRule::Create(spec);
  const DenseLayout layout({6}, *rule, 1024);
  const std::vector<float> before(6, 8.0f);
  std::vector<float> updated;
  for (const float gradient : {1.0f, 2.0f}) {
    float weight = 0;
    float slot = 8;
    rule->Apply({0, 0}, 1.0f, &gradient, 1, 0, 1, &weight, &slot);
    updated.push_back(slot);
  }
  const std::vector<float> after = {updated[0], updated[0], updated[1], updated[1], 8, 8};

  const auto run = [&](size_t place, GroupFormer& former, bool breaks) {
    const std::unique_ptr<DenseMemory> memory = DenseMemory::CreateOnHost();
    const std::unique_ptr<DenseState> made = *DenseState::Create(layout, *rule, *memory);
    DenseState& state = *made;
    SlotShares shares(layout, *rule, state);
    if (place < 2) {
      std::fill_n(state.weights(0, 0), 6, 0.0f);
      std::copy(before.begin(), before.end(), state.slots(0));
      state.Publish(0, 0);
      shares.SetWhole(0);
      const std::vector<float> gradient(2, static_cast<float>(place + 1));
      std::vector<float> weights(2);
      shares.Prepare(0, shares.Share(0, 4, place), 1.0f, gradient.data(), weights.data());
    }
    if (place == 0) {
      shares.Commit(0);
      std::fill_n(state.weights(0, 1), 6, 1.0f);
      state.Publish(0, 1);
    }
    GroupRank rank;
    rank.set_rank(static_cast<uint32_t>(place));
    const Group group = *former.Form({rank}, std::nullopt, Interrupt());
    GroupOperations operations(*group.collective, kLimit, [] { return absl::OkStatus(); });
    StateExchange exchange(layout, state, &shares, operations);
    const absl::Status status = exchange.Run(1, [] { return absl::InternalError("it is there"); });
    EXPECT_EQ(status.ok(), !breaks) << status;
    if (!status.ok()) group.collective->Abort(status);
    const int64_t version = state.versions()[0];
    const std::vector<float> slots(state.slots(0), state.slots(0) + 6);
    if (status.ok()) {
      EXPECT_EQ(version, 1);
    }
    if (place == 1 && version == 0) {
      EXPECT_EQ(slots, before);
    }
    if (version == 1 && !breaks) {
      EXPECT_EQ(slots, after);
    }
  };
  uint64_t number = 0;
  bool reached = true;
  for (; reached; ++number) {
    reached = false;
    FakeGroups groups(3);
    groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
      if (operation.number != number) return {};
      reached = true;
      return {"m0", "m1", "m2"};
    });
    std::vector<std::unique_ptr<GroupFormer>> formers;
    for (size_t p = 0; p < 3; ++p) formers.push_back(groups.Join("m" + std::to_string(p)));
    std::vector<std::thread> threads;
    // The versions, the descriptions, the weights, three shares.
    for (size_t p = 0; p < 3; ++p)
      threads.emplace_back([&, p] { run(p, *formers[p], number < 6); });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(number, 7u);
}

}  // namespace
}  // namespace pawl
