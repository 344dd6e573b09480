// Pawl's client library: how a program trains against the servers of a job.
//
// A Client is one process's membership in a job. Through it a program creates
// tables and opens sessions; a session pushes gradients and pulls parameters.
//
//   pawl::ClientOptions options;
//   options.scheduler = "10.0.0.1:7000";
//   PAWL_ASSIGN_OR_RETURN(std::unique_ptr<pawl::Client> client, pawl::Client::Connect(options));
//
//   pawl::TableSpec spec;
//   spec.set_name("embeddings");
//   spec.set_kind(pawl::SPARSE);
//   spec.set_row_width(16);
//   spec.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.05);
//   PAWL_ASSIGN_OR_RETURN(pawl::Table table, client->CreateTable(spec).get());
//
//   std::vector<uint64_t> keys = {7, 42, 7};
//   std::vector<float> rows(keys.size() * 16), gradients(keys.size() * 16);
//   pawl::Session& session = client->free_running();
//   PAWL_RETURN_IF_ERROR(session.Pull({{.table = table, .keys = keys, .values =
//   absl::MakeSpan(rows)}}).get());
//   ... compute gradients ...
//   PAWL_RETURN_IF_ERROR(session.Push({{.table = table, .keys = keys, .gradients =
//   gradients}}).get());
//
// client_lib/example/ has the whole program.
//
// # Two kinds of senders
//
// *Free-running* (Client::free_running): pushes are applied on arrival, pulls
// answer at once. For tools, for serving, for a loop without ranks.
//
// *Logical worker* (Client::OpenLogicalWorker): one rank of the job's data
// parallelism, which goes through steps 0, 1, 2, ... In each it pulls, pushes, and
// calls EndStep. The job's consistency mode decides when its pulls answer and when
// its pushes are applied (README.md, "Consistency").
//
// # Every call
//
// - is asynchronous: it returns at once, with a future, or takes a callback
//   instead. A callback runs once, on a thread of the library's, or on one that makes a
//   call in the same session, before that returns: on the caller's own if the call ends at
//   once. So hold no lock in a call that callbacks take. It must not block, and
//   may make further calls; it must not destroy the client.
// - has a deadline (CallOptions::timeout). Until then the library retries: a lost
//   server, connection or message is not seen by the caller. What it repeats it
//   repeats under the same push id, so that nothing is applied twice.
// - may be made from any thread.
// - borrows memory: what the spans of a PushItem or PullItem refer to must stay
//   where it is, and unchanged by others, until the callback runs or the future
//   is ready. The items themselves are copied.
//
// # Failure
//
// A server that dies, moves or comes back is not seen by calls, but for the time it takes; neither
// is a scheduler that is away. Calls wait for a partition's new primary until their deadline.
//
// If the job fails (all servers with some partition are lost, say) every pending call ends with
// FAILED_PRECONDITION and the scheduler's words, which name who it was, and so do
// all calls after that. The same goes for a job that was stopped, and for a worker
// that the scheduler has declared dead (ABORTED): its ranks may be another's. A client without
// ranks joins again by itself, and its pushes and pulls do not notice: to the servers it stays who
// it was. (Should another client have got its number in between, its pushes get ABORTED from then
// on.) Nothing hangs.
//
// # Codes
//
//   INVALID_ARGUMENT     the call is wrong (table, lengths); nothing was sent. Or the server
//   refuses the content (NaN) OUT_OF_RANGE         a rank outside the job NOT_FOUND            no
//   such table DEADLINE_EXCEEDED    not done in time. A push may have been applied or not
//   RESOURCE_EXHAUSTED   one of the limits below
//   FAILED_PRECONDITION  the job has failed or was stopped; a step out of turn
//   ABORTED              this client is no longer a member of the job, or another process has taken
//   the rank over CANCELLED            the client is being destroyed
#ifndef PAWL_CLIENT_LIB_CLIENT_H_
#define PAWL_CLIENT_LIB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/table.h"
#include "proto/scheduler.pb.h"

