// Where a server writes down the changes of its replicas before they are acknowledged.
#ifndef PAWL_SERVER_REPLICATION_CHANGE_LOG_H_
#define PAWL_SERVER_REPLICATION_CHANGE_LOG_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "client_lib/base/byte_view.h"
#include "server/shard/partition_snapshot.h"

namespace pawl {

// Thread-safe. Tells its owner of what has become durable by a callback of the implementation's (DataPlane::OnDurable).
// Its locks are taken after a replica's.
class ChangeLog {
 public:
  virtual ~ChangeLog() = default;

  // OK if changes with so many bytes are to be taken now: to be asked before a change is applied. RESOURCE_EXHAUSTED,
  // with the reason, while the disk is full or fails or too much waits to be written.
  virtual absl::Status CheckRoom(uint64_t bytes) const = 0;
  // A serialized LogEntry. Those of one partition come in the order of their indices. Does not wait for the disk.
  virtual void Append(uint32_t partition, uint64_t index, const ByteView& entry, std::shared_ptr<const void> owner) = 0;
  // All of a partition's changes up to the snapshot's log_index, in place of those written before (which may have
  // been another replica's). Returns when it is durable, which takes as long as the snapshot is large: to be called without
  // the replica's lock, while no change of the replica can come.
  virtual absl::Status SaveSnapshot(uint32_t partition, HeldSnapshot snapshot) = 0;
  // The replica is another one than the snapshot that was saved last: it gets one of its own, in the background.
  virtual void SaveAgain(uint32_t partition, uint64_t index) = 0;
  // The partition is not hosted here any more. Does not wait for the disk.
  virtual void Drop(uint32_t partition) = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_CHANGE_LOG_H_
