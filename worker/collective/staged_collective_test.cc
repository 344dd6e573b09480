// Tests what collective_test cannot observe: when pieces travel, and how operations end that are
// interrupted midway.
#include "worker/collective/staged_collective.h"

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/mutex.h"
#include "gtest/gtest.h"
#include "worker/device/testing/remote_memory_device.h"

namespace pawl {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{30};
constexpr size_t kElementsOfAPiece = 100;
constexpr size_t kPieceBytes = kElementsOfAPiece * sizeof(float);

// A group of one whose operations end when the test says so. Its all-reduce doubles the input,
// which makes its effect visible.
class HeldCollective final : public ConnectableCollective {
 public:
  struct Call {
    std::function<void()> work;
    MonotonicDuration timeout;
    Done done;
  };

  // `real`: the host address behind an address of the device.
  explicit HeldCollective(std::function<float*(const void*, size_t)> real)
      : real_(std::move(real)) {}

  const std::string& introduction() const override { return introduction_; }
  void Connect(std::vector<std::string>, MonotonicDuration, Done done) override {
    done(absl::OkStatus());
  }
  size_t size() const override { return 1; }
  size_t place() const override { return 0; }
  void AllReduce(const void* input, void* output, size_t count, CollectiveType, Reduction,
                 MonotonicDuration timeout, Done done) override {
    Take({[=, this] {
            for (size_t i = 0; i < count; ++i)
              real_(output, 4 * count)[i] = 2 * real_(input, 4 * count)[i];
          },
          timeout, std::move(done)});
  }
  void Broadcast(void*, size_t, CollectiveType, size_t, MonotonicDuration, Done) override {}
  void AllGather(const void*, void*, size_t, CollectiveType, MonotonicDuration, Done) override {}
  void ReduceScatter(const void*, void*, size_t, CollectiveType, Reduction, MonotonicDuration,
                     Done) override {}
  void Abort(const absl::Status& reason) override {
    MutexLock lock(mu_);
    if (aborted_.ok()) aborted_ = reason;
    changed_.NotifyAll();
  }
  absl::Status status() const override {
    MutexLock lock(mu_);
    return aborted_;
  }
  bool hangs() const override { return hangs_; }
  void SetHangs() { hangs_ = true; }

  // Waits until `count` calls are pending.
  bool AwaitCalls(size_t count) {
    MutexLock lock(mu_);
    const MonotonicTime limit = Clock::Real().Now() + kLimit;
    while (calls_.size() != count && Clock::Real().Now() < limit) changed_.WaitUntil(mu_, limit);
    return calls_.size() == count;
  }
  bool AwaitAbort() {
    MutexLock lock(mu_);
    const MonotonicTime limit = Clock::Real().Now() + kLimit;
    while (aborted_.ok() && Clock::Real().Now() < limit) changed_.WaitUntil(mu_, limit);
    return !aborted_.ok();
  }
  size_t calls() const {
    MutexLock lock(mu_);
    return calls_.size();
  }
  MonotonicDuration timeout_of_first() const {
    MutexLock lock(mu_);
    return calls_.front().timeout;
  }
  // Ends the first pending call.
  void End(absl::Status status) {
    Call call;
    {
      MutexLock lock(mu_);
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    if (status.ok()) call.work();
    call.done(std::move(status));
  }

 private:
  void Take(Call call) {
    MutexLock lock(mu_);
    calls_.push_back(std::move(call));
    changed_.NotifyAll();
  }

  const std::string introduction_ = "I am";
  std::atomic<bool> hangs_{false};
  const std::function<float*(const void*, size_t)> real_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Call> calls_ PAWL_GUARDED_BY(mu_);
  absl::Status aborted_ PAWL_GUARDED_BY(mu_);
};

class StagedCollectiveTest : public testing::Test {
 protected:
  StagedCollectiveTest() {
    auto inner = std::make_unique<HeldCollective>([this](const void* address, size_t bytes) {
      return const_cast<float*>(static_cast<const float*>(device_.Real(address, bytes)));
    });
    inner_ = inner.get();
    auto made = StagedCollective::Create(std::move(inner), device_, {.piece_bytes = kPieceBytes});
    EXPECT_TRUE(made.ok()) << made.status();
    collective_ = *std::move(made);
    std::promise<absl::Status> connected;
    collective_->Connect({"I am"}, kLimit,
                         [&](absl::Status status) { connected.set_value(status); });
    EXPECT_TRUE(connected.get_future().get().ok());
    std::iota(values_.begin(), values_.end(), 1.0f);
  }

