// Log entries: the changes of partitions as they are sent to other replicas and written to the log
// (LogEntry and ReplicateRequest in proto/replication.proto), and pieces of snapshots. Encoding and
// decoding copy no keys, values or pieces.
#ifndef PAWL_SERVER_REPLICATION_LOG_ENTRY_H_
#define PAWL_SERVER_REPLICATION_LOG_ENTRY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/bytes.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/message.h"
#include "proto/replication.pb.h"
#include "server/shard/sender.h"

namespace pawl {

// The snapshot of a partition with 8 GiB of parameters, including the keys of narrow rows; larger
// partitions cannot be moved.
inline constexpr size_t kMaxSnapshotBytes = size_t{16} << 30;

// The limit of a ReplicateRequest; further entries go into the next one.
inline constexpr size_t kMaxEntriesInRequest = 16384;
inline constexpr size_t kMaxPositionsAsked = 65536;

// One change. The kind decides which fields are used.
struct ChangeView {
  // The field number in LogEntry.change.
  enum class Kind : uint32_t {
    kPush = 3,
    kEndStep = 4,
    kTakeOver = 5,
    kTableCreated = 6,
    kBestKept = 7,
    kBestRestored = 8,
    kReleased = 9,
  };
  Kind kind = Kind::kPush;
  uint64_t index = 0;
  // PartitionReplicas.primary_since of the primary that made it; 0 in entries written before terms
  // were recorded.
  uint64_t term = 0;
  uint32_t partition = 0;
  // kPush, kEndStep, kTakeOver, kReleased.
  Sender sender;
  // kPush.
  SegmentView segment;
  // kEndStep: the number of segments pushed in the step, if the sender knew it.
  std::optional<uint64_t> segments;
  // kEndStep: set if the change closes the step (EndStepRequest.CLOSE).
  std::optional<float> close_scale;
  // kTableCreated.
  TableSpec table;
  // kBestKept.
  uint64_t step = 0;
};

// The sender that a request names; client 0 if it names none.
Sender SenderOf(const RequestHeader& header);

// Serializes a LogEntry, which refers to the memory of a push's keys and values and keeps `owner`
// alive.
OutgoingMessage EncodeLogEntry(const ChangeView& change, std::shared_ptr<const void> owner);
// INVALID_ARGUMENT unless the bytes are exactly one change of one partition.
absl::StatusOr<ChangeView> DecodeLogEntry(const ByteView& bytes);

struct ReplicateRequestView {
  ReplicationHeader header;
  // Serialized LogEntries.
  std::vector<ByteView> entries;
  // At most kMaxPositionsAsked.
  std::vector<uint32_t> asks_position;
};

// `owner` keeps the memory of the entries alive.
OutgoingMessage EncodeReplicateRequest(const ReplicationHeader& header,
                                       absl::Span<const ByteView> entries,
                                       absl::Span<const uint32_t> asks_position,
                                       std::shared_ptr<const void> owner);
absl::StatusOr<ReplicateRequestView> DecodeReplicateRequest(const ByteView& message);

// `request` has no data. `owner` keeps the memory of the data alive.
OutgoingMessage EncodeInstallSnapshotRequest(const InstallSnapshotRequest& request,
                                             const ByteView& data,
                                             std::shared_ptr<const void> owner);
// Sets all fields of `request` but data, and `data` to a view into the message. REQUIRES: `data` is
// empty.
absl::Status DecodeInstallSnapshotRequest(const ByteView& message, InstallSnapshotRequest& request,
                                          ByteView& data);

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_LOG_ENTRY_H_
