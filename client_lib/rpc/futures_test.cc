#include "client_lib/rpc/futures.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(FuturesTest, FutureIsReadyOnceTheCallbackHasRun) {
  std::future<absl::Status> future;
  absl::AnyInvocable<void(absl::Status)> done = Fulfilling(future);
  EXPECT_FALSE(IsReady(future));
  done(absl::AbortedError("superseded"));
  ASSERT_TRUE(IsReady(future));
  EXPECT_EQ(future.get(), absl::AbortedError("superseded"));
}

TEST(FuturesTest, MoveOnlyResultIsDelivered) {
  std::future<absl::StatusOr<std::unique_ptr<int>>> future;
  Fulfilling(future)(std::make_unique<int>(7));
  EXPECT_EQ(**future.get(), 7);
}

TEST(FuturesTest, IsReadyWorksForSharedFutures) {
  std::future<int> future;
  absl::AnyInvocable<void(int)> done = Fulfilling(future);
  const std::shared_future<int> shared = future.share();
  EXPECT_FALSE(IsReady(shared));
  done(7);
  EXPECT_TRUE(IsReady(shared));
}

TEST(FuturesTest, DroppedCallbackBreaksThePromise) {
  std::future<int> future;
  Fulfilling(future);
  ASSERT_TRUE(IsReady(future));
  EXPECT_THROW(future.get(), std::future_error);
}

}  // namespace
}  // namespace pawl
