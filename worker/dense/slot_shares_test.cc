#include "worker/dense/slot_shares.h"

#include <memory>
#include <numeric>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// One bucket of two tables, of 4 and 7 elements, with two slots per element.
class SlotSharesTest : public testing::Test {
 protected:
  SlotSharesTest() {
    Optimizer spec;
    spec.mutable_adam()->set_learning_rate(0.5f);
    rule_ = *UpdateRule::Create(spec);
    layout_ = std::make_unique<DenseLayout>(std::vector<uint64_t>{4, 7}, *rule_, 1024);
    for (auto& member : members_) member = std::make_unique<Member>(*layout_, *rule_);
  }

  struct Member {
    Member(const DenseLayout& layout, const UpdateRule& rule)
        : made(*DenseState::Create(layout, rule, *memory)),
          state(*made),
          shares(layout, rule, state) {}
    const std::unique_ptr<DenseMemory> memory = DenseMemory::CreateOnHost();
    const std::unique_ptr<DenseState> made;
    DenseState& state;
    SlotShares shares;
  };
  // Gives all members everything at this version; the slots are numbered.
  void Begin(uint64_t version) {
    for (auto& member : members_) {
      std::fill_n(member->state.weights(0, version), 11, 1.0f);
      std::iota(member->state.slots(0), member->state.slots(0) + 22, 0.0f);
      member->state.Publish(0, version);
      member->shares.SetWhole(0);
    }
  }
  // Runs an update whose end only some members see.
  void Step(const std::vector<bool>& ends) {
    for (size_t p = 0; p < 3; ++p) {
      Member& member = *members_[p];
      const DenseRange range = member.shares.Share(0, 3, p);
      const std::vector<float> gradient(range.size(), 1.0f);
      std::vector<float> weights(range.size());
      member.shares.Prepare(0, range, 1.0f, gradient.data(), weights.data());
      if (!ends[p]) continue;
      member.shares.Commit(0);
      member.state.Publish(0, member.state.PositionOf(0).step + 1);
    }
  }
  // Range, place and version of each source, for a group of these members.
  std::vector<std::vector<int64_t>> Sources(const std::vector<size_t>& group) {
    std::vector<int64_t> all;
    for (const size_t p : group) {
      const std::vector<int64_t> one = members_[p]->shares.Describe();
      all.insert(all.end(), one.begin(), one.end());
    }
    std::vector<std::vector<int64_t>> sources;
    for (const SlotShares::Source& source :
         members_[group[0]]->shares.Sources(0, group.size(), all)) {
      sources.push_back({static_cast<int64_t>(source.range.begin),
                         static_cast<int64_t>(source.range.end), static_cast<int64_t>(source.place),
                         source.version});
    }
    return sources;
  }

  std::unique_ptr<const UpdateRule> rule_;
  std::unique_ptr<DenseLayout> layout_;
  std::unique_ptr<Member> members_[3];
};

using Rows = std::vector<std::vector<int64_t>>;

TEST_F(SlotSharesTest, SharesAreEqualExceptTheLast) {
  SlotShares& shares = members_[0]->shares;
  EXPECT_EQ(shares.SlotsPerElement(0), 2u);
  size_t end = 0;
  for (const size_t size : {4, 4, 3}) {
    const DenseRange range = shares.Share(0, 3, end / 4);
    EXPECT_EQ(range.begin, end);
    EXPECT_EQ(range.size(), size);
    end = range.end;
  }
  // With more members than elements some shares are empty.
  EXPECT_EQ(shares.Share(0, 20, 10).size(), 1u);
  EXPECT_EQ(shares.Share(0, 20, 11).size(), 0u);
  EXPECT_EQ(shares.Share(0, 20, 19).size(), 0u);
}

TEST_F(SlotSharesTest, PackedSlotsAreThoseOfTheElements) {
  Begin(0);
  // The first table's slots are 0 to 3 and 4 to 7, the second's 8 to 14 and 15 to 21.
  std::vector<float> packed(6);
  members_[0]->shares.Pack(0, {3, 6}, packed.data());
  EXPECT_EQ(packed, (std::vector<float>{3, 7, 8, 9, 15, 16}));
  for (float& slot : packed) slot += 100;
  members_[0]->shares.Unpack(0, {3, 6}, packed.data());
  const float* const slots = members_[0]->state.slots(0);
  for (size_t i = 0; i < 22; ++i) {
    const bool changed = i == 3 || i == 7 || i == 8 || i == 9 || i == 15 || i == 16;
    EXPECT_EQ(slots[i], static_cast<float>(i + (changed ? 100 : 0))) << i;
  }
}

