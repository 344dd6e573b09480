// The C interface of Pawl's client: what programs in other languages bind to.
//
// A pawl_client is one process's membership in a job. It has tables, which have numbers, and
// sessions: a free-running one, and one for each rank that the process hosts.
// client_lib/client.h, which this wraps, documents senders, steps, retries and limits.
// client_lib/c/example.c is a complete program.
//
// Calls. A function with a parameter `call` starts an operation and returns at once. PAWL_OK means
// that it has started, and *call must be released; any other code means that it has not, and *call
// is NULL. pawl_wait returns the operation's own code.
//
// Memory. An operation borrows the arrays of its items until it has ended; the items themselves are
// copied. Functions copy all strings that they get. A string that a function returns belongs to
// the object named in its comment.
//
// Errors. Functions return a pawl_code. pawl_error() then has the text.
//
// Threads. Every function may be called from any thread. Operations end on threads of the library,
// which never call the program. After fork() the child must not call any function.
//
// The interface only grows: functions keep their meaning, and structs get fields at their end. A
// program is compiled with the pawl.h of the library that it loads: structs that say another size
// are refused.
#ifndef PAWL_CLIENT_LIB_C_PAWL_H_
#define PAWL_CLIENT_LIB_C_PAWL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The codes of gRPC and Abseil. client_lib/client.h says when a call gets which.
typedef enum pawl_code {
  PAWL_PENDING = -1,  // pawl_wait only: the operation has not ended
  PAWL_OK = 0,
  PAWL_CANCELLED = 1,
  PAWL_UNKNOWN = 2,
  PAWL_INVALID_ARGUMENT = 3,
  PAWL_DEADLINE_EXCEEDED = 4,
  PAWL_NOT_FOUND = 5,
  PAWL_ALREADY_EXISTS = 6,
  PAWL_PERMISSION_DENIED = 7,
  PAWL_RESOURCE_EXHAUSTED = 8,
  PAWL_FAILED_PRECONDITION = 9,
  PAWL_ABORTED = 10,
  PAWL_OUT_OF_RANGE = 11,
  PAWL_UNIMPLEMENTED = 12,
  PAWL_INTERNAL = 13,
  PAWL_UNAVAILABLE = 14,
  PAWL_DATA_LOSS = 15,
  PAWL_UNAUTHENTICATED = 16
} pawl_code;

typedef struct pawl_client pawl_client;
typedef struct pawl_session pawl_session;
typedef struct pawl_call pawl_call;

// The version of the library, such as "0.2.0".
const char* pawl_version(void);

// The text of the last error of a function in this thread; valid until the next one.
const char* pawl_error(void);

// ---- Membership ----

typedef struct pawl_options {
  size_t size;  // sizeof(pawl_options)
  // The scheduler's host:port. Required.
  const char* scheduler;
  // As --tls_dir and --insecure of the daemons. NULL: the environment's PAWL_TLS_DIR. "": none, and
  // the environment's PAWL_TOKEN does not count either.
  const char* tls_dir;
  int insecure;
  // 0: a client without ranks. 1: a worker, which hosts ranks. The job waits for it and fails with
  // it.
  int is_worker;
  // A worker: take over and give up ranks as pawl_assignment says. If 0, it keeps the ranks that it
  // gets first.
  int follows_assignment;
  // `node` and `job_id` of pawl_describe in this process's previous incarnation, which the
  // registration ends; pawl_connect waits until that one has been silent for some heartbeats. NULL:
  // there was none.
  const char* node;
  uint64_t node_job_id;
  // Must grow with each pawl_connect as that node, across all its processes, by at most 2^20. 0:
  // not counted.
  uint32_t node_start_count;
  // Shown in logs and by `pawlctl nodes`. NULL: "host:pid".
  const char* description;
  // How long to wait for the scheduler and the job's servers. 0: 60 s.
  int64_t connect_timeout_ms;
  // The timeout of calls that set none. 0: 120 s.
  int64_t call_timeout_ms;
  // Whether the library may set malloc and Abseil's locks of this process to its needs, which
  // doubles the throughput of large calls.
  int tune_process;
  // A token (`pawlctl token`), or a file that holds one and is read again when it changes, instead
  // of a certificate; for clients without ranks. NULL: the environment's PAWL_TOKEN.
  const char* token;
  const char* token_file;
  // With a token: the file of the authorities that sign the daemons' certificates. NULL: ca.pem in
  // tls_dir.
  const char* authorities_file;
} pawl_options;

// Starts to join the job. *client is returned at once; other functions of it get
// PAWL_FAILED_PRECONDITION until the call has ended with PAWL_OK.
int pawl_connect(const pawl_options* options, pawl_client** client, pawl_call** call);

// Ends pending operations with PAWL_CANCELLED, leaves the job, and frees the client and its
// sessions. NULL is ignored. Call objects stay valid until they are released.
void pawl_disconnect(pawl_client* client);

