#include "scheduler/job/save_gate.h"

#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

class SaveGateTest : public testing::Test {
 protected:
  void Hold(int what) {
    DeferredActions actions;
    actions.Add([this, what] { told_.push_back(what); });
    gate_.Hold(actions);
  }
  void Saved(uint64_t change) {
    DeferredActions due;
    gate_.OnSaved(change, due);
  }

  SaveGate gate_;
  std::vector<int> told_;
};

TEST_F(SaveGateTest, HeldActionsLeaveInOrderOnceSaved) {
  EXPECT_TRUE(gate_.all_saved());
  gate_.OnChange();
  EXPECT_FALSE(gate_.all_saved());
  Hold(1);
  Hold(2);
  gate_.OnChange();
  Hold(3);
  EXPECT_TRUE(told_.empty());
  Saved(1);
  EXPECT_EQ(told_, (std::vector<int>{1, 2}));
  EXPECT_FALSE(gate_.all_saved());
  Saved(2);
  EXPECT_EQ(told_, (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(gate_.all_saved());
}

TEST_F(SaveGateTest, OpenGateHoldsNothing) {
  gate_.OnChange();
  Hold(1);
  {
    DeferredActions due;
    gate_.Open(due);
  }
  EXPECT_EQ(told_, (std::vector<int>{1}));
  Hold(2);
  EXPECT_EQ(told_, (std::vector<int>{1, 2}));
  EXPECT_FALSE(gate_.all_saved()) << "it still has to be saved";
  Saved(1);
  EXPECT_TRUE(gate_.all_saved());
  EXPECT_EQ(told_.size(), 2u);
}

}  // namespace
}  // namespace pawl
