// Pawl's C++ client: how a program trains against the servers of a job.
//
// A Client is one process's membership in a job. It creates tables and opens sessions. A Session
// pushes gradients and pulls parameters. Example:
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
//   const pawl::PullItem pull = {.table = table, .keys = keys, .values = absl::MakeSpan(rows)};
//   PAWL_RETURN_IF_ERROR(session.Pull({pull}).get());
//   ... compute gradients ...
//   const pawl::PushItem push = {.table = table, .keys = keys, .gradients = gradients};
//   PAWL_RETURN_IF_ERROR(session.Push({push}).get());
//
// client_lib/example/ contains a complete program.
//
// # Senders
//
// A *free-running* session (Client::free_running) has no steps: servers apply its pushes on arrival
// and answer its pulls at once. Use it for tools, for serving, and for training loops without
// ranks.
//
// A *logical worker* (Client::OpenLogicalWorker, Client::TakeOver) is one rank of the job's data
// parallelism. It executes steps 0, 1, 2, ...: in each it pulls, pushes and calls EndStep. The
// job's consistency mode decides when its pulls are answered and when its pushes are applied
// (README.md, "Consistency").
//
// # Calls
//
// - Calls are asynchronous. Each returns a future at once, or takes a callback instead.
// - A callback runs exactly once: on a thread of the library, or on a thread that makes a call of
//   the client, closes a session or destroys the client, before that returns. So do not hold a lock
//   there that a callback takes. A callback must not block and must not destroy the client. It may
//   make further calls.
// - Calls have a deadline (CallOptions::timeout). Until then the library retries and hides the
//   loss of servers, connections and messages. A retry uses the same push id, so nothing is
//   applied twice.
// - Calls may be made from any thread.
// - Calls borrow memory. What the spans of an item refer to must stay valid and unchanged
//   until the callback runs or the future is ready. The items themselves are copied.
//
// # Failures
//
// A server that dies, moves or returns delays calls but does not fail them: they wait for the
// partition's new primary until their deadline. An absent scheduler does not affect pushes and
// pulls. A client that has heard nothing from the scheduler for an hour (at most two), and has sent
// nothing to the servers meanwhile, gets UNAVAILABLE, because the job may have ended without it.
//
// If the job fails (for example, all servers with some partition are lost), every pending and later
// call ends with FAILED_PRECONDITION and the scheduler's message, which names the cause. The same
// holds when the job is stopped, and for a client that was declared dead and joins again when the
// job has ended. A worker that the scheduler of a running job has declared dead gets ABORTED,
// because other workers may have its ranks.
//
// A client without ranks that was declared dead joins again by itself; its pushes and pulls
// continue under its old number. If another client has received that number in between, its pushes
// get ABORTED from then on.
//
// # Status codes
//
//   INVALID_ARGUMENT     the call is malformed (table, keys, lengths) and nothing was sent, or a
//                        server refused the content (NaN)
//   OUT_OF_RANGE         a rank outside the job
//   NOT_FOUND            no such table
//   ALREADY_EXISTS       the name of a table has another spec, or the rank is open already
//   DEADLINE_EXCEEDED    not done in time; a push may have been applied or not
//   RESOURCE_EXHAUSTED   one of the limits below
//   FAILED_PRECONDITION  the job has failed or was stopped; or a step is out of order
//   ABORTED              the client is no longer a member of the job, or another process has taken
//                        over the rank
//   DATA_LOSS            the partitions contradict each other about a rank's steps
//   CANCELLED            the client is being destroyed
//   UNAVAILABLE          the scheduler has been absent for too long (see above)
//   UNAUTHENTICATED      the token has expired or was revoked, or the certificate is of another job
//   PERMISSION_DENIED    the role of the certificate or token does not allow the call
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
#include "client_lib/security/security_options.h"
#include "client_lib/table.h"
#include "proto/scheduler.pb.h"