// A JSON object: node, job_id, job (proto/job.proto), state, leave_requested, code and error
// (Client::status), counters. Belongs to the client until the next pawl_describe of it.
int pawl_describe(pawl_client* client, const char** json);

// Waits up to `timeout_ms` (-1: without limit) until the job has ended or the client's status is
// not OK: PAWL_OK. PAWL_PENDING: neither within the time.
int pawl_wait_for_end(pawl_client* client, int64_t timeout_ms);

// ---- Operations ----

// Waits up to `timeout_ms` (-1: without limit) and returns the operation's code, or PAWL_PENDING.
int pawl_wait(pawl_call* call, int64_t timeout_ms);

// A descriptor (eventfd) that becomes readable when the operation has ended. Belongs to the call.
// -1: the process has no descriptors left.
int pawl_call_fd(pawl_call* call);

// What an operation that ended with PAWL_OK returned, as JSON; "" if it returns nothing. Belongs to
// the call. REQUIRES: pawl_wait has not returned PAWL_PENDING.
const char* pawl_result(pawl_call* call);

// Frees the object. An operation that has not ended continues, and still borrows its arrays. NULL
// is ignored.
void pawl_release(pawl_call* call);

// ---- Tables ----

// `spec_json`: pawl.TableSpec (proto/types.proto) as JSON. Creates the table, or finds an equal
// one. Result: the spec with its `id`, by which items name the table.
int pawl_create_table(pawl_client* client, const char* spec_json, int64_t timeout_ms,
                      pawl_call** call);
// Result: the spec. PAWL_NOT_FOUND if there is no such table.
int pawl_open_table(pawl_client* client, const char* name, int64_t timeout_ms, pawl_call** call);
// Result: {"tables": [spec, ...]}.
int pawl_list_tables(pawl_client* client, int64_t timeout_ms, pawl_call** call);

// ---- Parameters ----

enum {
  // No key is repeated; saves the check.
  PAWL_KEYS_ARE_DISTINCT = 1,
  // Gradients travel as 16-bit numbers (PushItem::element_type).
  PAWL_BFLOAT16 = 2,
  PAWL_FLOAT16 = 4,
  // pawl_assign: the slots of existing rows stay as they are.
  PAWL_KEEP_SLOTS = 8
};

// Part of an operation on one table. The table's number comes from an operation that this client
// has made.
typedef struct pawl_item {
  uint32_t table;
  uint32_t flags;
  // SPARSE: the rows. DENSE: NULL for the whole tensor.
  const uint64_t* keys;
  size_t key_count;
  // SPARSE: row_width floats per key. DENSE: the whole tensor. Read by a push, written by a pull.
  float* values;
  size_t value_count;
  // The optimizer's slots (AssignItem::slots in client_lib/client.h): read by pawl_assign, written
  // by pawl_pull. NULL: none.
  float* slots;
  size_t slot_count;
} pawl_item;

// The session without steps. Belongs to the client. NULL: the client is not connected.
pawl_session* pawl_free_running(pawl_client* client);

// Session::Pull and Session::Push. `timeout_ms` 0: the client's call_timeout_ms. `step`: the later
// step that a rank's pull is for; -1: the present one.
int pawl_pull(pawl_session* session, const pawl_item* items, size_t count, int64_t step,
              int64_t timeout_ms, pawl_call** call);
int pawl_push(pawl_session* session, const pawl_item* items, size_t count, int64_t timeout_ms,
              pawl_call** call);
// Session::Assign: sets values, and slots if the items have them.
int pawl_assign(pawl_session* session, const pawl_item* items, size_t count, int64_t timeout_ms,
                pawl_call** call);
// Floats of slots for a row of the table, or for the whole tensor. 0: its optimizer has none, or
// this client has not created or opened the table.
size_t pawl_slot_count(pawl_client* client, uint32_t table);

// Client::Scan: reads the next rows of a sparse table in one partition, in ascending order of their
// keys. Borrows `keys` (room for `rows` keys), `values` (`rows` rows) and `slots` (their slots;
// NULL: not wanted). Result: {"rows": how many were written, "next_key": the first_key of the next
// page}, without next_key after the partition's last row. A table is scanned from key 0 in each of
// the job's partitions (pawl_describe).
int pawl_scan(pawl_client* client, uint32_t table, uint32_t partition, uint64_t first_key,
              uint64_t* keys, float* values, float* slots, size_t rows, int64_t timeout_ms,
              pawl_call** call);

// ---- Ranks: clients that are workers ----

// Result: pawl.GetAssignmentResponse (proto/scheduler.proto), once it is newer than the version:
// that of the latest answer that the program has acted on, 0 before the first.
int pawl_assignment(pawl_client* client, uint64_t newer_than_version, int64_t timeout_ms,
                    pawl_call** call);
