#include "server/storage/recovery.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/storage/wal/log_format.h"
#include "server/storage/wal/log_reader.h"

namespace pawl {
namespace {

// Consecutive records.
struct RecordRun {
  uint64_t first = 0;
  uint64_t last = 0;
  // Where the first record is.
  std::string path;
  uint64_t offset = 0;
};

// A reset and its packed position.
struct PlacedReset {
  uint64_t position = 0;
  LogReset reset;
};

// What the log says of a partition.
struct PartitionLog {
  std::vector<RecordRun> runs;
  // The settled resets, in order.
  std::vector<PlacedReset> resets;
  // There is an unsettled reset. Nothing that depends on it was reported, so it does not count, and
  // neither do the records after it.
  bool ignored = false;
  // The index claimed by the newest kReached record, and the file with the claim.
  uint64_t claimed = 0;
  std::string claimed_by;
  // The index of the snapshot that is recovered.
  uint64_t snapshot_index = 0;

  void Reset(const PlacedReset& placed) {
    resets.push_back(placed);
    const LogReset& reset = placed.reset;
    while (!runs.empty() && reset.Voids(runs.back().first)) runs.pop_back();
    if (!runs.empty()) runs.back().last = std::min(runs.back().last, reset.index);
  }
  bool VoidsRecord(uint64_t position, uint64_t index) const {
    return std::any_of(resets.begin(), resets.end(), [&](const PlacedReset& placed) {
      return position < placed.position && placed.reset.Voids(index);
    });
  }
  // A snapshot that was stored to replace the log is valid once a reset names its mark; any other
  // is valid at once.
  bool VoidsSnapshot(const SnapshotStore::Snapshot& snapshot, uint64_t mark) const {
    bool counts = !snapshot.stored_mark.has_value();
    for (const auto& [position, reset] : resets) {
      if (mark > position) continue;
      if (reset.mark == mark && reset.index == snapshot.index) {
        counts = true;
      } else if (reset.Voids(snapshot.index)) {
        counts = false;
      }
    }
    return !counts;
  }
};

class Recovery {
 public:
  Recovery(const std::string& data_folder, SnapshotStore& snapshots, RecoverySink& sink)
      : env_(snapshots.env()),
        data_folder_(data_folder),
        log_folder_(JoinPath(data_folder, kLogFolder)),
        snapshots_(snapshots),
        sink_(sink) {}

  absl::StatusOr<RecoveredLog> Run() {
    PAWL_RETURN_IF_ERROR(env_.MakeFolder(log_folder_));
    PAWL_RETURN_IF_ERROR(env_.SyncFolder(data_folder_));
    PAWL_RETURN_IF_ERROR(FindSegments());
    PAWL_RETURN_IF_ERROR(ScanSegments());
    PAWL_RETURN_IF_ERROR(ChooseSnapshots());
    // A failed write or sync is not data loss.
    if (absl::Status status = CleanUp(); !status.ok())
      return absl::IsDataLoss(status) ? absl::UnavailableError(status.message()) : status;
    PAWL_RETURN_IF_ERROR(Load());
    PAWL_RETURN_IF_ERROR(Replay());
    return std::move(result_);
  }

 private:
  // A segment of the chain.
  struct ChainLink {
    SegmentHeader header;
    // How many of its bytes count, by the next segment's header; nullopt for the last segment.
    std::optional<uint64_t> bytes;
  };

  std::string PathOf(uint64_t segment) const {
    return JoinPath(log_folder_, SegmentFileName(segment));
  }