namespace pawl {

class ClientCore;
class ControlChannel;
class Transport;

// Limits. A call beyond one gets RESOURCE_EXHAUSTED, or INVALID_ARGUMENT if waiting cannot help.
//
// Calls of a session that wait for EndStep or for earlier calls; and calls of all sessions of a
// client, pushes and pulls counted separately, that wait because of kMaxCallsInFlight or
// ClientOptions::max_bytes_in_flight.
inline constexpr size_t kMaxWaitingCalls = 4096;
// Calls of a client in flight, pushes and pulls counted separately; further calls wait.
inline constexpr size_t kMaxCallsInFlight = 4096;
// Tables in one call.
inline constexpr size_t kMaxItemsInCall = 1024;
// Keys in one item; positions have 32 bits.
inline constexpr size_t kMaxKeysInItem = size_t{1} << 30;
// Push segments (1 MiB of values each) in flight to one partition: the window within which servers
// detect duplicates. Later pushes wait. A single call with more segments gets INVALID_ARGUMENT.
inline constexpr uint64_t kMaxSegmentsAhead = 1024;

using Callback = absl::AnyInvocable<void(absl::Status)>;

struct ClientOptions {
  // The scheduler's host:port. Required.
  std::string scheduler;
  // A certificate or a token. Required unless the scheduler is on this machine. Without it, the
  // environment's PAWL_TOKEN and PAWL_TLS_DIR count (WithEnvironmentOrToken) unless
  // ignores_environment is set, as for a cluster that has nothing to do with the environment's.
  SecurityOptions security;
  bool ignores_environment = false;
  // WORKER_ROLE for a process that hosts logical workers: the job waits for it and fails with it.
  Role role = CLIENT_ROLE;
  // WORKER_ROLE: the ranks to host. Empty: the scheduler assigns ranks (Client::Assignment).
  std::vector<uint32_t> logical_workers;
  // WORKER_ROLE without logical_workers: the process calls Client::Assignment again after each
  // answer, and takes over and gives up ranks as the answers say. If false, it keeps the ranks that
  // it gets first.
  bool follows_assignment = false;
  // WORKER_ROLE: Client::node() and Client::job_id() of this process's previous incarnation, which
  // the registration ends; Connect waits until that one has been silent for some heartbeats. Empty:
  // there was none. Ignored if the scheduler runs another job.
  std::string node;
  uint64_t node_job_id = 0;
  // Must grow with each Connect as that node, across all its processes, by at most 2^20, so that
  // late messages of a dead process are recognised; 0: not counted.
  uint32_t node_start_count = 0;
  // The name shown in logs and by `pawlctl nodes`; empty: "host:pid".
  std::string description;
  // How long Connect waits for the scheduler and for the job's servers.
  MonotonicDuration connect_timeout = std::chrono::seconds(60);
  // How the connections of `transport` and so on are protected, for the job's status. Connect sets
  // it; may be null.
  std::function<SecurityReport()> security_report;
  // Called every 50 ms while Connect waits; Connect returns its error, if any. May be null.
  std::function<absl::Status()> check_interrupted;
  // The timeout of calls that set none. It is long because a logical worker's pull waits for its
  // peers; a failure of the job ends calls sooner.
  MonotonicDuration call_timeout = std::chrono::seconds(120);
  // The limit on bytes of keys and values in flight, for pushes and pulls separately. Calls beyond
  // it wait, without being copied. A single larger call is sent when nothing else is in flight.
  size_t max_bytes_in_flight = size_t{256} << 20;
  // Doubles the throughput by two process-wide settings: malloc keeps freed memory
  // (client_lib/process/malloc_tuning.h), and Abseil's deadlock detection is turned off. Set it to
  // false in a program that controls these itself.
  bool tune_process = true;