namespace pawl {

class ClientCore;
class ControlChannel;
class Transport;

// Limits. Beyond them a call gets RESOURCE_EXHAUSTED, or INVALID_ARGUMENT where no waiting would
// help.
//
// Calls of a session that wait for their turn: for EndStep, or for older ones. And calls of all the
// client's sessions, pulls apart from pushes, that wait because kMaxCallsUnderWay or
// ClientOptions::max_bytes_in_flight are under way.
inline constexpr size_t kMaxWaitingCalls = 4096;
// Calls of a client that are under way, pushes and likewise pulls; more wait for their turn.
inline constexpr size_t kMaxCallsUnderWay = 4096;
// Tables in one call.
inline constexpr size_t kMaxItemsInCall = 1024;
// Keys in one item: positions are kept in 32 bits.
inline constexpr size_t kMaxKeysInItem = size_t{1} << 30;
// Segments of pushes (1 MiB of values each) under way to one partition; it is the window in which
// servers recognise what they have taken. Later pushes wait; one call that has more gets
// INVALID_ARGUMENT.
inline constexpr uint64_t kMaxSegmentsAhead = 1024;

using Callback = absl::AnyInvocable<void(absl::Status)>;

struct ClientOptions {
  // The scheduler's host:port. Required.
  std::string scheduler;
  // WORKER_ROLE for a process that hosts logical workers; the job waits for it and fails with it.
  Role role = CLIENT_ROLE;
  // WORKER_ROLE: the ranks to host; empty: the scheduler assigns some (Client::Assignment).
  std::vector<uint32_t> logical_workers;
  // WORKER_ROLE without logical_workers: the process asks for its assignment again whenever it has
  // one, and takes over and gives up ranks as that says. False: it keeps the ranks that it gets
  // first.
  bool follows_assignment = false;
  // Client::node() and Client::job_id() of this process's incarnation before, which is over with
  // the registration. They count for nothing in another job; empty: there was none.
  std::string node;
  uint64_t node_job_id = 0;
  // To grow with each Connect as that node, over all processes that have been it, so that what a
  // dead one has sent is told from what this one sends, however late it arrives; 0: not counted.
  uint32_t node_start_count = 0;
  // What logs and `pawlctl nodes` show; empty: "host:pid".
  std::string description;
  // How long Connect waits for the scheduler, and for the job's servers to be there.
  MonotonicDuration connect_timeout = std::chrono::seconds(60);
  // Asked every 50 ms while Connect waits; an error ends Connect with that error. May be null.
  std::function<absl::Status()> interrupted;
  // The deadline of calls that give none. Long, since a logical worker's pull waits
  // for its peers; a failure ends it sooner.
  MonotonicDuration call_timeout = std::chrono::seconds(120);
  // Bytes of keys and values in pushes under way, and likewise in pulls. Calls
  // beyond it wait for their turn, without having been copied; one call that is
  // larger goes alone.
  size_t max_bytes_in_flight = size_t{256} << 20;
  // Lets malloc keep freed memory (client_lib/process/malloc_tuning.h) and switches Abseil's search
  // for deadlocks off: twice the throughput. Both concern the whole process; false for a program
  // that sets them itself.
  bool tune_process = true;

  const Clock* clock = &Clock::Real();
};

struct CallOptions {
  // From now; unset: ClientOptions::call_timeout.
  std::optional<MonotonicDuration> timeout = std::nullopt;
  // A logical worker's pull for a later step than its own: it is sent at once and
  // answers when that step's parameters are there (to have the next batch on its way early).
  std::optional<uint64_t> step = std::nullopt;
};

// Gradients for one table.
struct PushItem {
  Table table = {};
  // Sparse: the rows. Gradients of a key that comes more than once are added up, in
  // the order given here, before they are sent. Dense: empty for the whole tensor, or some of its
  // blocks (proto/types.proto, TableKind), ascending.
  absl::Span<const uint64_t> keys = {};
  // Sparse: row_width floats for each key. Dense: the whole tensor, or those blocks one after the
  // other; as FLOAT32 they go to the socket from where they lie.
  absl::Span<const float> gradients = {};
  // The caller knows that no key comes twice: saves looking.
  bool keys_are_distinct = false;
  // As what the gradients travel: BFLOAT16 and FLOAT16 halve the bytes, rounding each number to
  // nearest (half.h); the servers go on with what it was rounded to. BFLOAT16 has 8 binary digits
  // of any float. FLOAT16 has 11, of those up to 2^28 times smaller than the largest that travels
  // with them, which are about 2^18 numbers (PushSegment.exponent).
  ElementType element_type = FLOAT32;
};

// Memory for parameters of one table.
struct PullItem {
  Table table = {};
  // Sparse: the rows; a key that comes more than once is fetched once. Dense: empty.
  absl::Span<const uint64_t> keys = {};
  // Sparse: row_width floats for each key, at each of its places. Dense: the whole
  // tensor. The content is undefined if the call fails.
  absl::Span<float> values = {};
  bool keys_are_distinct = false;
};

// One sender of pushes and pulls. Thread-safe; but see Push about order. Lives
// until its client's end, or CloseLogicalWorker.
//
// A Push or EndStep that has failed leaves the session broken, since what was to follow
// may not be applied without it: every further call gets the same status, and so does every one
// that still waits for its turn. One that is refused at once (INVALID_ARGUMENT for its items,
// RESOURCE_EXHAUSTED) does the same to further calls in the session of a logical worker, whose step
// would lack it, but what was called before it goes on as if nothing had been (only the pull of a
// PushPull counts as a further call). In the free-running session, which has no steps, a refused
// call was never made.
//
// A broken logical worker goes on with CloseLogicalWorker and TakeOver, and repeats its step's
// pushes from the first one, the same in the same order: what has arrived of them, or still does,
// is recognised by its place in the step alone, and is not taken again. Other pushes in their
// places would be answered with OK, and be lost. After a broken free-running session, push with
// another Client.
class Session {
 public:
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Done when every server has taken its part, once. Calls may overlap. Their
  // order names the pushes: in SYNC the pushes of a step must be made in the same order,
  // with the same keys, whenever the step is computed again, so make them from one thread.
  // A call that fails may have been taken in part.
  std::future<absl::Status> Push(absl::Span<const PushItem> items, const CallOptions& options = {});
  virtual void Push(absl::Span<const PushItem> items, const CallOptions& options,
                    Callback done) = 0;

