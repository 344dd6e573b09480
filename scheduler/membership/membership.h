// Who takes part in the job.
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

// Every server is called by the scheduler and by every worker, each over connections of its own.
inline constexpr uint32_t kMaxServers = 1024;
inline constexpr uint32_t kMaxWorkers = 16384;
// Dead and departed servers and workers that are still shown; the oldest go first.
inline constexpr size_t kMaxGoneNodes = 2048;
// What a worker says of itself, of all its ranks together.
inline constexpr size_t kMaxProgressBytes = size_t{64} << 10;
// A failure may quote a worker or a server; every heartbeat's answer carries it to the others.
inline constexpr size_t kMaxFailureBytes = 1024;

// One process in one incarnation.
struct Node {
  std::string name;
  Role role = ROLE_UNSPECIFIED;
  // The one in its name.
  uint32_t number = 0;
  uint64_t incarnation = 0;
  uint64_t process_nonce = 0;
  // RegisterRequest's.
  uint32_t start_count = 0;
  uint64_t registration = 0;
  std::string address;
  std::string description;
  // When this incarnation began.
  MonotonicTime registered_at;
  MonotonicTime last_heard;
  // A lease that an earlier scheduler may have given it binds until then.
  MonotonicTime former_lease_until = MonotonicTime::min();
  // Left or dead.
  bool gone = false;
  // SERVER_ROLE: what it fails together with.
  std::string zone;
  // Has been told to leave.
  bool told_to_leave = false;
  // On its way out, told or by itself; a server is to be relieved of its replicas.
  bool draining = false;
  // SERVER_ROLE: why its log cannot be written, and since when; empty: it can.
  std::string disk_failure;
  MonotonicTime disk_failed_at;
  // Has sent a heartbeat in this incarnation. A server that writes a log has written down who it is
  // before that.
  bool heard_of = false;
  // SERVER_ROLE: the routing epoch that it acts by, and when it last adopted one or had none to
  // adopt.
  uint64_t adopted_epoch = 0;
  MonotonicTime adopted_at;
  // Its lease is not renewed any more.
  bool refused = false;
  ServerCounters counters;
  WorkerProgress progress;
  // What the node did in its earlier incarnations.
  WorkerProgress earlier;
  // SERVER_ROLE: the process that wants to be the next incarnation, by its nonce; 0: there is none.
  // Since when it does, and whether this incarnation was heard to live since.
  uint64_t newcomer = 0;
  MonotonicTime newcomer_since;
  bool newcomer_is_refused = false;
};

// "server-1 (host pid 123, 127.0.0.1:4321)"
std::string NodeText(const Node& node);

// Whether the node's present incarnation began with this very request.
bool IsRepeated(const RegisterRequest& request, const Node& node);

// Keeps the nodes and their leases. Time is passed in. Not thread-safe.
//
// Invariants:
//  1. Incarnations grow over the whole duration of the job, whatever the node: a client's number
//     is used again only with a higher incarnation.
//  2. A incarnation that is over never comes back. A server or worker that registers as the node
//  that it was, or as the
//     process that it was, begins another incarnation of that node, and the one before is over.
//  3. Of a node's registrations that say how many there were before them, the last one counts,
//  however late others come.
class Membership {
 public:
  struct Options {
    uint64_t job_id = 0;
    MonotonicDuration lease = std::chrono::seconds(1);
    // A server that sends no heartbeat for so long may be replaced by its next incarnation: some
    // heartbeat intervals.
    MonotonicDuration silence = std::chrono::milliseconds(500);
    uint32_t max_servers = kMaxServers;
    uint32_t max_workers = kMaxWorkers;
    // The job's ranks.
    uint32_t logical_workers = kMaxWorkers;
  };

  explicit Membership(const Options& options) : options_(options) {}

  struct Registration {
    const Node* node;
    // False: the same process had registered before, and is in that incarnation still.
    bool is_new;
    // The node had an earlier incarnation; `former` if that is over only now.
    bool returned = false;
    std::optional<Node> former = std::nullopt;
  };
  // INVALID_ARGUMENT for an impossible request, ALREADY_EXISTS for another server's address and for
  // a copy of a server that lives, UNAVAILABLE while it is not known whether that lives,
  // RESOURCE_EXHAUSTED beyond the limits. ABORTED for a registration that comes after a later one
  // of that node, or again when the incarnation that it began is over. A repeated registration
  // renews the lease as a heartbeat does; UNAVAILABLE where a heartbeat would be refused
  // (RefuseThoseBehind): when the lease has run out it is a new one.
  absl::StatusOr<Registration> Register(const RegisterRequest& request, MonotonicTime now);

  // What Register(request) would take up again: the process's node, or the one that it names;
  // nullptr if none.
  const Node* FindReturning(const RegisterRequest& request) const;

  // In whatever incarnation, gone or not; nullptr if there was none.
  const Node* FindByName(const std::string& name) const;

  // The node in this very incarnation; ABORTED if it is gone, superseded or was never there. The
  // pointer is good until the next change of membership.
  absl::StatusOr<Node*> Find(const std::string& name, uint64_t incarnation);

  // Renews the lease. `newest_epoch`: of the routing that there is for servers to adopt. ABORTED as
  // with Find, and after RefuseThoseBehind; INVALID_ARGUMENT as with CheckProgress.
  absl::StatusOr<Node*> Heartbeat(const HeartbeatRequest& request, uint64_t newest_epoch,
                                  MonotonicTime now);

  // Servers that have adopted none of the newer routings for so long lose their leases: from now on
  // they are not renewed.
  void RefuseThoseBehind(uint64_t newest_epoch, MonotonicDuration limit, MonotonicTime now);

  // The node is to leave; its heartbeats tell it. False: it was told before. REQUIRES: it is there.
  bool TellToLeave(const std::string& name);
  // INVALID_ARGUMENT for a progress that no worker of this job can have made, or that is too large
  // to keep.
  absl::Status CheckProgress(const WorkerProgress& progress) const;
  // What is kept of a progress that CheckProgress finds possible.
  static WorkerProgress KnownProgress(WorkerProgress progress);

  // The node leaves, a client without a trace. OK too if it had left before.
  absl::Status Leave(const std::string& name, uint64_t incarnation);

  // Declares dead whoever has been silent for longer than the lease, and returns what they were.
  std::vector<Node> ExpireLeases(MonotonicTime now);

  // By role and number; gone ones too.
  std::vector<const Node*> All() const;
  // Those of one role that are there.
  std::vector<const Node*> Present(Role role) const;
  size_t PresentCount() const;

  // For something else that needs one, such as a rank that goes to another worker: newer than all
  // before.
  uint64_t NewIncarnation() { return ++last_incarnation_; }
  uint64_t last_incarnation() const { return last_incarnation_; }

  StoredMembership Save() const;
  // The leases of all that were there count from `now`, and last for at least `longest_lease`,
  // which the scheduler before may have given. REQUIRES: no node has registered yet.
  void Restore(const StoredMembership& stored, MonotonicTime now, MonotonicDuration longest_lease);

 private:
  // OK if the server, which has not been declared dead, can be replaced by the process.
  absl::Status CheckIsSilent(uint64_t newcomer, Node& server, MonotonicTime now) const;
  absl::Status CheckRoom(Role role) const;
  // For a new node. A server or client that names itself by a number that no node has gets that
  // number.
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
  // In turn, so that one that was taken for dead goes on with its push ids for long before its
  // number is another's.
  uint32_t next_client_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_MEMBERSHIP_H_
