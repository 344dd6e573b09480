#include "worker/dense/dense_store.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

// A session with dense tables by name, in which a push assigns blocks.
class FakeSession final : public Session {
 public:
  void Push(absl::Span<const PushItem> items, const CallOptions&, Callback done) override {
    for (const PushItem& item : items) {
      std::vector<float>& tensor = tensors[item.table.name()];
      tensor.resize(item.table.elements());
      size_t at = 0;
      for (const uint64_t block : item.keys) {
        ++pushes[{item.table.name(), block}];
        for (size_t i = block * kBlockElements;
             i < std::min<size_t>((block + 1) * kBlockElements, tensor.size()); ++i) {
          tensor[i] = item.gradients[at++];
        }
      }
      EXPECT_EQ(at, item.gradients.size());
    }
    done(absl::OkStatus());
  }
  void Pull(absl::Span<const PullItem> items, const CallOptions&, Callback done) override {
    for (const PullItem& item : items) {
      std::vector<float>& tensor = tensors[item.table.name()];
      tensor.resize(item.table.elements());
      std::copy(tensor.begin(), tensor.end(), item.values.begin());
    }
    done(absl::OkStatus());
  }
  void Assign(absl::Span<const AssignItem>, const CallOptions&, Callback) override { std::abort(); }
  void PushPull(absl::Span<const PushItem>, absl::Span<const PullItem>, const CallOptions&,
                Callback) override {
    std::abort();
  }

  std::map<std::string, std::vector<float>> tensors;
  std::map<std::pair<std::string, uint64_t>, int> pushes;
};

TableSpec Model(const std::string& name, const std::vector<uint64_t>& shape) {
  TableSpec spec = DenseTableSpec(name, shape);
  spec.mutable_initializer()->mutable_xavier();
  spec.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.1f);
  return spec;
}

class DenseStoreTest : public testing::Test {
 protected:
  void Make(Optimizer optimizer) {
    rule_ = *UpdateRule::Create(optimizer);
    layout_ = std::make_unique<DenseLayout>(std::vector<uint64_t>{3, 2 * kBlockElements + 5},
                                            *rule_, 1 << 20);
    specs_ = DenseStore::Specs({Model("a", {3}), Model("b", {1, 2 * kBlockElements + 5})}, *rule_);
    std::vector<Table> tables;
    for (TableSpec spec : specs_) {
      spec.set_id(static_cast<uint32_t>(tables.size() + 1));
      tables.emplace_back(spec);
    }
    store_ = std::make_unique<DenseStore>(*layout_, *rule_, std::move(tables));
    state_ = *DenseState::Create(*layout_, *rule_, *memory_);
  }
  void MakeAdam() {
    Optimizer adam;
    adam.mutable_adam()->set_learning_rate(0.1f);
    Make(adam);
  }
  void FillState(uint64_t version) {
    for (size_t b = 0; b < layout_->buckets().size(); ++b) {
      const DenseBucket& bucket = layout_->buckets()[b];
      for (size_t i = 0; i < bucket.count; ++i)
        state_->weights(b, version)[i] = static_cast<float>(bucket.begin + i);
      for (size_t i = 0; i < bucket.slots_count; ++i)
        state_->slots(b)[i] = -static_cast<float>(bucket.slots_begin + i);
      state_->Publish(b, version);
    }
  }

  std::unique_ptr<const UpdateRule> rule_;
  std::unique_ptr<DenseLayout> layout_;
  std::vector<TableSpec> specs_;
  std::unique_ptr<DenseStore> store_;
  const std::unique_ptr<DenseMemory> memory_ = DenseMemory::CreateOnHost();
  std::unique_ptr<DenseState> state_;
  FakeSession session_;
  Interrupt interrupt_;
};

TEST_F(DenseStoreTest, TablesAreAssignedAndHaveSlotTables) {
  MakeAdam();
  ASSERT_EQ(specs_.size(), 5u);
  for (const TableSpec& spec : specs_) EXPECT_TRUE(spec.optimizer().has_assign()) << spec.name();
  EXPECT_TRUE(specs_[1].initializer().has_xavier());
  EXPECT_EQ(specs_[2].name(), "a/slots");
  EXPECT_EQ(specs_[2].shape(0), 6u);
  EXPECT_EQ(specs_[3].name(), "b/slots");
  EXPECT_EQ(specs_[3].shape(0), 4 * kBlockElements + 10);
  EXPECT_EQ(specs_[4].name(), "dense/steps");
  Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.1f);
  Make(sgd);
  EXPECT_EQ(specs_.size(), 3u);
}

TEST_F(DenseStoreTest, RanksWriteEachBlockOnceAndLoadRestoresIt) {
  MakeAdam();
  constexpr uint64_t kSteps = (uint64_t{1} << 24) + 12345;
  FillState(kSteps);
  state_->set_lost_steps(45);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const DenseStore::WriteBackPart share = *store_->PartOf(*state_, kSteps, rank, 3);
    session_.Push(share.items, CallOptions(), [](absl::Status) {});
  }
  EXPECT_EQ(session_.pushes.size(), 1u + 3 + 1 + 5 + 1);
  for (const auto& [block, count] : session_.pushes)
    EXPECT_EQ(count, 1) << block.first << " " << block.second;
  EXPECT_EQ(session_.tensors["dense/steps"], (std::vector<float>{1, 12345, 1, 12300}));

  const std::unique_ptr<DenseState> of_loaded = *DenseState::Create(*layout_, *rule_, *memory_);
  DenseState& loaded = *of_loaded;
  EXPECT_EQ(*store_->Load(session_, std::chrono::minutes(1), interrupt_, loaded), kSteps);
  EXPECT_EQ(loaded.lost_steps(), 45u);
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(loaded.Values(t, kSteps), state_->Values(t, kSteps));
    EXPECT_EQ(loaded.Slots(t), state_->Slots(t));
  }
}

TEST_F(DenseStoreTest, NewJobHasInitialWeightsAndSlots) {
  Optimizer adagrad;
  adagrad.mutable_adagrad()->set_learning_rate(0.1f);
  adagrad.mutable_adagrad()->set_initial_accumulator(0.5f);
  Make(adagrad);
  session_.tensors["a"] = {1, 2, 3};
  EXPECT_EQ(*store_->Load(session_, std::chrono::minutes(1), interrupt_, *state_), 0u);
  EXPECT_EQ(state_->Values(0, 0)[2], 3);
  for (size_t t = 0; t < 2; ++t) {
    for (const float slot : state_->Slots(t)) ASSERT_EQ(slot, 0.5f);
  }
}

TEST_F(DenseStoreTest, InvalidStepNumbersAreRefused) {
  MakeAdam();
  for (const std::vector<float>& steps : std::vector<std::vector<float>>{
           {0.5f, 0, 0, 0}, {0, -1, 0, 0}, {0, 5, 0, 6}, {0, 16777216.0f, 0, 0}}) {
    session_.tensors["dense/steps"] = steps;
    EXPECT_EQ(store_->Load(session_, std::chrono::minutes(1), interrupt_, *state_).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace pawl