  const Clock* clock = &Clock::Real();
};

struct CallOptions {
  // Counted from the call; unset: ClientOptions::call_timeout.
  std::optional<MonotonicDuration> timeout = std::nullopt;
  // For a logical worker's pull: the later step that it is for. The pull is sent at once and
  // answered when the parameters of that step exist, so that the next batch can be fetched early.
  std::optional<uint64_t> step = std::nullopt;
};

// Gradients for one table.
struct PushItem {
  Table table = {};
  // Sparse: the keys of the rows. Gradients of a repeated key are summed, in the given order,
  // before they are sent. Dense: empty for the whole tensor, or the numbers of some of its blocks,
  // ascending (proto/types.proto, TableKind).
  absl::Span<const uint64_t> keys = {};
  // Sparse: row_width floats per key. Dense: the whole tensor, or the given blocks one after the
  // other. FLOAT32 gradients of dense tables, and of distinct keys in the order of their
  // partitions, are sent from this memory without a copy.
  absl::Span<const float> gradients = {};
  // The caller guarantees that no key is repeated; saves the check.
  bool keys_are_distinct = false;
  // The type in which the gradients travel. BFLOAT16 and FLOAT16 halve the bytes; each number is
  // rounded to nearest (client_lib/base/half.h), and servers apply the rounded number. BFLOAT16
  // keeps 8 binary digits of any float. FLOAT16 keeps 11, for numbers down to 2^28 times smaller
  // than the largest of their segment, which has about 2^18 numbers (PushSegment.exponent).
  ElementType element_type = FLOAT32;
};

// Weights for rows or blocks of one table.
struct AssignItem {
  Table table = {};
  // Sparse: the keys of the rows, each once. Dense: as in PushItem.
  absl::Span<const uint64_t> keys = {};
  // As PushItem::gradients.
  absl::Span<const float> values = {};
  // The slots of the optimizer: Table::SlotFloats(row_width) floats per key, or per block, in the
  // order of server/optimizer/README.md. The last float of a row or block of Adam or AdamW is the
  // number of its updates. Empty: the slots get their initial values.
  absl::Span<const float> slots = {};
  // Leaves the slots of existing rows as they are. REQUIRES: `slots` is empty.
  bool keep_slots = false;
  // The caller guarantees that no key is repeated; saves the check.
  bool keys_are_distinct = false;
};

// Destination memory for parameters of one table.
struct PullItem {
  Table table = {};
  // Sparse: the keys of the rows; a repeated key is fetched once. Dense: empty.
  absl::Span<const uint64_t> keys = {};
  // Sparse: row_width floats per key, in the order of `keys`. Dense: the whole tensor. The content
  // is undefined if the call fails.
  absl::Span<float> values = {};
  bool keys_are_distinct = false;
  // Unless empty: gets the slots, as in AssignItem. Numbers of updates above 2^24 are rounded.
  absl::Span<float> slots = {};
};

// Destination memory for a page of the rows of a sparse table; see Client::Scan.
struct ScanItem {
  Table table = {};
  // 0 to job().partitions() - 1.
  uint32_t partition = 0;
  // The page begins with the first row whose key is not below it.
  uint64_t first_key = 0;
  // Gets the keys, ascending. Its size is the largest number of rows.
  absl::Span<uint64_t> keys = {};
  // Gets the rows: row_width floats for each of `keys`.
  absl::Span<float> values = {};
  // Unless empty: gets the slots, Table::SlotFloats(row_width) floats for each of `keys`, as in
  // PullItem.
  absl::Span<float> slots = {};
};

struct ScanPage {
  // The first ones of `keys` that are filled in.
  size_t rows = 0;
  // The first_key of the next page; nullopt: the partition has no further row.
  std::optional<uint64_t> next_key;
};

// A sender of pushes and pulls. Thread-safe, but see Push about order. It exists until its client
// is destroyed, or until CloseLogicalWorker.
//
// A failed Push, Assign or EndStep breaks the session, because later pushes may not be applied
// without it: every waiting and every further call gets the same status. A call that is refused at
// once (INVALID_ARGUMENT for its items, RESOURCE_EXHAUSTED) is different. In a logical worker's
// session it breaks further calls, since the step would lack the push, but not earlier ones; the
// pull of a PushPull counts as a further call. In a free-running session, which has no steps, it
// has no effect.
//
// To recover a broken logical worker, call CloseLogicalWorker and TakeOver, and repeat the pushes
// of the step from the first one, identical and in the same order. Servers recognise segments that
// have arrived by their position in the step only: a different push in the same position is
// answered with OK and lost. After a broken free-running session, push through another Client.
class Session {
 public:
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Done when every server has accepted its part, once. Calls may overlap. Their order determines
  // the push ids: in SYNC mode a recomputed step must make the same pushes, with the same keys, in
  // the same order, so make them from one thread. A failed call may have been accepted in part.
  std::future<absl::Status> Push(absl::Span<const PushItem> items, const CallOptions& options = {});
  virtual void Push(absl::Span<const PushItem> items, const CallOptions& options,
                    Callback done) = 0;

