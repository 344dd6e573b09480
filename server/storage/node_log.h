// What a server remembers from one incarnation to the next, without saying where.
#ifndef PAWL_SERVER_STORAGE_NODE_LOG_H_
#define PAWL_SERVER_STORAGE_NODE_LOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/daemon/node_identity.pb.h"
#include "server/replication/change_log.h"
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {

// Implementations: ServerLog, in a data directory; and the simulation's, in memory
// (tests/simulation/). A server's incarnation with it is told there.
class NodeLog : public ChangeLog {
 public:
  struct Events {
    // ChangeLog::DurableIndex of the partition has risen. Waits for no lock: false if the partition
    // is busy, and then it is called again.
    std::function<bool(uint32_t partition)> durable;
    // HoldSnapshot of the replica, taken under its lock; nothing if it is not here or has no data
    // yet.
    std::function<std::optional<HeldSnapshot>(uint32_t partition)> hold;
  };

  // Who this server was, unless it is new; its incarnation is the one that has begun with this log.
  virtual const std::optional<NodeIdentity>& identity() const = 0;
  // The partitions of the last incarnation, ascending. `options` are those of the identity's job.
  // Empty if it wrote no log. DATA_LOSS, naming file and offset: nothing was changed. REQUIRES:
  // identity().
  virtual absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(
      const PartitionOptions& options) = 0;
  // The job is over: what is here may be deleted for another one. Once this server has stopped
  // writing.
  virtual absl::Status JobIsOver() = 0;
  // Deletes whatever is there of another job or node, and writes down who this server is from now
  // on. It is the caller's to know that it may: see HoldsUnfinished.
  virtual absl::Status StartAnew(NodeIdentity identity) = 0;
  // Begins to write. Returns when everything that was recovered is durable. `options` are those of
  // the job, for ReadBack. RESOURCE_EXHAUSTED and others: the disk does not take it. REQUIRES:
  // Recover or StartAnew has succeeded, and the job writes a log.
  virtual absl::Status Start(Events events, const PartitionOptions& options) = 0;
  // Writes what is queued, if it can; afterwards no event is called, and nothing is taken.
  virtual void Stop() = 0;

  // Of the files at rest that are read again in the background, since the process began.
  // Thread-safe.
  struct ScrubFigures {
    uint64_t damaged = 0;   // files found damaged
    uint64_t repaired = 0;  // of those: replaced from memory
  };
  virtual ScrubFigures scrub_figures() const { return {}; }
};

// Whether there are files of a job that may go on: its servers write a log, and it is not known to
// be over.
inline bool HoldsUnfinished(const NodeLog& log) {
  return log.identity().has_value() && log.identity()->job().durability() != MEMORY &&
         !log.identity()->over();
}

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_NODE_LOG_H_
