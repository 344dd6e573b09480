// The write-ahead log: the first byte chooses whether the checksums are made right, the rest is the
// only segment. What is accepted is read the same again, also after the server has gone on writing;
// what is refused is left as it was.
#include <algorithm>
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

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr char kSegment[] = "/data/log/0000000001.log";

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// Makes a segment 1 of job 77 of any bytes, as far as they go: magics and checksums are put in.
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

// Takes what comes without a gap, as Recover promises it.
class Sink final : public RecoverySink {
 public:
  absl::Status LoadSnapshot(uint32_t, uint64_t, BlockFileReader&) override { std::abort(); }
  absl::Status Replay(uint32_t partition, uint64_t index, const ByteView& payload,
                      const std::shared_ptr<const void>& owner) override {
    auto& [last, crc] = partitions[partition];
    Check(index == last + 1, "no gap");
    Check(owner != nullptr, "an owner");
    last = index;
    for (const ByteView::Fragment& fragment : payload.fragments())
      crc = Crc32c(crc, fragment.data(), fragment.size());
    return absl::OkStatus();
  }

  std::map<uint32_t, std::pair<uint64_t, uint32_t>> partitions;
};

absl::StatusOr<RecoveredLog> RecoverInto(FaultEnv& env, Sink& sink) {
  SnapshotStore snapshots(env, "/data", kJobId);
  Check(snapshots.Open().ok(), "an empty folder of snapshots");
  return Recover("/data", snapshots, sink);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) Seal(bytes);
  FaultEnv env(1);
  Check(env.MakeFolder("/data").ok() && env.SyncFolder("/").ok(), "a folder");
  Check(env.MakeFolder("/data/log").ok() && env.SyncFolder("/data").ok(), "a folder in it");
  env.SetContents(kSegment, bytes);

  const auto segment = ReadLastSegment(env, "/data/log", kJobId, 1);
  if (segment.ok()) {
    Check(segment->end + segment->torn_bytes == bytes.size(),
          "the records and a tail are all of it");
    Check(segment->settled <= segment->end, "what was acknowledged is there");
    uint64_t at = kSegmentHeaderBytes;
    for (const LogRecord& record : segment->records) {
      Check(record.offset == at, "one after the other");
      at += RecordHeaderBytes(segment->header.version) + record.payload.size();
    }
    Check(at == segment->end, "the last one ends at the end");
    const auto closed = ReadClosedSegment(env, "/data/log", kJobId, 1, segment->end);
    Check(closed.ok() && closed->records.size() == segment->records.size(), "whole up to there");
  } else {
    Check(absl::IsDataLoss(segment.status()) || absl::IsFailedPrecondition(segment.status()),
          "a typed refusal");
  }

  Sink first;
  auto recovered = RecoverInto(env, first);
  if (!recovered.ok()) {
    Check(absl::IsDataLoss(recovered.status()) || absl::IsFailedPrecondition(recovered.status()),
          "a typed refusal");
    Check(env.Contents(kSegment) == bytes, "what is refused is left as it was");
    return 0;
  }
  Check(recovered->partitions.size() == first.partitions.size(),
        "what is told is what was replayed");
  Sink second;
  const auto again = RecoverInto(env, second);
  Check(again.ok() && second.partitions == first.partitions, "the same again");

  // What a server does next: it writes the unsettled again and goes on.
  LogWriter writer(env, {"/data/log", kJobId, true, 64u << 20}, std::move(recovered->end));
  std::vector<QueuedRecord> group = std::move(recovered->unsettled);
  auto& [last, crc] = first.partitions[3];
  if (last == UINT64_MAX) return 0;
  ++last;
  crc = Crc32c(crc, "next", 4);
  group.push_back({RecordType::kData, 3, last, 0, ByteView("next", 4), nullptr, std::nullopt, 0});
  Check(writer.WriteGroup(absl::MakeSpan(group)).ok(), "it can be written to");
  env.CutPower();
  env.RestorePower();
  Sink third;
  const auto later = RecoverInto(env, third);
  if (!later.ok()) std::fprintf(stderr, "%s\n", later.status().ToString().c_str());
  Check(later.ok(), "and recovered");
  Check(third.partitions == first.partitions, "with everything");
  return 0;
}

}  // namespace pawl
