// A server as a member of its job: registration, roles, draining and shutdown.
#ifndef PAWL_SERVER_SERVER_NODE_H_
#define PAWL_SERVER_SERVER_NODE_H_

#include <atomic>
#include <chrono>
#include <functional>
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
  // The scheduler's address, for messages only; the channel connects to it.
  std::string scheduler;
  std::string description;
  // The failure domain of this server, such as a rack.
  std::string zone;
  // How long to try to reach the scheduler at startup.
  std::chrono::seconds register_timeout{60};
  // How long to keep running while a known scheduler is silent. The replicas are served meanwhile.
  std::chrono::seconds scheduler_timeout{600};
  // When the process is asked to end: how long to wait for other servers to take over the replicas.
  // No limit applies if the scheduler asked this server to leave.
  std::chrono::seconds drain_timeout{20};
  // Sent with each heartbeat. May be null. Thread-safe.
  std::function<SecurityReport()> security;
  // Whether to discard the data directory of another job that may still be running.
  bool discard_other_job = false;
};

// Joins the job and takes the roles that the scheduler assigns. If the scheduler declares this
// server dead, the node registers again with the data it has in memory. Before it ends, it hands
// its replicas over.
//
// One thread uses the node and calls Tick often; data_plane() is thread-safe.
class ServerNode final : public JobMembership {
 public:
  // `log` is the data directory, just opened; null: the server has none and can only join jobs that
  // write no log. `channel`, `peers`, `clock` and `routing_channel` (see NodeLink) must outlive the
  // node. The owner shuts down `peers` and every caller of the data plane before it destroys the
  // node.
  ServerNode(ServerNodeOptions options, const DataPlaneOptions& data_plane,
             std::unique_ptr<DurableLog> log, ControlChannel& channel, Transport& peers,
             const Clock& clock, ControlChannel* routing_channel = nullptr);
  // Calls Close.
  ~ServerNode();
  ServerNode(const ServerNode&) = delete;
  ServerNode& operator=(const ServerNode&) = delete;

  DataPlane& data_plane() { return data_plane_; }

  // The name that the scheduler gave this server. Empty before the first registration of a server
  // without a data directory.
  const std::string& node() const { return node_; }

  // Recovers what an earlier incarnation left in the data directory, then starts to register as
  // reachable at `address`. If the files are damaged and the job has several replicas, it asks to
  // register without its data. Otherwise DATA_LOSS, naming file and offset, means that the server
  // must end.
  absl::Status Start(const std::string& address);

  // Handles pending events and drives the data plane. Returns a status once the server must end: OK
  // if the job has completed or nothing is left to do after Drain, CANCELLED if the job was
  // stopped, INVALID_ARGUMENT if only another --data_dir or --scheduler helps, otherwise the
  // failure.
  std::optional<absl::Status> Tick();

  // Asks the scheduler to move the replicas elsewhere, within drain_timeout. Idempotent.
  void Drain();

  // Whether the node has a routing table and is not draining, so that it can serve callers.
  bool serving() const;

  // Answers all waiting calls, says goodbye to the scheduler and flushes the log. Idempotent.
  void Close();

 private:
  // Events of the link that Tick has not handled yet.
  struct News {
    std::optional<absl::StatusOr<RegisterResponse>> registered;
    std::optional<absl::Status> disowned;
    JobState job_state = JOB_STATE_UNSPECIFIED;
    std::string failure;
    bool leave_requested = false;
  };

  NodeLink::Events Events();
  // Asks the scheduler to confirm the routing that this server acts by, unless it needs no
  // confirmation or a request is in progress.
  void ConfirmRouting();
  void OnHandedOver() override { ConfirmRouting(); }
  // JobMembership. The lease is the one under which the roles hold.
  MonotonicTime LeaseUntil() const override;
  bool HasStarted() const override;
  void Register(MonotonicTime deadline);
  // Joins the job as `registration` says.
  absl::Status Join(const RegisterResponse& registration);
  // Whether the data directory belongs to a job that may still be running and must be kept.
  bool MustKeepItsJob() const {
    return log_ != nullptr && HoldsUnfinishedJob(*log_) && !options_.discard_other_job;
  }
  // How the job ended, if it has.
  std::optional<absl::Status> JobEnd(const News& news) const;
  void DrainUntil(MonotonicTime until);
  // Whether and how a draining server can end now.
  std::optional<absl::Status> DrainEnd() const;

  // INVALID_ARGUMENT: the data directory holds another job's data, which may still be needed.
  absl::Status RefuseToDiscard(absl::string_view scheduler_says) const;
  // Prepares the log and what was recovered from it, for the first incarnation.
  absl::Status PrepareLog(const RegisterResponse& registration);

  const ServerNodeOptions options_;
  const DataPlaneOptions data_plane_options_;
  const Clock& clock_;
  // This incarnation has adopted a routing. A new lease does not bring back the roles of an earlier
  // incarnation.
  std::atomic<bool> routed_{false};
  NodeLink link_;
  DataPlane data_plane_;
  const std::unique_ptr<DurableLog> log_;
  // Why the data directory cannot be recovered, until the first registration; OK: it can.
  absl::Status damage_;
  // The recovered partitions, until the first registration.
  std::vector<std::unique_ptr<Partition>> recovered_;
  std::string address_;
  // From the last registration; job_id_ is 0 before the first one.
  std::string node_;
  uint64_t job_id_ = 0;
  Job job_;
  std::string ticket_key_;
  uint32_t longest_lease_ms_ = 0;
  // The last Tick, and when it last came kLateWatch late.
  MonotonicTime last_tick_{};
  MonotonicTime resumed_{};
  bool member_ = false;
  bool closed_ = false;
  std::optional<MonotonicTime> draining_since_;
  bool job_has_ended_ = false;
  std::optional<MonotonicTime> drain_until_;
  // Until then a routing without other servers does not end a draining server.
  MonotonicTime expects_peers_until_ = MonotonicTime::min();

  mutable Mutex mu_;
  News news_ PAWL_GUARDED_BY(mu_);
  bool draining_ PAWL_GUARDED_BY(mu_) = false;
  // A ConfirmRouting call is in progress.
  bool confirming_ PAWL_GUARDED_BY(mu_) = false;
  // The epoch that the scheduler refused to confirm, and how many times in a row.
  uint64_t epoch_refused_ PAWL_GUARDED_BY(mu_) = 0;
  uint32_t refusals_ PAWL_GUARDED_BY(mu_) = 0;
  MonotonicTime next_confirmation_ PAWL_GUARDED_BY(mu_) = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SERVER_SERVER_NODE_H_