  // Starts an all-reduce of all values into sums_.
  std::future<absl::Status> Begin(MonotonicDuration timeout = hours(1)) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    collective_->AllReduce(
        values_.data(), sums_.data(), values_.size(), CollectiveType::kFloat32, Reduction::kSum,
        timeout, [promise](absl::Status status) { promise->set_value(std::move(status)); });
    return promise->get_future();
  }
  static bool HasEnded(const std::future<absl::Status>& end) {
    return end.wait_for(seconds(0)) == std::future_status::ready;
  }
  // How many sums have arrived, from the start; checks that the rest is unchanged.
  size_t Summed() const {
    size_t summed = 0;
    while (summed < sums_.size() && sums_[summed] == 2 * values_[summed]) ++summed;
    for (size_t i = summed; i < sums_.size(); ++i) EXPECT_EQ(sums_[i], -1) << i;
    return summed;
  }

  RemoteMemoryDevice device_{RemoteMemoryDevice::Reads::kInTheCall};
  HeldCollective* inner_ = nullptr;
  std::unique_ptr<StagedCollective> collective_;
  // Five pieces; the last is short.
  std::vector<float> values_ = std::vector<float>(4 * kElementsOfAPiece + 7);
  std::vector<float> sums_ = std::vector<float>(values_.size(), -1);
};

TEST_F(StagedCollectiveTest, AtMostTwoPiecesAreInProgress) {
  std::future<absl::Status> end = Begin();
  for (size_t piece = 0; piece < 4; ++piece) {
    ASSERT_TRUE(inner_->AwaitCalls(2))
        << "the next piece waits for the one before: piece " << piece;
    EXPECT_EQ(Summed(), piece * kElementsOfAPiece);
    inner_->End(absl::OkStatus());
  }
  ASSERT_TRUE(inner_->AwaitCalls(1));
  EXPECT_FALSE(HasEnded(end));
  inner_->End(absl::OkStatus());
  EXPECT_TRUE(end.get().ok());
  EXPECT_EQ(Summed(), values_.size());
}

TEST_F(StagedCollectiveTest, AbortEndsAnOperationOnceInnerReleasesItsMemory) {
  std::future<absl::Status> end = Begin();
  ASSERT_TRUE(inner_->AwaitCalls(2));
  inner_->End(absl::OkStatus());
  ASSERT_TRUE(inner_->AwaitCalls(2));
  const absl::Status reason = absl::AbortedError("the group has ended");
  collective_->Abort(reason);
  ASSERT_TRUE(inner_->AwaitAbort());
  EXPECT_EQ(collective_->status(), reason);
  inner_->End(absl::CancelledError("aborted"));
  EXPECT_EQ(end.wait_for(milliseconds(20)), std::future_status::timeout)
      << "another piece is still in progress";
  inner_->End(absl::CancelledError("aborted"));
  EXPECT_EQ(end.get(), reason);
  EXPECT_EQ(Summed(), kElementsOfAPiece);
  EXPECT_EQ(Begin().get(), reason) << "the error stays";
  EXPECT_EQ(inner_->calls(), 0u);
}

TEST_F(StagedCollectiveTest, FailedPieceEndsTheOperationAndTheGroup) {
  std::future<absl::Status> end = Begin();
  ASSERT_TRUE(inner_->AwaitCalls(2));
  inner_->End(absl::OkStatus());
  ASSERT_TRUE(inner_->AwaitCalls(2));
  inner_->End(absl::UnavailableError("the connection broke"));
  ASSERT_TRUE(inner_->AwaitAbort());
  EXPECT_FALSE(HasEnded(end));
  inner_->End(absl::UnavailableError("the group is broken"));
  EXPECT_EQ(end.get(), absl::UnavailableError("the connection broke"));
  EXPECT_EQ(inner_->calls(), 0u) << "no later piece was started";
  EXPECT_EQ(Summed(), kElementsOfAPiece);
  EXPECT_EQ(collective_->status(), absl::UnavailableError("the connection broke"));
}

TEST_F(StagedCollectiveTest, DeadlineCoversAllPieces) {
  std::future<absl::Status> end = Begin(milliseconds(300));
  ASSERT_TRUE(inner_->AwaitCalls(2));
  EXPECT_LE(inner_->timeout_of_first(), milliseconds(300));
  inner_->End(absl::OkStatus());
  // The rest never arrives.
  ASSERT_TRUE(inner_->AwaitAbort());
  EXPECT_TRUE(absl::IsDeadlineExceeded(inner_->status())) << inner_->status();
  while (inner_->calls() > 0) inner_->End(inner_->status());
  EXPECT_TRUE(absl::IsDeadlineExceeded(end.get()));
}

// Inner sees the same pieces on all members, including those that use host memory.
TEST_F(StagedCollectiveTest, DeviceMemoryIsSummedInPlaceInTheSamePieces) {
  ASSERT_TRUE(collective_->TakesDeviceMemory());
  const size_t bytes = values_.size() * sizeof(float);
  float* const input = static_cast<float*>(*device_.Allocate(bytes));
  float* const output = static_cast<float*>(*device_.Allocate(bytes));
  const auto stream = *device_.CreateStream();
  stream->CopyToDevice(values_.data(), bytes, input);
  stream->CopyToDevice(sums_.data(), bytes, output);
  ASSERT_TRUE(stream->Synchronize().ok());
  auto promise = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> end = promise->get_future();
  collective_->AllReduceOnDevice(
      input, output, values_.size(), CollectiveType::kFloat32, Reduction::kSum, hours(1),
      [promise](absl::Status status) { promise->set_value(std::move(status)); });
  for (size_t piece = 0; piece < 5; ++piece) {
    ASSERT_TRUE(inner_->AwaitCalls(piece < 4 ? 2 : 1)) << piece;
    EXPECT_FALSE(HasEnded(end));
    inner_->End(absl::OkStatus());
  }
  EXPECT_TRUE(end.get().ok());
  stream->CopyToHost(output, bytes, sums_.data());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(Summed(), values_.size());
  device_.Free(input);
  device_.Free(output);
}

// Inner refuses unknown roots and reductions.
TEST_F(StagedCollectiveTest, EmptyOperationsReachInner) {
  std::promise<absl::Status> ended;
  collective_->AllReduce(nullptr, nullptr, 0, CollectiveType::kFloat32, Reduction::kSum, hours(1),
                         [&](absl::Status status) { ended.set_value(status); });
  ASSERT_TRUE(inner_->AwaitCalls(1));
  inner_->End(absl::InvalidArgumentError("there is no such reduction"));
  EXPECT_EQ(ended.get_future().get(), absl::InvalidArgumentError("there is no such reduction"));
}

TEST_F(StagedCollectiveTest, GroupBrokenForInnerIsBroken) {
  EXPECT_TRUE(collective_->status().ok());
  inner_->Abort(absl::UnavailableError("a member is gone"));
  EXPECT_EQ(collective_->status(), absl::UnavailableError("a member is gone"));
}

TEST_F(StagedCollectiveTest, IntroductionIsInners) {
  EXPECT_EQ(collective_->introduction(), "I am");
}

// A device with memory for a few allocations.
class SmallDevice final : public Device {
 public:
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    if (pieces_left == 0) return absl::ResourceExhaustedError("no more memory");
    --pieces_left;
    absl::StatusOr<void*> memory = inner_.Allocate(bytes);
    if (memory.ok()) allocated.insert(*memory);
    return memory;
  }
  void Free(void* data) override {
    allocated.erase(data);
    inner_.Free(data);
  }
  bool SharesHostMemory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override { return inner_.CreateStream(); }

