// The write-ahead log. The first byte selects whether checksums are corrected; the rest is the only
// segment. An accepted log must read the same again, also after the server has written more. A
// refused log must be left unchanged.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/testing/fault_env.h"
#include "server/storage/recovery.h"
#include "server/storage/wal/log_format.h"
#include "server/storage/wal/log_reader.h"
#include "server/storage/wal/log_writer.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr char kSegment[] = "/data/log/0000000001.log";

// Turns any bytes into segment 1 of job 77: inserts magic numbers and checksums.
void Seal(std::string& bytes) {
  if (bytes.size() < kSegmentHeaderBytes) return;
  const char* in = bytes.data() + 28;
  SegmentHeader header{kJobId, 1, 0, 0};
  header.previous_segment = TakeNumber<uint64_t>(in) % 3;
  header.previous_bytes = TakeNumber<uint64_t>(in);
  bytes.replace(0, kSegmentHeaderBytes, EncodeSegmentHeader(header));
  for (uint64_t offset = kSegmentHeaderBytes; bytes.size() - offset >= kRecordHeaderBytes;) {
    in = bytes.data() + offset + 8;
    RecordHeader record;
    const uint64_t payload = offset + kRecordHeaderBytes;
    record.payload_bytes =
        static_cast<uint32_t>(TakeNumber<uint32_t>(in) % (bytes.size() - payload + 1));
    TakeNumber<uint32_t>(in);
    record.payload_crc = Crc32c(0, bytes.data() + payload, record.payload_bytes);
    record.settled = TakeNumber<uint32_t>(in);
    record.type = static_cast<RecordType>(TakeNumber<uint32_t>(in) % 5 + 1);
    record.partition = TakeNumber<uint32_t>(in) % 4;
    TakeNumber<uint32_t>(in);
    record.index = TakeNumber<uint64_t>(in);
    record.term = TakeNumber<uint64_t>(in);
    EncodeRecordHeader(kJobId, 1, offset, record, bytes.data() + offset);
    offset = payload + record.payload_bytes;
  }
}

// Accepts changes without a gap, as Recover promises.
class Sink final : public RecoverySink {
 public:
  absl::Status LoadSnapshot(uint32_t, uint64_t, BlockFileReader&) override { std::abort(); }
  absl::Status Replay(uint32_t partition, uint64_t index, const ByteView& payload,
                      const std::shared_ptr<const void>& owner) override {
    auto& [last, crc] = partitions[partition];
    FuzzCheck(index == last + 1, "no gap");
    FuzzCheck(owner != nullptr, "an owner");
    last = index;
    for (const ByteView::Fragment& fragment : payload.fragments())
      crc = Crc32c(crc, fragment.data(), fragment.size());
    return absl::OkStatus();
  }

  std::map<uint32_t, std::pair<uint64_t, uint32_t>> partitions;
};

absl::StatusOr<RecoveredLog> RecoverInto(FaultEnv& env, Sink& sink) {
  SnapshotStore snapshots(env, "/data", kJobId);
  FuzzCheck(snapshots.Open().ok(), "an empty snapshot folder opens");
  return Recover("/data", snapshots, sink);
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) Seal(bytes);
  FaultEnv env(1);
  FuzzCheck(env.MakeFolder("/data").ok() && env.SyncFolder("/").ok(), "a folder");
  FuzzCheck(env.MakeFolder("/data/log").ok() && env.SyncFolder("/data").ok(),
            "the log folder is created");
  env.SetContents(kSegment, bytes);

  const auto segment = ReadLastSegment(env, "/data/log", kJobId, 1);
  if (segment.ok()) {
    FuzzCheck(segment->end + segment->torn_bytes == bytes.size(),
              "records and tail cover the segment");
    FuzzCheck(segment->settled <= segment->end, "settled records are present");
    uint64_t at = kSegmentHeaderBytes;
    for (const LogRecord& record : segment->records) {
      FuzzCheck(record.offset == at, "records are contiguous");
      at += RecordHeaderBytes(segment->header.version) + record.payload.size();
    }
    FuzzCheck(at == segment->end, "the last record ends at the end");
    const auto closed = ReadClosedSegment(env, "/data/log", kJobId, 1, segment->end);
    FuzzCheck(closed.ok() && closed->records.size() == segment->records.size(),
              "the closed segment has all records");
  } else {
    FuzzCheck(IsRefusal(segment.status()), "the refusal has an expected code");
  }

  Sink first;
  auto recovered = RecoverInto(env, first);
  if (!recovered.ok()) {
    FuzzCheck(IsRefusal(recovered.status()), "the refusal has an expected code");
    FuzzCheck(env.Contents(kSegment) == bytes, "a refused segment is unchanged");
    return 0;
  }
  FuzzCheck(recovered->partitions.size() == first.partitions.size(),
            "the report matches the replay");
  Sink second;
  const auto again = RecoverInto(env, second);
  FuzzCheck(again.ok() && second.partitions == first.partitions, "the second read is equal");

  // The next steps of a server: it writes the unsettled records again and continues.
  LogWriter writer(env, {"/data/log", kJobId, true, 64u << 20}, std::move(recovered->end));
  std::vector<QueuedRecord> group = std::move(recovered->unsettled);
  auto& [last, crc] = first.partitions[3];
  if (last == UINT64_MAX) return 0;
  ++last;
  crc = Crc32c(crc, "next", 4);
  group.push_back({RecordType::kData, 3, last, 0, ByteView("next", 4), nullptr, std::nullopt, 0});
  FuzzCheck(writer.WriteGroup(absl::MakeSpan(group)).ok(), "the log can be written");
  env.CutPower();
  env.RestorePower();
  Sink third;
  const auto later = RecoverInto(env, third);
  if (!later.ok()) std::fprintf(stderr, "%s\n", later.status().ToString().c_str());
  FuzzCheck(later.ok(), "and recovered");
  FuzzCheck(third.partitions == first.partitions, "with everything");
  return 0;
}

}  // namespace pawl
