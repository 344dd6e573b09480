#include "worker/dense/testing/dense_process.h"

#include <cstdlib>

#include "gtest/gtest.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// Created before any thread: ThreadSanitizer does not see that the system's spdlog creates its
// loggers once for all threads.
[[maybe_unused]] spdlog::logger* const kLogger = spdlog::default_logger_raw();

// Multiples of 1/8 near 0, whose sums are exact in any order.
float Gradient(uint32_t rank, uint64_t step, size_t element, float weight) {
  const uint64_t mixed = (rank + 1) * 7919 + (step + 1) * 104729 + element * 31;
  return static_cast<float>(static_cast<int>(mixed % 17) - 8) / 8 + (weight > 0 ? 0.125f : -0.125f);
}
float InitialWeight(size_t element) {
  return static_cast<float>(static_cast<int>(element % 5) - 2);
}

// A session that expects no call.
class NeverSession final : public Session {
  void Push(absl::Span<const PushItem>, const CallOptions&, Callback) override { std::abort(); }
  void Pull(absl::Span<const PullItem>, const CallOptions&, Callback) override { std::abort(); }
  void Assign(absl::Span<const AssignItem>, const CallOptions&, Callback) override { std::abort(); }
  void PushPull(absl::Span<const PushItem>, absl::Span<const PullItem>, const CallOptions&,
                Callback) override {
    std::abort();
  }
};

}  // namespace

Optimizer Momentum() {
  Optimizer spec;
  spec.mutable_momentum()->set_learning_rate(0.5f);
  spec.mutable_momentum()->set_momentum(0.5f);
  return spec;
}

Optimizer Sgd() {
  Optimizer spec;
  spec.mutable_sgd()->set_learning_rate(0.5f);
  return spec;
}

Optimizer Adam() {
  Optimizer spec;
  spec.mutable_adam()->set_learning_rate(0.25f);
  return spec;
}

Optimizer Adagrad() {
  Optimizer spec;
  spec.mutable_adagrad()->set_learning_rate(0.25f);
  return spec;
}

DenseProcess::DenseProcess(FakeGroups& groups, DenseServers& servers, std::string name,
                           uint64_t last_step, const DenseSetting& setting)
    : groups_(groups),
      servers_(servers),
      name_(std::move(name)),
      last_step_(last_step),
      former_(groups.Join(name_)) {
  DenseReplica::Options options;
  options.logical_workers = kRanks;
  options.elements = kElements;
  options.optimizer = setting.optimizer;
  options.bucket_bytes = setting.bucket_bytes;
  options.sharded = setting.sharded;
  options.is_write_back = [every = setting.write_back_steps](uint64_t steps) {
    return steps % every == 0;
  };
  options.retry_interval = std::chrono::milliseconds(1);
  options.leave_limit = setting.leave_limit;
  options.load = [this](const Interrupt&, DenseState& state) -> absl::StatusOr<uint64_t> {
    ++servers_.loads;
    const DenseLayout& layout = replica_->layout();
    for (size_t b = 0; b < layout.buckets().size(); ++b) {
      const DenseBucket& bucket = layout.buckets()[b];
      float* const weights = state.weights(b, servers_.stored_steps);
      for (size_t i = 0; i < bucket.count; ++i) weights[i] = InitialWeight(bucket.begin + i);
      for (size_t i = bucket.first_block; i < bucket.end_block; ++i) {
        const DenseBlock& block = layout.blocks()[i];
        replica_->rule().InitializeSlots(block.count,
                                         state.slots(b) + (block.slots_begin - bucket.slots_begin));
      }
    }
    for (size_t b = 0; b < layout.buckets().size(); ++b) state.Publish(b, servers_.stored_steps);
    return servers_.stored_steps;
  };
  replica_ = *DenseReplica::Create(std::move(options), *former_);
}

void DenseProcess::Host(const std::vector<uint32_t>& ranks) {
  for (const uint32_t rank : ranks) replica_->Expect(rank, 1);
  for (const uint32_t rank : ranks) {
    EXPECT_TRUE(replica_->Begin(rank, servers_.clocks[rank]).ok());
    threads_[rank] = std::thread([this, rank] { Run(rank); });
  }
}

void DenseProcess::Kill() {
  killed_ = true;
  groups_.Kill(name_);
  Stop();
}

