// Changes of partitions as they travel to other replicas and into the log file
// (proto/replication.proto, LogEntry and ReplicateRequest), written and read without copying keys
// or values.
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

namespace pawl {

// Of a ReplicateRequest; more are sent in another one.
inline constexpr size_t kMaxEntriesInRequest = 16384;
inline constexpr size_t kMaxPositionsAsked = 65536;

// One change. Which fields count depends on the kind.
struct ChangeView {
  // The field's number in LogEntry.change.
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
  // PartitionReplicas.primary_since of the primary that made it; 0: an entry of before terms were
  // written.
  uint64_t term = 0;
  uint32_t partition = 0;
  // kPush, kEndStep, kTakeOver, kReleased: who, in which incarnation and step. The job and the
  // epoch are not set.
  RequestHeader sender;
  // kPush.
  PushSegmentView segment;
  // kEndStep: the number of segments pushed in the step, if the sender knew it.
  std::optional<uint64_t> segments;
  // kTableCreated.
  TableSpec table;
  // kBestKept.
  uint64_t step = 0;
};

// A serialized LogEntry. It refers to the memory of a push's keys and values; `owner` is kept alive
// with it.
OutgoingMessage EncodeLogEntry(const ChangeView& change, std::shared_ptr<const void> owner);
// INVALID_ARGUMENT for anything that is not exactly one change of one partition.
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

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_LOG_ENTRY_H_
