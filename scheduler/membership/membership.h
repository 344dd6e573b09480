// The nodes of the job, their incarnations and their leases.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_MEMBERSHIP_H_
#define PAWL_SCHEDULER_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/limits.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/membership/registration_check.h"

namespace pawl {

// The scheduler and every worker hold connections of their own to every server.
inline constexpr uint32_t kMaxServers = 1024;
inline constexpr uint32_t kMaxWorkers = 16384;
// Client numbers that processes which only read may have together. The others are left to clients
// that push.
inline constexpr uint32_t kMaxReaders = kMaxClients / 4;
// Dead and departed servers and workers that are remembered. The oldest are forgotten first.
inline constexpr size_t kMaxGoneNodes = 2048;
// A worker's progress report, for all its ranks together, without its metrics.
inline constexpr size_t kMaxProgressBytes = size_t{64} << 10;
// How far a registration's start_count may be above the known one. No process starts so often
// unheard; a larger jump would leave the node's own processes no higher count.
inline constexpr uint32_t kMaxStartCountStep = 1u << 20;
// A failure may quote a worker or server. Every heartbeat response carries it.
inline constexpr size_t kMaxFailureBytes = 1024;

// One process in one incarnation.
struct Node {
  std::string name;
  Role role = ROLE_UNSPECIFIED;
  // The number in its name.
  uint32_t number = 0;
  uint64_t incarnation = 0;
  uint64_t process_nonce = 0;
  // As in RegisterRequest.
  uint32_t start_count = 0;
  uint64_t registration = 0;
  std::string address;
  std::string description;
  // When this incarnation registered.
  MonotonicTime registered_at;
  MonotonicTime last_heard;
  // Until then it may hold a lease from a former scheduler process.
  MonotonicTime former_lease_until = MonotonicTime::min();
  // Left or dead.
  bool gone = false;
  // SERVER_ROLE: its failure domain.
  std::string zone;
  // The scheduler told it to leave.
  bool leave_requested = false;
  // It is leaving, by request or on its own. A server's replicas are moved away first.
  bool draining = false;
  // SERVER_ROLE: why its log cannot be written, and since when. Empty: it can be written.
  std::string disk_failure;
  MonotonicTime disk_failed_at;
  // CLIENT_ROLE: its certificate or token lets it only read. Is not saved: after a restart of the
  // scheduler it counts as one that pushes.
  bool only_reads = false;
  // As of its latest heartbeat.
  SecurityReport security;
  // It has sent a heartbeat in this incarnation, before which a server with a log stores its
  // identity.
  bool has_sent_heartbeat = false;
  // SERVER_ROLE: the routing epoch that it acts by, and when it last adopted an epoch or was up to
  // date.
  uint64_t adopted_epoch = 0;
  MonotonicTime adopted_at;
  // Its lease is no longer renewed.
  bool refused = false;
  ServerCounters counters;
  // WORKER_ROLE. A gone worker keeps one rank at most.
  WorkerProgress progress;
  // Why its latest report of progress is ignored, or empty.
  std::string refused_progress;
  // The progress of its earlier incarnations.
  WorkerProgress earlier;
  // SERVER_ROLE, WORKER_ROLE: the nonce of the process that claims to be the next incarnation, or
  // 0; the time of its first claim; and whether this incarnation has proved since then that it is
  // alive.
  uint64_t claimant = 0;
  MonotonicTime claimant_since;
  bool claimant_is_refused = false;
};

// "server-1 (host pid 123, 127.0.0.1:4321)"
std::string NodeText(const Node& node);

// Whether the request is the one that started the node's present incarnation.
bool IsRepeated(const RegisterRequest& request, const Node& node);

// Keeps the nodes and their leases. Time is passed in. Not thread-safe.
//
// Invariants:
//  1. Incarnations grow over the whole job, across all nodes. A client's number is reused only with
//     a higher incarnation.
//  2. An incarnation that has ended never resumes. A server or worker that registers under its
//     former name, or from its former process, starts another incarnation of that node and ends the
//     previous one. Another process can end only an incarnation that is silent, because a name is
//     no secret.
//  3. Among the numbered registrations of a node the one with the highest number counts, in
//     whatever order they arrive.
class Membership {
 public:
  struct Options {
    uint64_t job_id = 0;
    MonotonicDuration lease = std::chrono::seconds(1);
    // A server or worker that sends no heartbeat for this long may be replaced by its next
    // incarnation. A few heartbeat intervals.
    MonotonicDuration silence = std::chrono::milliseconds(500);
    // The job's ranks.
    uint32_t logical_workers = kMaxWorkers;
  };

  explicit Membership(const Options& options) : options_(options) {}

