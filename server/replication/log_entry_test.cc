#include "server/replication/log_entry.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/base/elements.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "server/replication/change.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

std::string Bytes(const ByteView& view) {
  std::string bytes(view.size(), '\0');
  view.CopyTo(bytes.data());
  return bytes;
}

ChangeView Push(const std::string& keys, const std::string& values) {
  ChangeView change;
  change.index = 300;
  change.partition = 7;
  change.sender = {Sender::Kind::kLogicalWorker, 2, 11, 5};
  SegmentView& segment = change.segment;
  segment.table = 3;
  segment.partition = 7;
  segment.ordinal = 9;
  segment.element_type = FLOAT32;
  segment.keys.Append(keys.data(), keys.size());
  segment.values.Append(values.data(), values.size());
  return change;
}

TEST(LogEntryTest, EncodedPushEqualsProtobufs) {
  const std::string keys(8 * 100, 'k');
  const std::string values(4 * 1600, 'v');
  const ChangeView change = Push(keys, values);
  const OutgoingMessage message = EncodeLogEntry(change, nullptr);
  LogEntry entry;
  ASSERT_TRUE(entry.ParseFromString(Bytes(message.bytes)));
  EXPECT_EQ(entry.index(), 300);
  EXPECT_EQ(entry.partition(), 7);
  ASSERT_TRUE(entry.has_push());
  ASSERT_EQ(entry.push().segments_size(), 1);
  EXPECT_EQ(entry.push().segments(0).keys(), keys);
  EXPECT_EQ(entry.push().segments(0).values(), values);
  EXPECT_EQ(entry.SerializeAsString(), Bytes(message.bytes));
}

TEST(LogEntryTest, EveryChangeIsDecodedAsEncoded) {
  const std::string keys(8, 'k');
  const std::string values(16, 'v');
  std::vector<ChangeView> changes;
  changes.push_back(Push(keys, values));
  changes.push_back(Push(keys, values));
  changes.back().segment.effect = ASSIGN_WITH_SLOTS;
  changes.back().segment.slots = ByteView(values.data(), 12);
  for (const auto kind : {ChangeView::Kind::kEndStep, ChangeView::Kind::kTakeOver,
                          ChangeView::Kind::kTableCreated, ChangeView::Kind::kBestKept,
                          ChangeView::Kind::kBestRestored, ChangeView::Kind::kReleased}) {
    ChangeView change;
    change.kind = kind;
    change.index = 1;
    if (kind == ChangeView::Kind::kEndStep || kind == ChangeView::Kind::kTakeOver ||
        kind == ChangeView::Kind::kReleased) {
      change.sender = {Sender::Kind::kLogicalWorker, 0, 4};
    }
    if (kind == ChangeView::Kind::kEndStep) change.segments = 12;
    if (kind == ChangeView::Kind::kTableCreated) change.table.set_name("t");
    if (kind == ChangeView::Kind::kBestKept) change.step = 3;
    changes.push_back(change);
  }
  changes.push_back(changes[2]);
  ASSERT_EQ(changes.back().kind, ChangeView::Kind::kEndStep);
  changes.back().segments.reset();
  changes.back().close_scale = 0.25f;
  for (const ChangeView& change : changes) {
    const OutgoingMessage message = EncodeLogEntry(change, nullptr);
    const auto back = DecodeLogEntry(message.bytes);
    ASSERT_TRUE(back.ok()) << static_cast<int>(change.kind) << " " << back.status();
    EXPECT_EQ(back->kind, change.kind);
    EXPECT_EQ(back->index, change.index);
    EXPECT_EQ(back->partition, change.partition);
    EXPECT_EQ(back->sender, change.sender);
    EXPECT_EQ(back->segments, change.segments);
    EXPECT_EQ(back->close_scale, change.close_scale);
    EXPECT_EQ(back->table.name(), change.table.name());
    EXPECT_EQ(back->step, change.step);
    EXPECT_EQ(Bytes(back->segment.values), Bytes(change.segment.values));
    EXPECT_EQ(back->segment.effect, change.segment.effect);
    EXPECT_EQ(Bytes(back->segment.slots), Bytes(change.segment.slots));
  }
}

