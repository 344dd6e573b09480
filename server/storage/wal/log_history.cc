#include "server/storage/wal/log_history.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/storage/snapshot/partition_sink.h"

namespace pawl {
namespace {

absl::Status NotReached(uint32_t partition, uint64_t index) {
  return absl::NotFoundError(
      absl::StrCat("the log does not reach back to record ", index, " of partition ", partition));
}

// Appends the entries that `wanted` has room for.
void Take(absl::Span<const LogRecord> records, WantedEntries& wanted) {
  size_t count = 0;
  size_t bytes = 0;
  for (const LogRecord& record : records) {
    const uint64_t next = wanted.next + count;
    if (record.index < next) {
      records.remove_prefix(1);
      continue;
    }
    const bool fits = wanted.entries.size() + count == 0 ||
                      wanted.bytes + bytes + record.payload.size() <= wanted.max_bytes;
    if (record.index > next || next > wanted.last || !fits) {
      wanted.ended = true;
      break;
    }
    ++count;
    bytes += record.payload.size();
  }
  // One allocation, so that the segment's memory can be freed.
  const auto memory = std::make_shared_for_overwrite<char[]>(bytes);
  char* out = memory.get();
  for (const LogRecord& record : records.first(count)) {
    wanted.entries.push_back(
        {record.index, record.term, ByteView(out, record.payload.size()), memory});
    out += record.payload.copy(out, record.payload.size());
  }
  wanted.next += count;
  wanted.bytes += bytes;
}

}  // namespace

void LogHistory::ReadEntries(absl::Span<WantedEntries> wanted,
                             std::optional<LogSegment>& segment) const {
  for (const SegmentUse& use : segments_) {
    for (WantedEntries& entries : wanted) {
      const auto last = use.last_index.find(entries.partition);
      if (entries.ended || entries.next > entries.last || last == use.last_index.end() ||
          last->second < entries.next) {
        continue;
      }
      // The last segment may have grown.
      if (!segment.has_value() || segment->header.segment != use.segment ||
          segment->end != use.bytes) {
        segment.reset();
        absl::StatusOr<LogSegment> read = ReadClosedSegment(
            snapshots_.env(), log_folder_, snapshots_.job_id(), use.segment, use.bytes);
        if (!read.ok()) {
          entries.Fail(read.status());
          continue;
        }
        segment = *std::move(read);
      }
      Take(LiveRecords(*segment, entries.partition, last->second), entries);
    }
  }
  for (WantedEntries& entries : wanted) {
    if (entries.status.ok() && entries.entries.empty())
      entries.Fail(NotReached(entries.partition, entries.next));
  }
}

absl::StatusOr<std::unique_ptr<Partition>> LogHistory::ReadBack(
    uint32_t partition, uint64_t index, const PartitionOptions& options,
    std::function<bool()> should_continue) const {
  if (index == 0) return std::make_unique<Partition>(partition, options);
  PartitionSink sink(options, should_continue);
  uint64_t reached = 0;
  const std::vector<SnapshotStore::Snapshot> snapshots = snapshots_.List();
  for (auto it = snapshots.rbegin(); it != snapshots.rend() && reached == 0; ++it) {
    if (it->partition != partition || it->index > index) continue;
    const absl::StatusOr<std::unique_ptr<BlockFileReader>> reader = snapshots_.OpenToRead(*it);
    const absl::Status status =
        reader.ok() ? sink.LoadSnapshot(partition, it->index, **reader) : reader.status();
    // If a snapshot is damaged, the previous one may do.
    if (!status.ok() && !absl::IsDataLoss(status) && !absl::IsNotFound(status)) return status;
    if (status.ok()) reached = it->index;
  }
  for (const SegmentUse& use : segments_) {
    const auto last = use.last_index.find(partition);
    if (reached == index || last == use.last_index.end() || last->second <= reached) continue;
    if (!should_continue()) return absl::CancelledError("reading the log back was interrupted");
    PAWL_ASSIGN_OR_RETURN(const LogSegment segment,
                          ReadClosedSegment(snapshots_.env(), log_folder_, snapshots_.job_id(),
                                            use.segment, use.bytes));
    for (const LogRecord& record : LiveRecords(segment, partition, last->second)) {
      if (record.index <= reached || record.index > index) continue;
      if (record.index != reached + 1) return NotReached(partition, reached + 1);
      const ByteView payload(record.payload.data(), record.payload.size());
      PAWL_RETURN_IF_ERROR(sink.Replay(partition, record.index, payload, segment.bytes));
      reached = record.index;
    }
  }
  if (reached != index) return NotReached(partition, reached + 1);
  std::vector<std::unique_ptr<Partition>> partitions = sink.TakePartitions();
  return std::move(partitions.front());
}

}  // namespace pawl