  size_t pieces_left = 3;
  std::set<void*> allocated;

 private:
  RemoteMemoryDevice inner_{RemoteMemoryDevice::Reads::kLate};
};

TEST(StagedCollectiveCreateTest, DeviceWithoutEnoughMemoryIsRefused) {
  SmallDevice device;
  EXPECT_TRUE(absl::IsResourceExhausted(
      StagedCollective::Create(std::make_unique<HeldCollective>(nullptr), device, {}).status()));
  EXPECT_TRUE(device.allocated.empty());
  EXPECT_EQ(device.pieces_left, 0u);
}

TEST(StagedCollectiveCreateTest, MemoryOfAHangingDeviceIsNotFreed) {
  SmallDevice device;
  for (const bool hangs : {false, true}) {
    device.pieces_left = 4;
    auto inner = std::make_unique<HeldCollective>(nullptr);
    if (hangs) inner->SetHangs();
    {
      const auto collective =
          StagedCollective::Create(std::move(inner), device, {.piece_bytes = kPieceBytes});
      ASSERT_TRUE(collective.ok());
      // So that the owner of memory that it was given does not free that either.
      EXPECT_EQ((*collective)->hangs(), hangs);
    }
    EXPECT_EQ(device.allocated.size(), hangs ? 4u : 0u);
  }
  for (void* const memory : std::set<void*>(device.allocated)) device.Free(memory);
}

TEST(StagedCollectiveCreateTest, TooSmallPiecesAreRefused) {
  SmallDevice device;
  EXPECT_TRUE(
      absl::IsInvalidArgument(StagedCollective::Create(std::make_unique<HeldCollective>(nullptr),
                                                       device, {.piece_bytes = 7})
                                  .status()));
}

}  // namespace
}  // namespace pawl