  // Sets weights, and perhaps slots. Done when every server has accepted its part, once. The
  // session starts an assignment when its earlier pushes and assignments are done, and its later
  // pushes and steps when the assignment is done. A row that does not exist is created. Servers
  // apply an assignment on arrival, in every consistency mode.
  //
  // A free-running session may assign at any time. A logical worker may assign only in the job's
  // first step, in SYNC mode before any gradient: FAILED_PRECONDITION otherwise. The other ranks
  // wait for it (Client::Barrier) before they pull at step 0, or nothing is trained in step 0. In
  // SYNC mode the result then has the same bits, whatever is killed.
  std::future<absl::Status> Assign(absl::Span<const AssignItem> items,
                                   const CallOptions& options = {});
  virtual void Assign(absl::Span<const AssignItem> items, const CallOptions& options,
                      Callback done) = 0;

  // Done when all values have arrived. Changes no state: an absent row reads as its initial value.
  // Not ordered after pushes in flight; wait for a push to see its effect. A logical worker's pull
  // after EndStep is sent when EndStep is done, unless options.step is set.
  std::future<absl::Status> Pull(absl::Span<const PullItem> items, const CallOptions& options = {});
  virtual void Pull(absl::Span<const PullItem> items, const CallOptions& options,
                    Callback done) = 0;

  // A Push, followed when it is done by a Pull, within one deadline. A logical worker's pull is for
  // the step that the push belongs to. In SYNC mode it therefore does not see the push, which is
  // applied when the step closes.
  std::future<absl::Status> PushPull(absl::Span<const PushItem> pushes,
                                     absl::Span<const PullItem> pulls,
                                     const CallOptions& options = {});
  virtual void PushPull(absl::Span<const PushItem> pushes, absl::Span<const PullItem> pulls,
                        const CallOptions& options, Callback done) = 0;

 protected:
  Session() = default;
};

// The learning rate of a table from now on.
struct LearningRateItem {
  Table table = {};
  // Replaces the rate in the table's spec; its schedule multiplies this one instead. Above 0.
  float learning_rate = 0;
};

// A rank of the job, from Client::OpenLogicalWorker or Client::TakeOver.
class LogicalWorker : public Session {
 public:
  virtual uint32_t rank() const = 0;

  // The step to which calls made now belong.
  virtual uint64_t step() const = 0;

  // Rank 0 only: sets learning rates, each table once. In SYNC mode they take effect when the step
  // closes, before its gradients are applied; otherwise when they arrive at the servers. They hold
  // until they are set again. Part of the step like a Push: a recomputed step must repeat it.
  std::future<absl::Status> SetLearningRates(absl::Span<const LearningRateItem> items,
                                             const CallOptions& options = {});
  virtual void SetLearningRates(absl::Span<const LearningRateItem> items,
                                const CallOptions& options, Callback done) = 0;

  // Ends the step; later calls belong to the next one. The library sends the end once all pushes of
  // the step are acknowledged, and delays later calls until every server has answered it. Call it
  // once per step, even if the rank pushed nothing.
  //
  // With Job.clip_global_norm the step closes some time after all ranks have ended it, which is
  // when EndStep is done: the library then closes it in the background. The rank's later pulls,
  // pushes and ends wait for that, and so do FinishWork and ReportEvaluation; pulls of free-running
  // sessions do not.
  std::future<absl::Status> EndStep(const CallOptions& options = {});
  virtual void EndStep(const CallOptions& options, Callback done) = 0;
};

// Statistics since the client connected.
struct ClientCounters {
  // Push segments that servers accepted, recognised as duplicates, and dropped as late.
  uint64_t segments_accepted = 0;
  uint64_t segments_deduplicated = 0;
  uint64_t segments_late = 0;
  // Messages sent to servers, retries included.
  uint64_t messages = 0;
  // Retries of failed messages. Excludes messages that only waited for long on a server.
  uint64_t retries = 0;
  // How often a newer routing table was adopted.
  uint64_t routing_changes = 0;
};

// Thread-safe.
class Client {
 public:
  // Registers with the scheduler, starts heartbeats, and waits until the job has a routing table.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ClientOptions options);
  // The same without gRPC, for tests: `transport` reaches the servers and `control` the scheduler.
  // `link` carries heartbeats and routing, unless null.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      ClientOptions options, std::shared_ptr<Transport> transport,
      std::shared_ptr<ControlChannel> control, std::shared_ptr<ControlChannel> link = nullptr);