  struct Registration {
    const Node* node;
    // False: the process had registered before and is still in that incarnation.
    bool is_new;
    // The node had an earlier incarnation. `former` is set if this registration ended it.
    bool returned = false;
    std::optional<Node> former = std::nullopt;
  };
  // Registers a node; `only_reads` is Node::only_reads. A repeated registration renews the lease as
  // a heartbeat does. Errors:
  // INVALID_ARGUMENT: an impossible request.
  // ALREADY_EXISTS: another server's address, or a copy of a living server or worker.
  // UNAVAILABLE: the previous incarnation may still live; or the server is refused
  //   (RefuseStaleServers) and repeats its registration: it may register when its lease expires.
  // RESOURCE_EXHAUSTED: beyond the limits.
  // ABORTED: older than a registration of that node, or repeated after its incarnation ended.
  absl::StatusOr<Registration> Register(const RegisterRequest& request, MonotonicTime now,
                                        bool only_reads = false);

  // The node that Register(request) would resume: the node of this process, or the node that the
  // request names. nullptr if none.
  const Node* FindReturning(const RegisterRequest& request) const;

  // The node in any incarnation, gone or not. nullptr if there was none.
  const Node* FindByName(const std::string& name) const;

  // The node in this incarnation. ABORTED if it is gone, superseded or unknown. The pointer is
  // valid until the next change of membership.
  absl::StatusOr<Node*> Find(const std::string& name, uint64_t incarnation);

  // Renews the lease. `newest_epoch` is the newest routing epoch that servers can adopt. ABORTED as
  // in Find, and for a refused server. Progress that CheckProgress refuses is ignored, because the
  // worker is alive.
  absl::StatusOr<Node*> Heartbeat(const HeartbeatRequest& request, uint64_t newest_epoch,
                                  MonotonicTime now);

  // Stops renewing the leases of servers that are behind `newest_epoch` and have adopted no routing
  // for longer than `limit`.
  void RefuseStaleServers(uint64_t newest_epoch, MonotonicDuration limit, MonotonicTime now);

  // Tells the node to leave, by its next heartbeat response. False: it was told before. REQUIRES:
  // the node is present.
  bool TellToLeave(const std::string& name);
  // INVALID_ARGUMENT if no worker of this job can have made this progress, or if it is too large.
  absl::Status CheckProgress(const WorkerProgress& progress) const;
  // The part of a checked progress that is stored with the node. UserMetrics has the metrics.
  static WorkerProgress KnownProgress(WorkerProgress progress);

  // The node leaves; a client is forgotten. OK also if it had left before.
  absl::Status Leave(const std::string& name, uint64_t incarnation);

  // Declares dead every node that was silent for longer than the lease, and returns those nodes.
  std::vector<Node> ExpireLeases(MonotonicTime now);

  // All nodes, including gone ones, by role and number.
  std::vector<const Node*> All() const;
  // The present nodes of one role.
  std::vector<const Node*> Present(Role role) const;
  size_t PresentCount() const;

  // Returns a new incarnation for other uses, such as a rank that changes its host.
  uint64_t NewIncarnation() { return ++last_incarnation_; }
  uint64_t last_incarnation() const { return last_incarnation_; }

  StoredMembership Save() const;
  // Leases of present nodes start at `now`. They last for at least `longest_lease`, which the
  // former scheduler process may have granted. REQUIRES: no node has registered.
  void Restore(const StoredMembership& stored, MonotonicTime now, MonotonicDuration longest_lease);

 private:
  // OK if the process can replace the node, which has not been declared dead.
  absl::Status CheckReplaceable(uint64_t claimant, Node& node, MonotonicTime now) const;
  absl::Status CheckRoom(Role role) const;
  absl::Status CheckRoomForReader() const;
  // The number for a new node. A server or client that asks for an unused number by its name gets
  // it.
  absl::StatusOr<uint32_t> NextNumber(const RegisterRequest& request);
  void MarkGone(Node& node);
  void Forget(const std::string& name);

  const Options options_;
  // By (role, number), so that listings are in order.
  std::map<std::pair<int, uint32_t>, Node> nodes_;
  absl::flat_hash_map<std::string, std::pair<int, uint32_t>> by_name_;
  absl::flat_hash_map<uint64_t, std::string> by_nonce_;
  // Names of gone servers and workers, the oldest first.
  std::deque<std::string> gone_;
  uint64_t last_incarnation_ = 0;
  uint32_t next_server_ = 0;
  uint32_t next_worker_ = 0;
  // Assigned round-robin, so that a client that was declared dead by mistake can use its push ids
  // for a long time before another client gets its number.
  uint32_t next_client_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_MEMBERSHIP_H_