  // Done when all values are there. Never changes state: an absent row reads as its
  // initial value. Not ordered with pushes under way: wait for them to see them. A logical
  // worker's pull after EndStep is sent when EndStep is done, unless options.step is given.
  std::future<absl::Status> Pull(absl::Span<const PullItem> items, const CallOptions& options = {});
  virtual void Pull(absl::Span<const PullItem> items, const CallOptions& options,
                    Callback done) = 0;

  // Push, and when that is done, Pull, within one deadline. A logical worker's pull is for the step
  // that the push belongs to: in SYNC it does not show the push, which is applied when the step
  // closes.
  std::future<absl::Status> PushPull(absl::Span<const PushItem> pushes,
                                     absl::Span<const PullItem> pulls,
                                     const CallOptions& options = {});
  virtual void PushPull(absl::Span<const PushItem> pushes, absl::Span<const PullItem> pulls,
                        const CallOptions& options, Callback done) = 0;

 protected:
  Session() = default;
};

// A rank of the job. Obtained from Client::OpenLogicalWorker or TakeOver.
class LogicalWorker : public Session {
 public:
  virtual uint32_t rank() const = 0;

  // The step that calls made now belong to.
  virtual uint64_t step() const = 0;

  // Ends the step; calls made after this one belong to the next. The library sends
  // it when all pushes of the step have been acknowledged, and holds back later
  // calls until every server has answered it. To be called once a step, also by a
  // rank that pushed nothing in it.
  std::future<absl::Status> EndStep(const CallOptions& options = {});
  virtual void EndStep(const CallOptions& options, Callback done) = 0;
};

// What the client has done since it connected.
struct ClientCounters {
  // Push segments the servers took, recognised as repeated, and dropped as late.
  uint64_t segments_accepted = 0;
  uint64_t segments_deduplicated = 0;
  uint64_t segments_late = 0;
  // Messages to servers, each time that they were sent.
  uint64_t messages = 0;
  // How often one that had failed was to be sent again; what has only waited long on a server for
  // others has not.
  uint64_t retries = 0;
  // Times a newer routing table was adopted.
  uint64_t routing_changes = 0;
};

// Thread-safe.
class Client {
 public:
  // Registers with the scheduler, begins to send heartbeats, and waits until the job has a routing
  // table.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ClientOptions options);
  // The same without gRPC, for tests: by `transport` to the servers and by `control` to the
  // scheduler; by `link`, if that is not null, go heartbeats and routing.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      ClientOptions options, std::shared_ptr<Transport> transport,
      std::shared_ptr<ControlChannel> control, std::shared_ptr<ControlChannel> link = nullptr);

  // Ends pending calls with CANCELLED, waits for their callbacks, and says good-bye to the
  // scheduler. A callback that has not returned after a minute ends the process (std::abort), with
  // a line in the log: it waits for something that will not come.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // As registered first: "worker-1", and so on.
  const std::string& node() const;
  uint64_t incarnation() const;
  uint64_t job_id() const;
  // How long the job may stand still before the scheduler ends it: a call that waits for other
  // workers should wait longer.
  MonotonicDuration patience() const;
  const Job& job() const;

  // As of the last heartbeat.
  JobState job_state() const;
  // OK, or why all calls fail: see "Failure" above.
  absl::Status status() const;
  // True when the job has ended (COMPLETED, FAILED or STOPPED) or status() is not OK; waits for
  // that until `timeout`.
  bool WaitForEnd(MonotonicDuration timeout) const;
  // WORKER_ROLE: an operator has drained this worker, or scaled the job to fewer: it is to end its
  // step and go.
  bool told_to_leave() const;
  ClientCounters counters() const;