  // Ends pending calls with CANCELLED, waits for their callbacks, and says goodbye to the
  // scheduler. If a callback does not return within a minute, it will never return: the process
  // logs that and aborts.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The name given at the first registration, such as "worker-1".
  const std::string& node() const;
  uint64_t incarnation() const;
  uint64_t job_id() const;
  // How long the job may stand still before the scheduler ends it. A call that waits for other
  // workers should wait longer.
  MonotonicDuration stall_timeout() const;
  const Job& job() const;

  // As of the latest heartbeat.
  JobState job_state() const;
  // OK, or the error with which all calls fail: see "Failures" above.
  absl::Status status() const;
  // Waits up to `timeout` until the job has ended (COMPLETED, FAILED or STOPPED) or status() is not
  // OK. Returns whether that is so.
  bool WaitForEnd(MonotonicDuration timeout) const;
  // WORKER_ROLE: an operator has drained this worker or scaled the job down. The process must end
  // its step and exit.
  bool leave_requested() const;
  ClientCounters counters() const;

  // Creates the table on every server, or returns an existing equal one, so that all workers may
  // call it. ALREADY_EXISTS if the name has another spec.
  std::future<absl::StatusOr<Table>> CreateTable(const TableSpec& spec,
                                                 const CallOptions& options = {});
  void CreateTable(const TableSpec& spec, const CallOptions& options,
                   absl::AnyInvocable<void(absl::StatusOr<Table>)> done);
  // NOT_FOUND if there is no such table.
  std::future<absl::StatusOr<Table>> OpenTable(const std::string& name,
                                               const CallOptions& options = {});
  void OpenTable(const std::string& name, const CallOptions& options,
                 absl::AnyInvocable<void(absl::StatusOr<Table>)> done);
  std::future<absl::StatusOr<std::vector<Table>>> ListTables(const CallOptions& options = {});
  void ListTables(const CallOptions& options,
                  absl::AnyInvocable<void(absl::StatusOr<std::vector<Table>>)> done);

  // Reads a page of the rows of a sparse table in one partition. Changes no state and waits for no
  // step. A table is scanned partition by partition, each from key 0 until ScanPage::next_key is
  // nullopt. Each row that exists during the whole scan is in exactly one page, whatever servers
  // are lost or partitions moved meanwhile; a row that is created meanwhile is in one page or in
  // none. Each page is the state of its partition at one moment. Servers give at most 4 MiB a page,
  // and look at every key of the table in the partition for each, so do not ask for small pages.
  std::future<absl::StatusOr<ScanPage>> Scan(const ScanItem& item, const CallOptions& options = {});
  void Scan(const ScanItem& item, const CallOptions& options,
            absl::AnyInvocable<void(absl::StatusOr<ScanPage>)> done);

  // The client's only free-running session. Pulls work in every role. Pushes require CLIENT_ROLE;
  // in WORKER_ROLE they get FAILED_PRECONDITION.
  Session& free_running();
  // WORKER_ROLE: opens a rank that this process hosts, at `first_step`. OUT_OF_RANGE for a rank
  // outside the job, ALREADY_EXISTS if it is open.
  absl::StatusOr<LogicalWorker*> OpenLogicalWorker(uint32_t rank, uint64_t first_step = 0);
  // Opens a rank at the step that the servers report. From then on they refuse what any other
  // process sends for the rank (ABORTED). If the predecessor had ended a step in some partitions
  // only, TakeOver ends it in the others; the result's step() is the step to continue with.
  // DATA_LOSS if the partitions contradict each other.
  std::future<absl::StatusOr<LogicalWorker*>> TakeOver(uint32_t rank,
                                                       const CallOptions& options = {});
  void TakeOver(uint32_t rank, const CallOptions& options,
                absl::AnyInvocable<void(absl::StatusOr<LogicalWorker*>)> done);
  // Takes over a rank of an Assignment, in the incarnation given there.
  std::future<absl::StatusOr<LogicalWorker*>> TakeOver(const LogicalWorkerAssignment& rank,
                                                       const CallOptions& options = {});
  void TakeOver(const LogicalWorkerAssignment& rank, const CallOptions& options,
                absl::AnyInvocable<void(absl::StatusOr<LogicalWorker*>)> done);
  // Stops hosting the rank. The session disappears once its calls in flight have ended; the rank
  // may then be opened or taken over again. No effect if the rank is not open. REQUIRES: no further
  // calls are made through its session.
  void CloseLogicalWorker(uint32_t rank);