TEST_F(SlotSharesTest, UnfinishedUpdateChangesNothing) {
  Begin(3);
  Step({false, false, false});
  for (const auto& member : members_) {
    for (size_t i = 0; i < 22; ++i) EXPECT_EQ(member->state.slots(0)[i], static_cast<float>(i));
  }
  EXPECT_EQ(Sources({0, 1, 2}), Rows());
}

TEST_F(SlotSharesTest, EachMemberProvidesItsOwnShare) {
  Begin(3);
  Step({true, true, true});
  EXPECT_EQ(Sources({0, 1, 2}), (Rows{{0, 4, 0, 4}, {4, 8, 1, 4}, {8, 11, 2, 4}}));
  // Without member 1 its share reverts to the version before.
  EXPECT_EQ(Sources({0, 2}), (Rows{{0, 4, 0, 4}, {4, 8, 0, 3}, {8, 11, 1, 4}}));
  Step({true, true, true});
  EXPECT_EQ(Sources({0, 2}), (Rows{{0, 4, 0, 5}, {4, 8, 0, 3}, {8, 11, 1, 5}}));
}

TEST_F(SlotSharesTest, MemberThatMissedTheEndHasPreparedItsShare) {
  Begin(3);
  Step({true, false, false});
  EXPECT_EQ(Sources({0, 1, 2}), (Rows{{0, 4, 0, 4}, {4, 8, 1, 4}, {8, 11, 2, 4}}));
  // No member that saw the end is left, so the update did not happen.
  EXPECT_EQ(Sources({1, 2}), Rows());
}

TEST_F(SlotSharesTest, MadeUpdatesComeBeforePreparedOnes) {
  Begin(3);
  Member& outsider = *members_[0];
  std::vector<float> gradient(11, 1.0f), weights(11);
  outsider.shares.Prepare(0, {0, 4}, 1.0f, gradient.data(), weights.data());
  // The others make another update, in a group of two.
  for (const size_t p : {1, 2}) {
    Member& member = *members_[p];
    member.shares.Prepare(0, member.shares.Share(0, 2, p - 1), 1.0f, gradient.data(),
                          weights.data());
    member.shares.Commit(0);
    member.state.Publish(0, 4);
  }
  EXPECT_EQ(Sources({0, 1, 2}), (Rows{{0, 4, 1, 4}, {4, 6, 1, 4}, {6, 11, 2, 4}}));
}

TEST_F(SlotSharesTest, PreparedSlotsAreProvidedInParts) {
  Begin(3);
  const DenseRange range = {2, 9};
  const std::vector<float> gradient(range.size(), 1.0f);
  std::vector<float> weights(range.size());
  Member& one = *members_[0];
  Member& other = *members_[1];
  one.shares.Prepare(0, range, 1.0f, gradient.data(), weights.data());
  other.shares.Prepare(0, range, 1.0f, gradient.data(), weights.data());
  other.shares.Commit(0);
  other.state.Publish(0, 4);
  for (const DenseRange part : {DenseRange{2, 9}, DenseRange{3, 6}, DenseRange{5, 7}}) {
    const std::vector<float> given = one.shares.PackSource(0, {part, 0, 4});
    EXPECT_EQ(given, other.shares.PackSource(0, {part, 1, 4})) << part.begin;
    std::vector<float> before(given.size());
    one.shares.Pack(0, part, before.data());
    EXPECT_NE(given, before);
  }
  EXPECT_FALSE(one.shares.Has(0, {{2, 9}, 0, 4}));
  EXPECT_TRUE(other.shares.Has(0, {{3, 6}, 0, 4}));
  EXPECT_FALSE(other.shares.Has(0, {{1, 6}, 0, 4}));
}

TEST_F(SlotSharesTest, JoinerProvidesNothing) {
  Begin(3);
  members_[0]->state.Clear();
  members_[0]->shares.Clear();
  EXPECT_EQ(Sources({0, 1, 2}), (Rows{{0, 11, 1, 3}}));
}

}  // namespace
}  // namespace pawl
