#include "server/storage/snapshot/partition_sink.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 4;
constexpr uint32_t kRanks = 2;
constexpr uint32_t kTable = 1;
constexpr uint32_t kWidth = 2;

PartitionOptions Options(ConsistencyMode mode) {
  return {.job_seed = 7,
          .partitions = kPartitions,
          .logical_workers = kRanks,
          .consistency = ConsistencyOf(mode)};
}

absl::Status Replay(PartitionSink& sink, const LogEntry& entry) {
  const auto bytes = std::make_shared<std::string>(entry.SerializeAsString());
  return sink.Replay(entry.partition(), entry.index(), ByteView(bytes->data(), bytes->size()),
                     bytes);
}

LogEntry TableEntry(uint32_t partition = 0) {
  LogEntry entry;
  entry.set_index(1);
  entry.set_partition(partition);
  *entry.mutable_table_created()->mutable_table() =
      WithSgd(SparseTableSpec("rows", kWidth, kTable));
  return entry;
}

LogEntry Second() {
  LogEntry entry;
  entry.set_index(2);
  return entry;
}

// One row of partition 0, without a sender.
LogEntry PushEntry(uint32_t table = kTable, uint32_t of_partition = 0) {
  uint64_t key = 0;
  while (PartitionOf(table, key, kPartitions) != of_partition) ++key;
  LogEntry entry = Second();
  PushSegment& segment = *entry.mutable_push()->add_segments();
  segment.set_table(table);
  segment.set_element_type(FLOAT32);
  segment.set_keys(std::string(reinterpret_cast<const char*>(&key), sizeof(key)));
  segment.set_values(std::string(kWidth * sizeof(float), '\0'));
  return entry;
}

// The error when that is the second change of a partition; "" if it is accepted.
std::string WhyRefused(const LogEntry& entry, ConsistencyMode mode = SYNC) {
  PartitionSink sink(Options(mode));
  const absl::Status created = Replay(sink, TableEntry());
  EXPECT_TRUE(created.ok()) << created;
  const absl::Status status = Replay(sink, entry);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

// No primary makes such a change; a damaged log or another job's may contain it, with good
// checksums.
TEST(PartitionSinkTest, StepWithoutALogicalWorkerIsRefused) {
  for (const uint32_t client : {0u, 1u, kRanks, kMaxClients - 1, kMaxClients, UINT32_MAX}) {
    LogEntry entry = Second();
    entry.mutable_end_step()->mutable_header()->set_client(client);
    EXPECT_TRUE(absl::StrContains(WhyRefused(entry), "LogEntry.end_step.header"))
        << client << WhyRefused(entry);
    entry.mutable_take_over()->mutable_header()->set_client(client);
    EXPECT_TRUE(absl::StrContains(WhyRefused(entry), "LogEntry.take_over.header"))
        << client << WhyRefused(entry);
  }
  LogEntry without_sender = Second();
  without_sender.mutable_end_step();
  EXPECT_TRUE(absl::StrContains(WhyRefused(without_sender), "LogEntry.end_step.header"))
      << WhyRefused(without_sender);
}

TEST(PartitionSinkTest, UnknownRankIsRefused) {
  for (const uint32_t rank : {kRanks, kMaxClients - 1, UINT32_MAX}) {
    const std::string why = absl::StrCat("logical worker ", rank, ": the job has 2");
    LogEntry entry = PushEntry();
    entry.mutable_push()->mutable_header()->set_logical_worker(rank);
    EXPECT_TRUE(absl::StrContains(WhyRefused(entry), why)) << WhyRefused(entry);
    entry = Second();
    entry.mutable_end_step()->mutable_header()->set_logical_worker(rank);
    EXPECT_TRUE(absl::StrContains(WhyRefused(entry), why)) << WhyRefused(entry);
    entry = Second();
    entry.mutable_take_over()->mutable_header()->set_logical_worker(rank);
    EXPECT_TRUE(absl::StrContains(WhyRefused(entry), why)) << WhyRefused(entry);
    entry = Second();
    entry.mutable_released()->set_logical_worker(rank);
    EXPECT_TRUE(absl::StrContains(WhyRefused(entry, ASYNC), why)) << WhyRefused(entry, ASYNC);
  }
}

TEST(PartitionSinkTest, UnknownClientTableOrPartitionIsRefused) {
  LogEntry good = PushEntry();
  good.mutable_push()->mutable_header()->set_client(kMaxClients - 1);
  EXPECT_EQ(WhyRefused(good), "");
  LogEntry entry = good;
  entry.mutable_push()->mutable_header()->set_client(kMaxClients);
  EXPECT_TRUE(absl::StrContains(WhyRefused(entry), "the largest number is 1023"))
      << WhyRefused(entry);
  entry = PushEntry(kTable + 1);
  EXPECT_TRUE(absl::StrContains(WhyRefused(entry), "there is no table with id 2"))
      << WhyRefused(entry);
  EXPECT_NE(WhyRefused(PushEntry(kTable, /*of_partition=*/1)), "") << "a key of another partition";
  PartitionSink sink(Options(SYNC));
  const absl::Status beyond = Replay(sink, TableEntry(kPartitions));
  EXPECT_EQ(beyond.code(), absl::StatusCode::kDataLoss) << beyond;
}

}  // namespace
}  // namespace pawl