  // Done when all `parties` have called it with this name. ABORTED for all if one of them gives up
  // or dies. `party` is the caller's index, from 0. Each name is used once. If `parties` is the
  // number of ranks, the parties of workers are the ranks: FAILED_PRECONDITION to a worker that
  // does not host rank `party`. Clients that use the same name then meet apart from the workers.
  std::future<absl::Status> Barrier(const std::string& name, uint32_t parties, uint32_t party,
                                    const CallOptions& options = {});
  void Barrier(const std::string& name, uint32_t parties, uint32_t party,
               const CallOptions& options, Callback done);

  // Calls for the worker daemon; see proto/scheduler.proto. The client fills in `node` and
  // `incarnation`.
  std::future<absl::Status> AgreeOnData(const DataFingerprint& data,
                                        const CallOptions& options = {});
  std::future<absl::StatusOr<GetAssignmentResponse>> Assignment(const CallOptions& options = {});
  void Assignment(GetAssignmentRequest request, const CallOptions& options,
                  absl::AnyInvocable<void(absl::StatusOr<GetAssignmentResponse>)> done);
  std::future<absl::Status> GiveUpRanks(GiveUpRanksRequest request,
                                        const CallOptions& options = {});
  void GiveUpRanks(GiveUpRanksRequest request, const CallOptions& options, Callback done);
  std::future<absl::StatusOr<JoinGroupResponse>> JoinGroup(JoinGroupRequest request,
                                                           const CallOptions& options = {});
  std::future<absl::StatusOr<ExchangeInGroupResponse>> ExchangeInGroup(
      ExchangeInGroupRequest request, const CallOptions& options = {});
  void WatchGroup(WatchGroupRequest request, const CallOptions& options,
                  absl::AnyInvocable<void(absl::StatusOr<WatchGroupResponse>)> done);
  std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(
      ReportEvaluationRequest request, const CallOptions& options = {});
  void ReportEvaluation(ReportEvaluationRequest request, const CallOptions& options,
                        absl::AnyInvocable<void(absl::StatusOr<ReportEvaluationResponse>)> done);
  // `ranks`: the finished ranks; empty: all that the process hosts (INVALID_ARGUMENT to a process
  // that follows its assignment). Their last steps close first (LogicalWorker::EndStep), unless
  // `progress` reports a failure. Outside of SYNC, servers refuse later pushes of these ranks.
  std::future<absl::Status> FinishWork(const WorkerProgress& progress,
                                       const CallOptions& options = {},
                                       absl::Span<const uint32_t> ranks = {});
  void FinishWork(const WorkerProgress& progress, const CallOptions& options,
                  absl::Span<const uint32_t> ranks, Callback done);
  std::future<absl::StatusOr<GetStatusResponse>> GetStatus(const CallOptions& options = {});
  void GetStatus(const CallOptions& options,
                 absl::AnyInvocable<void(absl::StatusOr<GetStatusResponse>)> done);
  // Sent with the next heartbeat.
  void SetProgress(const WorkerProgress& progress);
  // Reports a figure of the program's own to the scheduler, with the next heartbeat, repeatedly
  // until the scheduler has it in memory. The destructor waits up to two seconds for that. A
  // scheduler that dies continues with the figures that it had up to ten seconds before. It keeps
  // and shows the latest figure of each name: the highest step counts, and of equal steps the last
  // report. INVALID_ARGUMENT: the name has not 1 to 128 letters, digits and "_./-", or the value is
  // not finite. RESOURCE_EXHAUSTED: this client has reported 256 other names; the scheduler ignores
  // further names of the whole job, with a line in its log. FAILED_PRECONDITION: the client is no
  // worker. Does not block.
  absl::Status LogMetric(const std::string& name, uint64_t step, double value);

 private:
  Client(std::shared_ptr<Transport> transport, std::shared_ptr<ControlChannel> control,
         std::shared_ptr<ControlChannel> link, std::shared_ptr<ClientCore> core);

  // These outlive core_. Their destructors wait for callbacks that still run in it.
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<ControlChannel> control_;
  const std::shared_ptr<ControlChannel> link_;
  const std::shared_ptr<ClientCore> core_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_CLIENT_H_
