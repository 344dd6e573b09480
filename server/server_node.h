// A server's part in its job: registration, roles, lives, and the end.
#ifndef PAWL_SERVER_SERVER_NODE_H_
#define PAWL_SERVER_SERVER_NODE_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/control_channel.h"
#include "client_lib/rpc/node_link.h"
#include "client_lib/rpc/transport.h"
#include "proto/scheduler.pb.h"
#include "server/data_plane/data_plane.h"
#include "server/replication/durable_log.h"

namespace pawl {

struct ServerNodeOptions {
  // Where the scheduler, as messages call it, is reached by the channel.
  std::string scheduler;
  std::string description;
  // What it fails together with.
  std::string zone;
  // How long to try to reach the scheduler first.
  std::chrono::seconds register_timeout{60};
  // How long a scheduler that was reached may be silent. The replicas are served meanwhile.
  std::chrono::seconds scheduler_timeout{600};
  // How long others may take to take over the replicas when this server is asked to end. When the
  // scheduler has told it to leave they may take as long as they need.
  std::chrono::seconds drain_timeout{20};
  // Whether what the data directory holds of a job that may go on is given up for another job.
  bool discard_other_job = false;
};

// Joins the job, takes the roles that the scheduler gives, and, when the scheduler has taken this
// server for dead, joins it again as the same node with what it has in memory. Asked to end, it
// hands its replicas over first.
//
// For one thread, which calls Tick often; but data_plane() may be used by all.
class ServerNode {
 public:
  // `log` is the data directory, just opened; null: this server has none, and can only be in jobs
  // that write no log. `channel`, `peers`, `clock` and `routing_channel` (see NodeLink) outlive the
  // node. The owner shuts `peers` down, and everything that calls the data plane, before the
  // destruction.
  ServerNode(ServerNodeOptions options, const DataPlaneOptions& data_plane,
             std::unique_ptr<DurableLog> log, ControlChannel& channel, Transport& peers,
             const Clock& clock, ControlChannel* routing_channel = nullptr);
  // Close.
  ~ServerNode();
  ServerNode(const ServerNode&) = delete;
  ServerNode& operator=(const ServerNode&) = delete;

  DataPlane& data_plane() { return data_plane_; }

  // By which the scheduler knows it; empty before the first registration of a server without a data
  // directory.
  const std::string& node() const { return node_; }

  // Reads back what a former incarnation has left in the data directory; then begins to register,
  // as reachable at `address`. An error (DATA_LOSS, naming file and offset) ends the server.
  absl::Status Start(const std::string& address);

  // Follows what has happened, and keeps the data plane going. Once it is over, how it ended: OK
  // for COMPLETED or when nothing is left to do after Drain, CANCELLED for STOPPED,
  // INVALID_ARGUMENT if only another --data_dir or --scheduler helps, else what happened.
  std::optional<absl::Status> Tick();

  // Asks the scheduler to give the replicas to others, for drain_timeout. Idempotent.
  void Drain();

  // There is a routing table and no end in sight: callers may come.
  bool serving() const;

  // Answers all waiting calls, says good-bye, writes what the log has to write. Idempotent.
  void Close();

 private:
  // What the link's events have brought, until Tick takes it.
  struct News {
    std::optional<absl::StatusOr<RegisterResponse>> registered;
    std::optional<absl::Status> disowned;
    JobState job_state = JOB_STATE_UNSPECIFIED;
    std::string failure;
    bool told_to_leave = false;
  };

  NodeLink::Events Events();
  // Has the scheduler confirm the routing that this server acts by, if that is needed and it has
  // not been asked already.
  void ConfirmRouting();
  // Until when the roles hold.
  MonotonicTime LeaseUntil() const;
  // See DataPlane's constructor.
  bool HasBegun() const;
  void Register(MonotonicTime deadline);
  // This server is in the job as `registration` says.
  absl::Status Join(const RegisterResponse& registration);
  // The data directory is another job's than that of a scheduler who does not know this server's,
  // or may be.
  bool KeepsToItsJob() const {
    return log_ != nullptr && HoldsUnfinishedJob(*log_) && !options_.discard_other_job;
  }
  // How the job has ended, if it has.
  std::optional<absl::Status> JobEnd(const News& news) const;
  void DrainUntil(MonotonicTime until);
  // Asked to end: whether it can.
  std::optional<absl::Status> DrainEnd() const;

  // The data directory holds what the scheduler's job has no use for and another one may need.
  // INVALID_ARGUMENT.
  absl::Status RefuseToDiscard(absl::string_view scheduler_says) const;
  // The log and what it has given back, for the first incarnation.
  absl::Status PrepareLog(const RegisterResponse& registration);

  const ServerNodeOptions options_;
  const DataPlaneOptions data_plane_options_;
  const Clock& clock_;
  // There is a routing of this incarnation: a new lease does not bring the roles back that a former
  // incarnation had.
  std::atomic<bool> routed_{false};
  NodeLink link_;
  DataPlane data_plane_;
  const std::unique_ptr<DurableLog> log_;
  // Until the first registration.
  std::vector<std::unique_ptr<Partition>> recovered_;
  std::string address_;
  // Those of the last incarnation; job_id is 0 before the first registration.
  std::string node_;
  uint64_t job_id_ = 0;
  Job job_;
  uint32_t longest_lease_ms_ = 0;
  bool member_ = false;
  bool closed_ = false;
  std::optional<MonotonicTime> draining_since_;
  bool job_is_over_ = false;
  std::optional<MonotonicTime> drain_until_;

  mutable Mutex mu_;
  News news_ PAWL_GUARDED_BY(mu_);
  bool draining_ PAWL_GUARDED_BY(mu_) = false;
  // The scheduler has been asked to confirm a routing.
  bool confirming_ PAWL_GUARDED_BY(mu_) = false;
  // The epoch that it has not confirmed, and how often in a row.
  uint64_t epoch_refused_ PAWL_GUARDED_BY(mu_) = 0;
  uint32_t refusals_ PAWL_GUARDED_BY(mu_) = 0;
  MonotonicTime next_confirmation_ PAWL_GUARDED_BY(mu_) = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SERVER_SERVER_NODE_H_
