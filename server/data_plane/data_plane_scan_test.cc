#include <algorithm>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"
#include "server/data_plane/data_plane.h"
#include "server/data_plane/testing/data_plane_fixture.h"

namespace pawl {
namespace {

class ScanTest : public DataPlaneTest {
 protected:
  ScanRequest Request(uint32_t partition, uint64_t first_key = 0) {
    ScanRequest request;
    request.mutable_header()->set_job_id(kJobId);
    request.mutable_header()->set_epoch(plane_->epoch());
    request.set_table(kTable);
    request.set_partition(partition);
    request.set_first_key(first_key);
    return request;
  }

  absl::Status StatusOf(const ScanRequest& request) {
    return (*Send(Method::kScan, request))->status;
  }

  ScanResponse Page(const ScanRequest& request) {
    const auto answer = Send(Method::kScan, request);
    EXPECT_TRUE((*answer)->status.ok()) << (*answer)->status;
    std::string bytes((*answer)->message.bytes.size(), '\0');
    (*answer)->message.bytes.CopyTo(bytes.data());
    ScanResponse page;
    EXPECT_TRUE(page.ParseFromString(bytes));
    return page;
  }

  static std::vector<uint64_t> Keys(const ScanResponse& page) {
    std::vector<uint64_t> keys(page.keys().size() / sizeof(uint64_t));
    std::copy_n(page.keys().data(), page.keys().size(), reinterpret_cast<char*>(keys.data()));
    return keys;
  }

  // Keys of one partition, ascending.
  static std::vector<uint64_t> KeysOf(uint32_t partition, size_t count) {
    std::vector<uint64_t> keys;
    for (uint64_t key = 0; keys.size() < count; ++key) {
      if (PartitionOf(kTable, key, kPartitions) == partition) keys.push_back(key);
    }
    return keys;
  }

  void PushRows(const std::vector<uint64_t>& keys) {
    for (const uint64_t key : keys)
      ASSERT_TRUE(Push(RowPush(ClientHeader(), key, {1, 2}, next_ordinal_++)).ok());
  }
};

TEST_F(ScanTest, PagesFollowEachOtherUntilDone) {
  Start(ASYNC, 1);
  const std::vector<uint64_t> keys = KeysOf(3, 5);
  PushRows({keys[4], keys[0], keys[3], keys[2], keys[1]});
  ScanRequest request = Request(3);
  request.set_max_rows(3);
  const ScanResponse first = Page(request);
  EXPECT_EQ(Keys(first), (std::vector<uint64_t>{keys[0], keys[1], keys[2]}));
  EXPECT_EQ(first.values().size(), 3 * kWidth * sizeof(float));
  EXPECT_FALSE(first.done());
  request.set_first_key(first.next_key());
  const ScanResponse second = Page(request);
  EXPECT_EQ(Keys(second), (std::vector<uint64_t>{keys[3], keys[4]}));
  EXPECT_TRUE(second.done());
  EXPECT_TRUE(Keys(Page(Request(2))).empty());
}

TEST_F(ScanTest, PageHasAtMostTheWantedAndThePossibleBytes) {
  Start(ASYNC, 1);
  PushRows(KeysOf(0, 4));
  ScanRequest request = Request(0);
  request.set_max_bytes(2 * (sizeof(uint64_t) + kWidth * sizeof(float)));
  EXPECT_EQ(Keys(Page(request)).size(), 2u);

  const uint32_t wide = 7;
  ASSERT_TRUE(Create(WithSgd(SparseTableSpec("wide", 4096, wide))).ok());
  uint64_t ordinal = 100;
  for (uint64_t key = 0, pushed = 0; pushed < 300; ++key) {
    if (PartitionOf(wide, key, kPartitions) != 0) continue;
    PushRequest push = RowPush(ClientHeader(), key, std::vector<float>(4096, 1), ordinal++);
    push.mutable_segments(0)->set_table(wide);
    push.mutable_segments(0)->set_partition(0);
    ASSERT_TRUE(Push(push).ok());
    ++pushed;
  }
  request = Request(0);
  request.set_table(wide);
  const ScanResponse page = Page(request);
  EXPECT_LE(page.keys().size() + page.values().size(), kMaxScanBytes);
  EXPECT_GT(page.values().size(), kMaxScanBytes / 2);
  EXPECT_FALSE(page.done());
}

TEST_F(ScanTest, MovedPartitionIsRefusedWithTheNewRouting) {
  Start(ASYNC, 1);
  PushRows(KeysOf(3, 2));
  plane_->AdoptRouting(Routing(2, 3));
  const absl::Status status = StatusOf(Request(3));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(status.GetPayload(kRoutingPayloadUrl).has_value());
}

TEST_F(ScanTest, ServerWithoutLeaseGivesNoRows) {
  Start(ASYNC, 1);
  PushRows(KeysOf(3, 2));
  EXPECT_TRUE(StatusOf(Request(3)).ok());
  has_started_ = false;
  plane_.reset();
  Start(ASYNC, 1);
  lease_until_ = clock_.LeaseNow();
  EXPECT_EQ(StatusOf(Request(3)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ScanTest, RequestsThatFitNoTableAreRefused) {
  Start(ASYNC, 1);
  CreateBlocks();
  ScanRequest request = Request(0);
  request.set_table(kBlocks);
  EXPECT_EQ(StatusOf(request).code(), absl::StatusCode::kInvalidArgument);
  request.set_table(99);
  EXPECT_EQ(StatusOf(request).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(StatusOf(Request(kPartitions)).code(), absl::StatusCode::kOutOfRange);
  request = Request(0);
  request.mutable_header()->set_job_id(kJobId + 1);
  EXPECT_FALSE(StatusOf(request).ok());
}

TEST_F(ScanTest, PagesCountAsBytesInFlight) {
  DataPlaneOptions options;
  options.max_bytes_in_flight = 64;
  Start(ASYNC, 1, options);
  PushRows(KeysOf(3, 1));
  const auto first = Send(Method::kScan, Request(3));
  ASSERT_TRUE((*first)->status.ok()) << (*first)->status;
  EXPECT_EQ(StatusOf(Request(3)).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pawl