// Starts to host a rank of the latest assignment, at the step that the servers report. Its session
// is pawl_rank once the operation has ended.
int pawl_take_over(pawl_client* client, uint32_t rank, int64_t timeout_ms, pawl_call** call);
// The session of a rank that this process hosts. Belongs to the client until pawl_close_rank. NULL:
// it hosts no such rank.
pawl_session* pawl_rank(pawl_client* client, uint32_t rank);
// The step to which calls made now belong; 0 if the session is not a rank's.
uint64_t pawl_step(pawl_session* session);
// LogicalWorker::SetLearningRates: from this step on, `rates[i]` for `tables[i]`. Rank 0 only.
int pawl_set_learning_rates(pawl_session* session, const uint32_t* tables, const float* rates,
                            size_t count, int64_t timeout_ms, pawl_call** call);
// LogicalWorker::EndStep.
int pawl_end_step(pawl_session* session, int64_t timeout_ms, pawl_call** call);
// Stops hosting the rank. Its session must not be used any more.
void pawl_close_rank(pawl_client* client, uint32_t rank);
// Returns ranks that have been taken over to the scheduler, for other workers. They must be closed.
int pawl_give_up_ranks(pawl_client* client, const uint32_t* ranks, size_t count, int64_t timeout_ms,
                       pawl_call** call);
// The rank's work is done. The job completes when that of all ranks is.
int pawl_finish_rank(pawl_client* client, uint32_t rank, const char* progress_json,
                     int64_t timeout_ms, pawl_call** call);
// `progress_json`: pawl.WorkerProgress (proto/scheduler.proto), sent with heartbeats from now on.
int pawl_report_progress(pawl_client* client, const char* progress_json);
// Reports a figure of the program's own, which the scheduler shows and writes to the learning curve
// (Client::LogMetric). Does not block; pawl_disconnect waits up to two seconds until the scheduler
// has it. PAWL_INVALID_ARGUMENT: the name or the value.
// PAWL_RESOURCE_EXHAUSTED: this client has reported 256 other names. Both name the limit.
int pawl_log_metric(pawl_client* client, const char* name, uint64_t step, double value);
// Done when all `parties` have called it with this name; each name is used once. If `parties` is
// the number of ranks, workers meet as the hosts of rank `party`, and clients meet apart from them.
int pawl_barrier(pawl_client* client, const char* name, uint32_t parties, uint32_t party,
                 int64_t timeout_ms, pawl_call** call);
// `report_json`: pawl.ReportEvaluationRequest; bytes are base64. Result:
// pawl.ReportEvaluationResponse.
int pawl_report_evaluation(pawl_client* client, const char* report_json, int64_t timeout_ms,
                           pawl_call** call);

// Result: pawl.GetStatusResponse, what `pawlctl status` shows.
int pawl_status(pawl_client* client, int64_t timeout_ms, pawl_call** call);

// ---- Keys ----

// Replaces the keys of each item, which may repeat, by the distinct ones in the order in which
// pushes of the item's table send them, so that gradients in this order are sent without a copy.
// The items have different tables. The keys are written to `distinct` item by item, and each item
// gets its own, their number, and PAWL_KEYS_ARE_DISTINCT. For each key of all items, `places` gets
// the position among the distinct keys of all items. `distinct` and `places` have room for the keys
// of all items. PAWL_NOT_FOUND if this client has not created or opened a table.
int pawl_unique_items(pawl_client* client, pawl_item* items, size_t count, uint64_t* distinct,
                      int64_t* places);

// ---- Pooling ----

// The keys of a batch, as bags: bag (feature, sample) has the number feature * samples + sample.
typedef struct pawl_bags {
  size_t size;            // sizeof(pawl_bags)
  const int64_t* places;  // the row of each key, bag by bag
  size_t place_count;
  const int64_t* offsets;  // where each bag's keys begin, and the end of the last; NULL: every bag
                           // has one key
  size_t features;
  size_t samples;
  size_t row_count;
  size_t width;         // numbers in a row
  size_t stride;        // numbers from a sample's vectors to those of the next; the vector of a
                        // feature begins feature * width numbers after the sample's first
  int64_t padding_row;  // a place that counts as no key; -1: none
  int takes_means;      // divide a bag's sum by its number of keys
} pawl_bags;

// Writes the sum or mean of each bag's rows to `pooled`, with the bits of torch's embedding_bag.
// These two functions need no client and do not wait. PAWL_INVALID_ARGUMENT: a place or offset is
// out of range; nothing has been written then.
int pawl_pool(const pawl_bags* bags, const float* rows, float* pooled);
// The gradient of pawl_pool: adds each bag's gradient to the gradients of its rows, key by key.
int pawl_pool_gradient(const pawl_bags* bags, const float* pooled_gradient, float* row_gradients);

// Writes the XXH64 of each string to `hashes`. The strings follow each other in `bytes`, and string
// i ends before ends[i]. With the seed XXH64(column, seed 0) they are the keys that the built-in
// models give to the categories of a column. Needs no client and does not wait. REQUIRES:
// ends[i] <= ends[i + 1].
void pawl_hash64(const char* bytes, const uint64_t* ends, size_t count, uint64_t seed,
                 uint64_t* hashes);

#ifdef __cplusplus
}
#endif

#endif  // PAWL_CLIENT_LIB_C_PAWL_H_