TEST(LogEntryTest, DamagedEntriesAreRefused) {
  const std::string keys(8, 'k');
  const std::string values(64, 'v');
  const std::string bytes = Bytes(EncodeLogEntry(Push(keys, values), nullptr).bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string truncated = bytes.substr(0, size);
    EXPECT_FALSE(DecodeLogEntry(ByteView(truncated.data(), truncated.size())).ok()) << size;
  }
  const std::string twice = bytes + bytes;
  EXPECT_FALSE(DecodeLogEntry(ByteView(twice.data(), twice.size())).ok());
}

TEST(LogEntryTest, RequestCarriesEntriesInOrder) {
  const std::string keys(8 * 64, 'k');
  const std::string values(4096, 'v');
  ChangeView change = Push(keys, values);
  std::vector<OutgoingMessage> messages;
  std::vector<ByteView> entries;
  for (int i = 0; i < 3; ++i) {
    ++change.index;
    messages.push_back(EncodeLogEntry(change, nullptr));
    entries.push_back(messages.back().bytes);
  }
  ReplicationHeader header;
  header.set_epoch(4);
  header.set_node("server-1");
  const OutgoingMessage message = EncodeReplicateRequest(header, entries, {7, 300}, nullptr);
  ReplicateRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(Bytes(message.bytes)));
  EXPECT_EQ(parsed.entries(2).index(), 303);
  const auto back = DecodeReplicateRequest(message.bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->header.node(), "server-1");
  EXPECT_EQ(parsed.asks_position(1), 300u);
  EXPECT_EQ(back->asks_position, (std::vector<uint32_t>{7, 300}));
  ASSERT_EQ(back->entries.size(), 3);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(DecodeLogEntry(back->entries[i])->index, 301 + i);
}

TEST(InstallSnapshotRequestTest, PieceIsEncodedAsByProtobufAndReadInPlace) {
  InstallSnapshotRequest request;
  request.mutable_header()->set_node("server-1");
  request.set_partition(3);
  request.set_offset(1 << 20);
  request.set_crc32c(7);
  request.set_log_term(5);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100000}}) {
    const std::string piece(size, 'x');
    const OutgoingMessage message =
        EncodeInstallSnapshotRequest(request, ByteView(piece.data(), size), nullptr);
    const std::string bytes = Bytes(message.bytes);
    InstallSnapshotRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    EXPECT_EQ(parsed.data(), piece);
    parsed.clear_data();
    EXPECT_EQ(parsed.SerializeAsString(), request.SerializeAsString());

    // As protobuf writes it, in two fragments.
    parsed.set_data(piece);
    const std::string written = parsed.SerializeAsString();
    ByteView received(written.data(), written.size() / 2);
    received.Append(written.data() + written.size() / 2, written.size() - written.size() / 2);
    InstallSnapshotRequest decoded;
    ByteView data;
    ASSERT_TRUE(DecodeInstallSnapshotRequest(received, decoded, data).ok());
    EXPECT_EQ(Bytes(data), piece);
    EXPECT_EQ(decoded.SerializeAsString(), request.SerializeAsString());
  }
}