  // Creates the table, on every server. An equal table that is there already is the
  // result, so that all workers may call it; another one under the name gives ALREADY_EXISTS.
  std::future<absl::StatusOr<Table>> CreateTable(const TableSpec& spec,
                                                 const CallOptions& options = {});
  void CreateTable(const TableSpec& spec, const CallOptions& options,
                   absl::AnyInvocable<void(absl::StatusOr<Table>)> done);
  // NOT_FOUND without such a table.
  std::future<absl::StatusOr<Table>> OpenTable(const std::string& name,
                                               const CallOptions& options = {});
  std::future<absl::StatusOr<std::vector<Table>>> ListTables(const CallOptions& options = {});

  // CLIENT_ROLE: the client's one free-running session. Pulls work in every role; pushes
  // of a WORKER_ROLE client through it get FAILED_PRECONDITION.
  Session& free_running();
  // WORKER_ROLE: a rank that this process hosts, about to do `first_step`.
  // OUT_OF_RANGE for a rank outside the job, ALREADY_EXISTS if it is open already.
  absl::StatusOr<LogicalWorker*> OpenLogicalWorker(uint32_t rank, uint64_t first_step = 0);
  // The same at the step that the servers say: from now on they refuse whatever another process
  // sends for the rank (it gets ABORTED there). A step that the predecessor had ended in some
  // partitions is ended in the others; the session's step() is then the one to begin with.
  // DATA_LOSS if the partitions contradict each other.
  std::future<absl::StatusOr<LogicalWorker*>> TakeOver(uint32_t rank,
                                                       const CallOptions& options = {});
  void TakeOver(uint32_t rank, const CallOptions& options,
                absl::AnyInvocable<void(absl::StatusOr<LogicalWorker*>)> done);
  // The same for a rank of Assignment: in the incarnation that it has in this process's hands.
  std::future<absl::StatusOr<LogicalWorker*>> TakeOver(const LogicalWorkerAssignment& rank,
                                                       const CallOptions& options = {});
  // The process hosts the rank no more: the session goes as soon as its calls under way have ended,
  // and the rank may be opened or taken over again. Without effect if it is not open. REQUIRES:
  // nobody makes further calls through its session.
  void CloseLogicalWorker(uint32_t rank);

  // Done when all `parties` have called it with this name; ABORTED for all if one of
  // them gives up or dies. `party` is which of them this is, from 0. A name is used once. As many
  // parties as the job has ranks are the ranks: FAILED_PRECONDITION to a process that follows its
  // assignment and does not host rank `party`.
  std::future<absl::Status> Barrier(const std::string& name, uint32_t parties, uint32_t party,
                                    const CallOptions& options = {});
  void Barrier(const std::string& name, uint32_t parties, uint32_t party,
               const CallOptions& options, Callback done);

  // What the scheduler offers to the worker daemon; proto/scheduler.proto has each one's meaning.
  // `node` and `incarnation` are filled in.
  std::future<absl::StatusOr<GetAssignmentResponse>> Assignment(const CallOptions& options = {});
  void Assignment(GetAssignmentRequest request, const CallOptions& options,
                  absl::AnyInvocable<void(absl::StatusOr<GetAssignmentResponse>)> done);
  std::future<absl::Status> GiveUpRanks(GiveUpRanksRequest request,
                                        const CallOptions& options = {});
  std::future<absl::StatusOr<JoinGroupResponse>> JoinGroup(JoinGroupRequest request,
                                                           const CallOptions& options = {});
  std::future<absl::StatusOr<ExchangeInGroupResponse>> ExchangeInGroup(
      ExchangeInGroupRequest request, const CallOptions& options = {});
  std::future<absl::StatusOr<WatchGroupResponse>> WatchGroup(WatchGroupRequest request,
                                                             const CallOptions& options = {});
  void WatchGroup(WatchGroupRequest request, const CallOptions& options,
                  absl::AnyInvocable<void(absl::StatusOr<WatchGroupResponse>)> done);
  std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(
      ReportEvaluationRequest request, const CallOptions& options = {});
  // `ranks`: those that are done; empty: all that the process hosts.
  std::future<absl::Status> FinishWork(const WorkerProgress& progress,
                                       const CallOptions& options = {},
                                       absl::Span<const uint32_t> ranks = {});
  std::future<absl::StatusOr<GetStatusResponse>> GetStatus(const CallOptions& options = {});
  // Goes out with the next heartbeat.
  void SetProgress(const WorkerProgress& progress);

 private:
  Client(std::shared_ptr<Transport> transport, std::shared_ptr<ControlChannel> control,
         std::shared_ptr<ControlChannel> link, std::shared_ptr<ClientCore> core);

  // These outlive core_; their destructors wait for what is still running in it.
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<ControlChannel> control_;
  const std::shared_ptr<ControlChannel> link_;
  const std::shared_ptr<ClientCore> core_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_CLIENT_H_
