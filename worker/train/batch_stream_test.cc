#include "worker/train/batch_stream.h"

#include <atomic>
#include <future>
#include <set>

#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/no_more_threads.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

absl::Status Fill(uint64_t number, Batch* batch) {
  batch->samples = static_cast<uint32_t>(number);
  return absl::OkStatus();
}

TEST(BatchStreamTest, ReturnsAllBatchesInOrder) {
  BatchStream stream(3, 40, Fill);
  Interrupt interrupt;
  for (uint32_t number = 3; number < 40; ++number) {
    const auto batch = stream.Next(interrupt);
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ((*batch)->samples, number);
    stream.Release(*batch);
  }
}

TEST(BatchStreamTest, ReusesReleasedBatches) {
  BatchStream stream(0, 100, Fill);
  Interrupt interrupt;
  std::set<Batch*> seen;
  for (int i = 0; i < 100; ++i) {
    Batch* const batch = stream.Next(interrupt).value();
    seen.insert(batch);
    stream.Release(batch);
  }
  EXPECT_LE(seen.size(), BatchStream::kMaxBatches);
}

TEST(BatchStreamTest, NeverExceedsItsLimit) {
  std::atomic<int> made{0};
  BatchStream stream(0, 100, [&](uint64_t, Batch*) {
    ++made;
    return absl::OkStatus();
  });
  Interrupt interrupt;
  const size_t held = BatchStream::kMaxBatches;
  for (size_t i = 0; i < held; ++i) ASSERT_TRUE(stream.Next(interrupt).ok());
  EXPECT_EQ(made, static_cast<int>(held));
}

TEST(BatchStreamTest, ErrorFollowsTheBatchesBeforeIt) {
  BatchStream stream(0, 10, [](uint64_t number, Batch*) {
    return number < 2 ? absl::OkStatus() : absl::InvalidArgumentError("batch 2 is bad");
  });
  Interrupt interrupt;
  ASSERT_TRUE(stream.Next(interrupt).ok());
  ASSERT_TRUE(stream.Next(interrupt).ok());
  EXPECT_EQ(stream.Next(interrupt).status(), absl::InvalidArgumentError("batch 2 is bad"));
}

TEST(BatchStreamTest, StreamWithoutAThreadFails) {
  const NoMoreThreads none;
  BatchStream stream(0, 4, [](uint64_t, Batch*) { return absl::OkStatus(); });
  EXPECT_EQ(stream.Next(Interrupt()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(BatchStreamTest, InterruptEndsTheWait) {
  std::promise<void> go;
  BatchStream stream(0, 10, [&](uint64_t, Batch*) {
    go.get_future().wait();
    return absl::InternalError("not reached by the caller");
  });
  Interrupt interrupt;
  interrupt.Set(absl::CancelledError("SIGTERM"));
  EXPECT_EQ(stream.Next(interrupt).status(), absl::CancelledError("SIGTERM"));
  go.set_value();
}

TEST(BatchStreamTest, StreamHasEndedOnceTheBatchInProgressIsMade) {
  std::promise<void> begun, go;
  BatchStream stream(0, 10, [&](uint64_t, Batch*) {
    begun.set_value();
    go.get_future().wait();
    return absl::OkStatus();
  });
  begun.get_future().wait();
  stream.End();
  EXPECT_FALSE(stream.HasEnded());
  go.set_value();
  EXPECT_TRUE(Eventually([&] { return stream.HasEnded(); }));
}

TEST(BatchStreamTest, CanBeDestroyedBeforeItsEnd) {
  BatchStream stream(0, 1000000, Fill);
  Interrupt interrupt;
  ASSERT_TRUE(stream.Next(interrupt).ok());
}

}  // namespace
}  // namespace pawl