TEST(InstallSnapshotRequestTest, DamagedPieceIsRefused) {
  InstallSnapshotRequest request;
  request.set_data("piece");
  request.set_partition(1 << 20);
  const std::string bytes = request.SerializeAsString();
  const auto decode = [](const std::string& message) {
    InstallSnapshotRequest decoded;
    ByteView data;
    return DecodeInstallSnapshotRequest(ByteView(message.data(), message.size()), decoded, data);
  };
  ASSERT_TRUE(decode(bytes).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(decode(bytes.substr(0, bytes.size() - 1))));
  EXPECT_TRUE(absl::IsInvalidArgument(decode(bytes.substr(0, 2))));
  EXPECT_TRUE(absl::IsInvalidArgument(decode(bytes + bytes))) << "two pieces";
  std::string fields;
  for (int i = 0; i < 100'000; ++i) fields += "\x10\x01";
  EXPECT_TRUE(absl::IsInvalidArgument(decode(fields))) << "one field again and again";
}

TEST(ChangeTest, LoggedGradientMustBeFloat32) {
  Partition partition(0, {.partitions = 1, .consistency = ConsistencyOf(ASYNC)});
  const TableSpec spec = WithSgd(SparseTableSpec("rows", 2, 1));
  ASSERT_TRUE(partition.CreateTable(TableSchema::Create(spec, 1).value()).ok());
  const uint64_t index = partition.log_index();

  const uint64_t key = 3;
  const float values[] = {1, 2};
  for (const ElementType type : {BFLOAT16, FLOAT16, FLOAT32}) {
    for (const int32_t exponent : {0, 1}) {
      uint16_t halves[4];
      EncodeElements(type, values, 2, halves);
      ChangeView change;
      change.kind = ChangeView::Kind::kPush;
      change.index = index + 1;
      change.sender = {Sender::Kind::kClient, 0, 1};
      change.segment.table = 1;
      change.segment.element_type = type;
      change.segment.keys = ByteView(&key, sizeof(key));
      change.segment.values = ByteView(halves, 2 * ElementBytes(type));
      change.segment.exponent = exponent;
      const absl::Status status = ApplyChange(change, nullptr, nullptr, partition);
      const bool is_right = type == FLOAT32 && exponent == 0;
      EXPECT_EQ(status.code(), is_right ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss)
          << status;
      EXPECT_EQ(partition.log_index(), index + is_right);
      EXPECT_EQ(partition.row_count(), is_right ? 1u : 0u);
      if (is_right) return;
    }
  }
}

TEST(ChangeTest, LoggedAssignmentAndRatesApplyLikeTheOriginals) {
  const auto make = [] {
    Partition partition(0, {.partitions = 1, .consistency = ConsistencyOf(ASYNC)});
    TableSpec spec = SparseTableSpec("rows", 2, 1);
    spec.mutable_optimizer()->mutable_momentum()->set_learning_rate(1);
    EXPECT_TRUE(partition.CreateTable(TableSchema::Create(spec, 1).value()).ok());
    return partition;
  };
  Partition primary = make();
  Partition backup = make();
  const uint64_t key = 3;
  const float values[] = {1, 2};
  const float slots[] = {3, 4};
  ChangeView change;
  change.kind = ChangeView::Kind::kPush;
  change.index = primary.log_index() + 1;
  change.sender = {Sender::Kind::kLogicalWorker, 0, 1};
  change.segment = {.table = 1,
                    .element_type = FLOAT32,
                    .keys = ByteView(&key, sizeof(key)),
                    .values = ByteView(values, sizeof(values)),
                    .effect = ASSIGN_WITH_SLOTS,
                    .slots = ByteView(slots, sizeof(slots))};
  const auto replay = [&] {
    const OutgoingMessage logged = EncodeLogEntry(change, nullptr);
    const auto decoded = DecodeLogEntry(logged.bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    const absl::Status applied = ApplyChange(*decoded, nullptr, nullptr, backup);
    ASSERT_TRUE(applied.ok()) << applied;
    EXPECT_EQ(Fingerprint(backup), Fingerprint(primary));
  };
  ASSERT_TRUE(primary.Assign(change.sender, 0, 1, AssignmentOf(change.segment).value()).ok());
  replay();
  const uint64_t table = 1;
  const float rate = 0.5f;
  ++change.index;
  SegmentView rates;
  rates.ordinal = 1;
  rates.element_type = FLOAT32;
  rates.keys.Append(&table, sizeof(table));
  rates.values.Append(&rate, sizeof(rate));
  rates.effect = SET_LEARNING_RATES;
  change.segment = rates;
  ASSERT_TRUE(
      primary.SetLearningRates(change.sender, 1, LearningRatesOf(change.segment).value()).ok());
  replay();
  // A replica refuses what no primary accepts.
  ++change.index;
  change.segment.ordinal = 2;
  change.segment.effect = static_cast<PushEffect>(9);
  EXPECT_EQ(ApplyChange(change, nullptr, nullptr, backup).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Fingerprint(backup), Fingerprint(primary));
}

}  // namespace
}  // namespace pawl