void DenseProcess::Stop() {
  for (Interrupt& interrupt : interrupts_) interrupt.Set(absl::CancelledError("stopped"));
  Join();
  replica_.reset();
}

void DenseProcess::Join() {
  for (auto& [rank, thread] : threads_) thread.join();
  threads_.clear();
}

void DenseProcess::Release(uint32_t rank) {
  interrupts_[rank].Set(absl::CancelledError("released"));
  threads_.at(rank).join();
  threads_.erase(rank);
}

std::vector<float> DenseProcess::Weights(uint64_t steps) {
  EXPECT_TRUE(replica_->AwaitSteps(steps, kLimit, Interrupt()).ok());
  NeverSession session;
  auto view = *replica_->At(steps, session, kLimit);
  EXPECT_TRUE(view->Await(Interrupt()).ok());
  std::vector<float> weights;
  for (size_t t = 0; t < kElements.size(); ++t) {
    const auto values = view->values(t);
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return weights;
}

void DenseProcess::Run(uint32_t rank) {
  absl::Status status = RunSteps(rank);
  // A worker that takes over a rank needs the others, so none leaves.
  if (status.ok() && end_lag > 0)
    status = replica_->AwaitSteps(last_step_, kLimit, interrupts_[rank]);
  EXPECT_TRUE(status.ok() || !interrupts_[rank].reason().ok()) << status;
  if (!killed_) servers_.clocks[rank] = given_[rank].load();
  if (!status.ok() && !killed_) replica_->End(rank, servers_.clocks[rank]);
}

absl::Status DenseProcess::RunSteps(uint32_t rank) {
  NeverSession session;
  const uint64_t first_step = servers_.clocks[rank];
  given_[rank] = first_step;
  // A rank that reads nothing need not wait.
  if (first_step < last_step_) {
    if (absl::Status status = replica_->AwaitSynchronized(rank, kLimit, interrupts_[rank]);
        !status.ok())
      return status;
  }
  for (uint64_t step = first_step; step < last_step_; ++step) {
    auto view = *replica_->At(step, session, kLimit);
    Interrupt& interrupt = interrupts_[rank];
    if (absl::Status status = view->Await(interrupt); !status.ok()) return status;
    for (size_t t = 0; t < kElements.size(); ++t) {
      if (absl::Status status = view->AwaitTable(t, interrupt); !status.ok()) return status;
    }
    if (in_step != nullptr) {
      std::vector<float> before(view->values(0).begin(), view->values(0).end());
      in_step(rank, step);
      const std::vector<float> after(view->values(0).begin(), view->values(0).end());
      EXPECT_EQ(before, after) << "parameters that rank " << rank << " reads in step " << step
                               << " have changed";
    }
    if (absl::Status status = interrupt.reason(); !status.ok()) return status;
    for (size_t t = kElements.size(); t-- > 0;) {
      const auto values = view->values(t);
      const auto gradient = replica_->GradientBuffer(rank, t);
      for (size_t i = 0; i < values.size(); ++i) {
        gradient[i] = Gradient(rank, step, replica_->layout().table_begin(t) + i, values[i]);
      }
      replica_->MarkReady(rank, step, t);
    }
    given_[rank] = step + 1;
    if (step + 1 > first_step + end_lag) servers_.clocks[rank] = step + 1 - end_lag;
  }
  return absl::OkStatus();
}

std::vector<float> DenseReference(uint64_t steps, const Optimizer& optimizer,
                                  const LostSlots& loss) {
  const auto rule = *UpdateRule::Create(optimizer);
  std::vector<float> weights;
  for (size_t i = 0; i < 350; ++i) weights.push_back(InitialWeight(i));
  std::vector<float> slots(rule->SlotCount(350));
  rule->InitializeSlots(350, slots.data());
  std::vector<float> earlier;
  for (uint64_t step = 0; step < steps; ++step) {
    if (step == loss.as_of) earlier = slots;
    for (const auto& [begin, end] : loss.elements) {
      for (size_t array = 0; step == loss.step && array < slots.size(); array += 350) {
        for (size_t i = begin; i < end; ++i) slots[array + i] = earlier[array + i];
      }
    }
    std::vector<float> sum(350);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += Gradient(rank, step, i, weights[i]);
    }
    rule->Apply({step, step}, 1.0f / kRanks, sum.data(), sum.size(), 0, sum.size(), weights.data(),
                slots.data());
  }
  return weights;
}

}  // namespace pawl