  // Follows the chain from the newest segment back, as each names the previous one. Segments
  // outside the chain do not count.
  absl::Status FindSegments() {
    PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.List(log_folder_));
    std::vector<uint64_t> found;
    for (const std::string& name : names) {
      if (const std::optional<uint64_t> segment = ParseSegmentFileName(name)) {
        found.push_back(*segment);
      } else if (absl::EndsWith(name, ".tmp")) {
        void_files_.push_back(JoinPath(log_folder_, name));
      }
    }
    if (found.empty()) return absl::OkStatus();
    std::optional<uint64_t> bytes;
    for (uint64_t segment = found.back(); segment != 0;) {
      PAWL_ASSIGN_OR_RETURN(const SegmentHeader header,
                            ReadSegmentHeader(env_, log_folder_, snapshots_.job_id(), segment));
      chain_.push_back({header, bytes});
      if (header.previous_segment >= segment) {
        return absl::DataLossError(absl::StrCat(PathOf(segment),
                                                " is damaged at offset 0: it names segment ",
                                                header.previous_segment, " as the previous one"));
      }
      if (!std::binary_search(found.begin(), found.end(), header.previous_segment)) break;
      segment = header.previous_segment;
      bytes = header.previous_bytes;
    }
    std::reverse(chain_.begin(), chain_.end());
    absl::flat_hash_set<uint64_t> in_chain;
    for (const ChainLink& link : chain_) in_chain.insert(link.header.segment);
    for (const uint64_t segment : found) {
      if (in_chain.contains(segment)) continue;
      void_files_.push_back(PathOf(segment));
      // Numbers grow: this one was abandoned when the first or a later one of the chain took its
      // place.
      const SegmentHeader& first = chain_.front().header;
      if (segment > first.previous_segment) continue;
      // Segments are deleted from the front. So this one was abandoned while it was empty, or a
      // later one is missing.
      PAWL_ASSIGN_OR_RETURN(const LogSegment contents,
                            ReadLastSegment(env_, log_folder_, snapshots_.job_id(), segment));
      for (const LogRecord& record : contents.records) {
        if (record.type != RecordType::kData) continue;
        return absl::DataLossError(absl::StrCat(
            PathOf(first.previous_segment), " is missing: ", PathOf(first.segment),
            " follows it at offset 0, and ", PathOf(segment), ", an older one, still exists"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<LogSegment> Read(const ChainLink& link) const {
    const uint64_t segment = link.header.segment;
    return link.bytes.has_value()
               ? ReadClosedSegment(env_, log_folder_, snapshots_.job_id(), segment, *link.bytes)
               : ReadLastSegment(env_, log_folder_, snapshots_.job_id(), segment);
  }

  absl::Status CheckContinues() const {
    return sink_.ShouldContinue() ? absl::OkStatus()
                                  : absl::CancelledError("the recovery was interrupted");
  }

  absl::Status ScanSegments() {
    for (const ChainLink& link : chain_) {
      PAWL_RETURN_IF_ERROR(CheckContinues());
      PAWL_ASSIGN_OR_RETURN(const LogSegment segment, Read(link));
      result_.segments.push_back({segment.header.segment, segment.settled, {}, false});
      for (const LogRecord& record : segment.records) PAWL_RETURN_IF_ERROR(Scan(segment, record));
      if (link.bytes.has_value()) continue;
      result_.end.segment = segment.header.segment;
      result_.end.settled = segment.settled;
      result_.end.next_segment = segment.header.segment + 1;
      last_end_ = segment.end;
      if (segment.torn_bytes > 0) {
        result_.notes.push_back(absl::StrCat(segment.path, ": truncated ", segment.torn_bytes,
                                             " bytes at offset ", segment.end,
                                             ", an incomplete record that was never acknowledged"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Scan(const LogSegment& segment, const LogRecord& record) {
    const bool settled = record.offset < segment.settled;
    switch (record.type) {
      case RecordType::kData: {
        if (record.index == 0) {
          return absl::DataLossError(absl::StrCat(
              segment.path, " is damaged at offset ", record.offset, ": a record of partition ",
              record.partition, " has index 0; indices start at 1"));
        }
        PartitionLog& log = logs_[record.partition];
        if (log.ignored) return absl::OkStatus();
        if (!log.runs.empty() && record.index == log.runs.back().last + 1) {
          log.runs.back().last = record.index;
        } else if (!log.runs.empty() && record.index <= log.runs.back().last) {
          return absl::DataLossError(absl::StrCat(
              segment.path, " is damaged at offset ", record.offset, ": record ", record.index,
              " of partition ", record.partition, " follows record ", log.runs.back().last));
        } else {
          log.runs.push_back({record.index, record.index, segment.path, record.offset});
        }
        if (settled) {
          result_.segments.back().last_index[record.partition] = record.index;
          result_.end.reached[record.partition] = record.index;
        }
        return absl::OkStatus();
      }
      case RecordType::kDrop:
      case RecordType::kTruncate: {
        PartitionLog& log = logs_[record.partition];
        if (log.ignored) return absl::OkStatus();
        const std::optional<LogReset> reset =
            DecodeReset(record.type, record.index, record.payload);
        if (!reset.has_value()) {
          return absl::DataLossError(absl::StrCat(segment.path, " is damaged at offset ",
                                                  record.offset, ": a reset has a payload of ",
                                                  record.payload.size(), " bytes"));
        }
        if (!settled) {
          log.ignored = true;
          return absl::OkStatus();
        }
        log.Reset({LogPosition{segment.header.segment, record.offset}.Pack(), *reset});
        log.claimed = reset->index;
        log.claimed_by = segment.path;
        for (SegmentUse& use : result_.segments) use.Reset(record.partition, *reset);
        result_.end.reached.erase(record.partition);
        if (reset->index > 0) {
          result_.segments.back().last_index[record.partition] = reset->index;
          result_.end.reached[record.partition] = reset->index;
        }
        return absl::OkStatus();
      }
      case RecordType::kReached: {
        const std::optional<ReachedIndices> reached = DecodeReached(record.payload);
        if (!reached.has_value()) {
          return absl::DataLossError(absl::StrCat(segment.path, " is damaged at offset ",
                                                  record.offset, ": a list of reached indices has ",
                                                  record.payload.size(), " bytes"));
        }
        for (const auto& [partition, index] : *reached) {
          logs_[partition].claimed = index;
          logs_[partition].claimed_by = segment.path;
          result_.end.reached[partition] = index;
        }
        return absl::OkStatus();
      }
      case RecordType::kSettled:
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status ChooseSnapshots() {
    absl::btree_map<uint32_t, std::vector<SnapshotStore::Snapshot>> candidates;
    for (SnapshotStore::Snapshot& snapshot : snapshots_.ListAll()) {
      logs_[snapshot.partition];
      candidates[snapshot.partition].push_back(std::move(snapshot));
    }
    for (auto& [partition, log] : logs_) {
      PAWL_RETURN_IF_ERROR(CheckContinues());
      PAWL_RETURN_IF_ERROR(ChooseSnapshot(partition, log, candidates[partition]));
    }
    return absl::OkStatus();
  }

  absl::Status ChooseSnapshot(uint32_t partition, PartitionLog& log,
                              const std::vector<SnapshotStore::Snapshot>& candidates) {
    uint64_t newest =
        0;  // Of all snapshots, damaged ones too: the partition was once at this index.
    std::string damage;
    std::vector<uint64_t> whole;
    // A stored snapshot that replaces the log; it takes precedence over another one of the same
    // index.
    std::optional<SnapshotStore::Snapshot> replacement;
    bool replacement_is_damaged = false;
    for (auto it = candidates.rbegin(); it != candidates.rend(); ++it) {
      PAWL_ASSIGN_OR_RETURN(const Check check, CheckSnapshot(*it, log, whole.empty()));
      // If the stored one is damaged, another one of its index is valid if it was started later,
      // after the reset.
      const bool is_replaced = replacement.has_value() && it->index == replacement->index &&
                               !(replacement_is_damaged && check.mark > replacement->stored_mark);
      if (check.is_void || is_replaced) {
        void_snapshots_.push_back(*it);
        continue;
      }
      if (it->stored_mark.has_value()) {
        replacement = *it;
        replacement_is_damaged = !check.damage.ok();
        if (check.damage.ok()) adopted_.push_back(*it);
      }
      newest = std::max(newest, it->index);
      // A segment's name is durable before a snapshot marks it, and the newest one is never
      // deleted.
      if (check.segment > result_.end.segment) {
        return absl::DataLossError(absl::StrCat(PathOf(check.segment), " is missing: ", it->path,
                                                " was started while it was written"));
      }
      if (check.damage.ok()) {
        if (whole.empty()) chosen_[partition] = it->index;
        whole.push_back(it->index);
      } else {
        damage = absl::StrCat("; ", check.damage.message());
        result_.notes.push_back(
            absl::StrCat("skipped and deleted a snapshot: ", check.damage.message()));
        void_snapshots_.push_back(*it);
      }
    }
    if (log.runs.empty() && newest == 0 && log.claimed == 0) return absl::OkStatus();

    log.snapshot_index = whole.empty() ? 0 : whole.front();
    uint64_t reached = log.snapshot_index;
    for (const RecordRun& run : log.runs) {
      if (run.last <= reached) continue;
      if (run.first > reached + 1) {
        return absl::DataLossError(absl::StrCat(
            run.path, " at offset ", run.offset, ": record ", run.first, " of partition ",
            partition, " follows ", reached, "; the records between are missing", damage));
      }
      reached = run.last;
    }
    if (reached < newest || reached < log.claimed) {
      return absl::DataLossError(absl::StrCat(
          "partition ", partition, " is found only up to record ", reached, " but was once at ",
          std::max(newest, log.claimed), ", according to ",
          newest > log.claimed ? "a snapshot"
                               : absl::StrCat(log.claimed_by, " at offset ", kSegmentHeaderBytes),
          "; a file is missing or damaged", damage));
    }
    result_.partitions.push_back({partition, log.snapshot_index, reached});
    if (whole.size() >= kSnapshotsKept) result_.released[partition] = whole.back();
    return absl::OkStatus();
  }

  struct Check {
    bool is_void = false;
    // Nullopt if its header cannot be read.
    std::optional<uint64_t> mark;
    // The segment at which the log was when the snapshot was started.
    uint64_t segment = 0;
    absl::Status damage;
  };

  // Reads the whole snapshot if `fully`.
  absl::StatusOr<Check> CheckSnapshot(const SnapshotStore::Snapshot& snapshot,
                                      const PartitionLog& log, bool fully) const {
    Check check;
    absl::StatusOr<std::unique_ptr<BlockFileReader>> reader = snapshots_.OpenToRead(snapshot);
    check.damage = reader.status();
    std::optional<uint64_t> mark = snapshot.stored_mark;
    if (reader.ok()) mark = (*reader)->id().mark;
    check.mark = mark;
    check.is_void = mark.has_value() && log.VoidsSnapshot(snapshot, *mark);
    if (check.is_void) return check;
    if (reader.ok()) {
      check.segment = *mark >> 32;
      while (fully) {
        PAWL_RETURN_IF_ERROR(CheckContinues());
        const absl::StatusOr<absl::string_view> block = (*reader)->NextBlock();
        check.damage = block.status();
        if (!block.ok() || block->empty()) break;
      }
    }
    if (!check.damage.ok() && !absl::IsDataLoss(check.damage)) return check.damage;
    return check;
  }

  // Runs after all checks have passed; nothing was changed before.
  absl::Status CleanUp() {
    for (const std::string& path : void_files_) PAWL_RETURN_IF_ERROR(env_.Delete(path));
    // An earlier incarnation may have written and renamed without syncing, and from now on
    // everything settled counts as durable. Sync the log before the snapshots change: a reset that
    // can be read but is not on the disk could otherwise be lost after its effect on the snapshots.
    PAWL_RETURN_IF_ERROR(env_.SyncFolder(log_folder_));
    for (const ChainLink& link : chain_) {
      PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                            env_.OpenForAppend(PathOf(link.header.segment)));
      if (!link.bytes.has_value()) PAWL_RETURN_IF_ERROR(file->Truncate(last_end_));
      PAWL_RETURN_IF_ERROR(file->Sync());
      PAWL_RETURN_IF_ERROR(file->Close());
    }
    for (const SnapshotStore::Snapshot& snapshot : void_snapshots_) {
      PAWL_RETURN_IF_ERROR(snapshots_.Delete(snapshot));
    }
    for (const SnapshotStore::Snapshot& snapshot : adopted_) {
      PAWL_RETURN_IF_ERROR(snapshots_.Adopt(snapshot));
    }
    return absl::OkStatus();
  }

  absl::Status Load() {
    for (const auto& [partition, index] : chosen_) {
      const SnapshotStore::Snapshot snapshot = snapshots_.Of(partition, index);
      PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<BlockFileReader> reader,
                            snapshots_.OpenToRead(snapshot));
      if (const absl::Status status = sink_.LoadSnapshot(partition, index, *reader); !status.ok()) {
        return Annotate(status, snapshot.path);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Replay() {
    absl::flat_hash_set<uint32_t> ignored;
    for (const ChainLink& link : chain_) {
      PAWL_RETURN_IF_ERROR(CheckContinues());
      PAWL_ASSIGN_OR_RETURN(const LogSegment segment, Read(link));
      for (const LogRecord& record : segment.records) {
        const PartitionLog& log = logs_[record.partition];
        const uint64_t position = LogPosition{segment.header.segment, record.offset}.Pack();
        const bool settled = record.offset < segment.settled;
        if (DecodeReset(record.type, record.index, record.payload).has_value() && !settled)
          ignored.insert(record.partition);
        if (record.type != RecordType::kData || ignored.contains(record.partition)) continue;
        if (log.VoidsRecord(position, record.index)) continue;
        const ByteView payload(record.payload.data(), record.payload.size());
        if (!settled) {
          result_.unsettled.push_back({RecordType::kData, record.partition, record.index,
                                       record.term, payload, segment.bytes, std::nullopt, 0});
        }
        if (record.index <= log.snapshot_index) continue;
        const absl::Status status =
            sink_.Replay(record.partition, record.index, payload, segment.bytes);
        if (!status.ok()) {
          return Annotate(status,
                          absl::StrCat(segment.path, " at offset ", record.offset, ": record ",
                                       record.index, " of partition ", record.partition));
        }
      }
    }
    return absl::OkStatus();
  }

  Env& env_;
  const std::string data_folder_;
  const std::string log_folder_;
  SnapshotStore& snapshots_;
  RecoverySink& sink_;
  RecoveredLog result_;
  // Oldest first.
  std::vector<ChainLink> chain_;
  std::vector<std::string> void_files_;
  std::vector<SnapshotStore::Snapshot> void_snapshots_;
  absl::btree_map<uint32_t, PartitionLog> logs_;
  // Stored snapshots that replace a log.
  std::vector<SnapshotStore::Snapshot> adopted_;
  absl::btree_map<uint32_t, uint64_t> chosen_;
  uint64_t last_end_ = 0;
};

}  // namespace

void SegmentUse::Reset(uint32_t partition, const LogReset& reset) {
  const auto use = last_index.find(partition);
  if (use == last_index.end()) return;
  if (reset.Voids(1)) {
    last_index.erase(use);
  } else {
    use->second = std::min(use->second, reset.index);
  }
}

absl::StatusOr<RecoveredLog> Recover(const std::string& data_folder, SnapshotStore& snapshots,
                                     RecoverySink& sink) {
  return Recovery(data_folder, snapshots, sink).Run();
}

}  // namespace pawl
