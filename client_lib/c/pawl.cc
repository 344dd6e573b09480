#include "client_lib/c/pawl.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/c/call.h"
#include "client_lib/c/distinct_keys.h"
#include "client_lib/c/error.h"
#include "client_lib/client.h"
#include "client_lib/rpc/version.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "proto/scheduler.pb.h"

struct pawl_call {
  std::shared_ptr<pawl::c::CallState> state;
};

namespace pawl::c {

// What the operations of a client share. They may end after pawl_disconnect has begun.
struct Membership {
  // Ends Connect.
  std::atomic<bool> disconnecting = false;

  absl::Mutex mutex;
  // Null until the client is connected, and while it disconnects.
  std::unique_ptr<Client> client ABSL_GUARDED_BY(mutex);
  // By number.
  absl::flat_hash_map<uint32_t, Table> tables ABSL_GUARDED_BY(mutex);
  GetAssignmentResponse assignment ABSL_GUARDED_BY(mutex);
  std::unique_ptr<pawl_session> free_running ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<uint32_t, std::unique_ptr<pawl_session>> ranks ABSL_GUARDED_BY(mutex);
  // For each rank that has been taken over and not given up. A later assignment may lack it.
  absl::flat_hash_map<uint32_t, LogicalWorkerAssignment> taken_over ABSL_GUARDED_BY(mutex);
  // What pawl_describe returned last.
  std::string description ABSL_GUARDED_BY(mutex);
};

}  // namespace pawl::c

struct pawl_session {
  pawl::c::Membership* membership;
  pawl::Session* session;
  // Null for the free-running session.
  pawl::LogicalWorker* rank;
};

struct pawl_client {
  std::shared_ptr<pawl::c::Membership> membership;
  // Runs Client::Connect.
  std::thread connecting;
};

namespace pawl::c {
namespace {

absl::Status NotConnected() {
  return absl::FailedPreconditionError(
      "the client is not connected: wait for the call of pawl_connect first");
}

// With the names of the proto files, and fields at their default left out.
std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Every message that Pawl's peers send is valid UTF-8 and has no Any: this cannot fail.
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : "{}";
}

template <typename Message>
absl::StatusOr<Message> FromJson(const char* json, absl::string_view what) {
  if (json == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  if (status.ok()) return message;
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": ", absl::string_view(status.message().data(), status.message().size())));
}

CallOptions Timeout(int64_t timeout_ms) {
  CallOptions options;
  if (timeout_ms > 0) options.timeout = std::chrono::milliseconds(timeout_ms);
  return options;
}

// The connected client; null while there is none.
Client* Connected(const pawl_client* client) {
  if (client == nullptr) return nullptr;
  const absl::MutexLock lock(&client->membership->mutex);
  return client->membership->client.get();
}

// Starts an operation: `start` gets the state that the operation's callback ends.
template <typename Start>
int StartCall(pawl_call** call, Start start) {
  *call = nullptr;
  auto state = std::make_shared<CallState>();
  if (const absl::Status status = start(state); !status.ok()) return Fail(status);
  *call = new pawl_call{std::move(state)};
  return PAWL_OK;
}

// As StartCall, for an operation of a connected client.
template <typename Start>
int StartClientCall(pawl_client* client, pawl_call** call, Start start) {
  return StartCall(call, [&](std::shared_ptr<CallState> state) -> absl::Status {
    Client* const connected = Connected(client);
    if (connected == nullptr) return NotConnected();
    return start(*connected, client->membership, std::move(state));
  });
}

absl::StatusOr<std::string> AsNothing(absl::Status status) {
  if (!status.ok()) return status;
  return std::string();
}

Callback EndsWithNothing(std::shared_ptr<CallState> state) {
  return
      [state = std::move(state)](absl::Status status) { state->End(AsNothing(std::move(status))); };
}

template <typename Message>
auto EndsWithJson(std::shared_ptr<CallState> state) {
  return [state = std::move(state)](const absl::StatusOr<Message>& message) {
    if (message.ok()) {
      state->End(ToJson(*message));
    } else {
      state->End(message.status());
    }
  };
}

// Remembers the table, so that items can name it by its number.
absl::StatusOr<std::string> Remember(Membership& membership, const absl::StatusOr<Table>& table) {
  if (!table.ok()) return table.status();
  const absl::MutexLock lock(&membership.mutex);
  membership.tables.insert_or_assign(table->id(), *table);
  return ToJson(table->spec());
}

absl::StatusOr<Table> FindTable(Membership& membership, uint32_t number) {
  const absl::MutexLock lock(&membership.mutex);
  const auto found = membership.tables.find(number);
  if (found != membership.tables.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      "table ", number, ": this client has neither created nor opened a table of this number"));
}

constexpr uint32_t kAllFlags =
    PAWL_KEYS_ARE_DISTINCT | PAWL_BFLOAT16 | PAWL_FLOAT16 | PAWL_KEEP_SLOTS;

absl::Status CheckItem(const pawl_item& item) {
  if ((item.flags & ~kAllFlags) != 0)
    return absl::InvalidArgumentError(absl::StrCat("unknown flags ", item.flags & ~kAllFlags));
  if ((item.flags & PAWL_BFLOAT16) != 0 && (item.flags & PAWL_FLOAT16) != 0)
    return absl::InvalidArgumentError("an item has one element type, BFLOAT16 or FLOAT16");
  if ((item.keys == nullptr && item.key_count > 0) ||
      (item.values == nullptr && item.value_count > 0) ||
      (item.slots == nullptr && item.slot_count > 0))
    return absl::InvalidArgumentError("an array is NULL");
  return absl::OkStatus();
}

// Converts items; `convert` gets the item and its table.
template <typename Item, typename Convert>
absl::StatusOr<absl::InlinedVector<Item, 8>> Converted(Membership& membership,
                                                       const pawl_item* items, size_t count,
                                                       Convert convert) {
  if (items == nullptr && count > 0) return absl::InvalidArgumentError("items is NULL");
  absl::InlinedVector<Item, 8> converted;
  for (size_t i = 0; i < count; ++i) {
    PAWL_RETURN_IF_ERROR(Annotate(CheckItem(items[i]), absl::StrCat("item ", i)));
    absl::StatusOr<Table> table = FindTable(membership, items[i].table);
    if (!table.ok()) return Annotate(table.status(), absl::StrCat("item ", i));
    converted.push_back(convert(items[i], *std::move(table)));
  }
  return converted;
}

absl::StatusOr<LogicalWorkerAssignment> AssignedRank(Membership& membership, uint32_t rank) {
  const absl::MutexLock lock(&membership.mutex);
  for (const LogicalWorkerAssignment& assigned : membership.assignment.logical_workers()) {
    if (assigned.rank() == rank) return assigned;
  }
  return absl::NotFoundError(
      absl::StrCat("rank ", rank, " is not in the latest answer of pawl_assignment"));
}

absl::StatusOr<LogicalWorkerAssignment> TakenOverRank(Membership& membership, uint32_t rank) {
  const absl::MutexLock lock(&membership.mutex);
  const auto found = membership.taken_over.find(rank);
  if (found != membership.taken_over.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("rank ", rank, " has not been taken over"));
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

}  // namespace
}  // namespace pawl::c

using pawl::c::AsNothing;
using pawl::c::AssignedRank;
using pawl::c::CallState;
using pawl::c::Converted;
using pawl::c::EndsWithJson;
using pawl::c::EndsWithNothing;
using pawl::c::Fail;
using pawl::c::Membership;
using pawl::c::Remember;
using pawl::c::StartCall;
using pawl::c::StartClientCall;
using pawl::c::TakenOverRank;
using pawl::c::Text;
using pawl::c::Timeout;
using pawl::c::ToJson;
using Shared = std::shared_ptr<Membership>;
using State = std::shared_ptr<CallState>;

const char* pawl_version(void) { return pawl::kVersion; }

int pawl_connect(const pawl_options* options, pawl_client** client, pawl_call** call) {
  *client = nullptr;
  return StartCall(call, [&](State state) -> absl::Status {
    if (options == nullptr || options->size != sizeof(pawl_options)) {
      return absl::InvalidArgumentError(
          "pawl_options.size is not that of this library: use its own pawl.h");
    }
    pawl::ClientOptions converted;
    converted.scheduler = Text(options->scheduler);
    converted.security.tls_dir = Text(options->tls_dir);
    converted.security.insecure = options->insecure != 0;
    converted.security.token = Text(options->token);
    converted.security.token_file = Text(options->token_file);
    converted.security.authorities_file = Text(options->authorities_file);
    converted.role = options->is_worker != 0 ? pawl::WORKER_ROLE : pawl::CLIENT_ROLE;
    converted.follows_assignment = options->follows_assignment != 0;
    converted.node = Text(options->node);
    converted.node_job_id = options->node_job_id;
    converted.node_start_count = options->node_start_count;
    converted.description = Text(options->description);
    if (options->connect_timeout_ms > 0)
      converted.connect_timeout = std::chrono::milliseconds(options->connect_timeout_ms);
    if (options->call_timeout_ms > 0)
      converted.call_timeout = std::chrono::milliseconds(options->call_timeout_ms);
    converted.tune_process = options->tune_process != 0;
    auto created = std::make_unique<pawl_client>();
    created->membership = std::make_shared<Membership>();
    converted.check_interrupted = [membership = created->membership] {
      return membership->disconnecting ? absl::CancelledError("the client is disconnecting")
                                       : absl::OkStatus();
    };
    created->connecting = std::thread([membership = created->membership, state = std::move(state),
                                       converted = std::move(converted)]() mutable {
      absl::StatusOr<std::unique_ptr<pawl::Client>> connected =
          pawl::Client::Connect(std::move(converted));
      if (connected.ok()) {
        const absl::MutexLock lock(&membership->mutex);
        membership->client = *std::move(connected);
        membership->free_running = std::make_unique<pawl_session>(
            pawl_session{membership.get(), &membership->client->free_running(), nullptr});
      }
      state->End(AsNothing(connected.status()));
    });
    *client = created.release();
    return absl::OkStatus();
  });
}

void pawl_disconnect(pawl_client* client) {
  if (client == nullptr) return;
  client->membership->disconnecting = true;
  client->connecting.join();
  std::unique_ptr<pawl::Client> connected;
  {
    // Callbacks take the lock, and the client's destructor waits for them.
    const absl::MutexLock lock(&client->membership->mutex);
    connected = std::move(client->membership->client);
  }
  connected.reset();
  delete client;
}

int pawl_describe(pawl_client* client, const char** json) {
  *json = "";
  pawl::Client* const connected = pawl::c::Connected(client);
  if (connected == nullptr) return Fail(pawl::c::NotConnected());
  const absl::Status status = connected->status();
  const pawl::ClientCounters counters = connected->counters();
  const nlohmann::ordered_json description = {
      {"node", connected->node()},
      {"incarnation", connected->incarnation()},
      {"job_id", connected->job_id()},
      {"state", pawl::JobState_Name(connected->job_state())},
      {"stall_timeout_ms",
       std::chrono::duration_cast<std::chrono::milliseconds>(connected->stall_timeout()).count()},
      {"leave_requested", connected->leave_requested()},
      {"code", static_cast<int>(status.code())},
      {"error", std::string(status.message())},
      {"job", nlohmann::ordered_json::parse(pawl::c::ToJson(connected->job()))},
      {"counters",
       {{"segments_accepted", counters.segments_accepted},
        {"segments_deduplicated", counters.segments_deduplicated},
        {"segments_late", counters.segments_late},
        {"messages", counters.messages},
        {"retries", counters.retries},
        {"routing_changes", counters.routing_changes}}},
  };
  const absl::MutexLock lock(&client->membership->mutex);
  client->membership->description =
      description.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  *json = client->membership->description.c_str();
  return PAWL_OK;
}

int pawl_wait_for_end(pawl_client* client, int64_t timeout_ms) {
  pawl::Client* const connected = pawl::c::Connected(client);
  if (connected == nullptr) return Fail(pawl::c::NotConnected());
  return connected->WaitForEnd(std::chrono::milliseconds(timeout_ms)) ? PAWL_OK : PAWL_PENDING;
}

int pawl_wait(pawl_call* call, int64_t timeout_ms) {
  const std::optional<absl::Status> status =
      call->state->Wait(timeout_ms < 0 ? absl::InfiniteDuration() : absl::Milliseconds(timeout_ms));
  if (!status.has_value()) return PAWL_PENDING;
  return status->ok() ? static_cast<int>(PAWL_OK) : Fail(*status);
}

int pawl_call_fd(pawl_call* call) { return call->state->Descriptor(); }

const char* pawl_result(pawl_call* call) { return call->state->result().c_str(); }

void pawl_release(pawl_call* call) { delete call; }

int pawl_create_table(pawl_client* client, const char* spec_json, int64_t timeout_ms,
                      pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(const pawl::TableSpec spec,
                              pawl::c::FromJson<pawl::TableSpec>(spec_json, "spec_json"));
        connected.CreateTable(spec, Timeout(timeout_ms),
                              [membership = std::move(membership),
                               state = std::move(state)](const absl::StatusOr<pawl::Table>& table) {
                                state->End(Remember(*membership, table));
                              });
        return absl::OkStatus();
      });
}

int pawl_open_table(pawl_client* client, const char* name, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        connected.OpenTable(Text(name), Timeout(timeout_ms),
                            [membership = std::move(membership),
                             state = std::move(state)](const absl::StatusOr<pawl::Table>& table) {
                              state->End(Remember(*membership, table));
                            });
        return absl::OkStatus();
      });
}

int pawl_list_tables(pawl_client* client, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        connected.ListTables(Timeout(timeout_ms),
                             [membership = std::move(membership), state = std::move(state)](
                                 const absl::StatusOr<std::vector<pawl::Table>>& tables) {
                               if (!tables.ok()) return state->End(tables.status());
                               pawl::ListTablesResponse listed;
                               for (const pawl::Table& table : *tables) {
                                 Remember(*membership, table).IgnoreError();
                                 *listed.add_tables() = table.spec();
                               }
                               state->End(ToJson(listed));
                             });
        return absl::OkStatus();
      });
}

pawl_session* pawl_free_running(pawl_client* client) {
  const absl::MutexLock lock(&client->membership->mutex);
  return client->membership->free_running.get();
}

int pawl_pull(pawl_session* session, const pawl_item* items, size_t count, int64_t step,
              int64_t timeout_ms, pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr) return pawl::c::NotConnected();
    PAWL_ASSIGN_OR_RETURN(
        const auto pulls,
        Converted<pawl::PullItem>(
            *session->membership, items, count, [](const pawl_item& item, pawl::Table table) {
              return pawl::PullItem{.table = std::move(table),
                                    .keys = absl::MakeConstSpan(item.keys, item.key_count),
                                    .values = absl::MakeSpan(item.values, item.value_count),
                                    .keys_are_distinct = (item.flags & PAWL_KEYS_ARE_DISTINCT) != 0,
                                    .slots = absl::MakeSpan(item.slots, item.slot_count)};
            }));
    pawl::CallOptions options = Timeout(timeout_ms);
    if (step >= 0) options.step = static_cast<uint64_t>(step);
    session->session->Pull(pulls, options, EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

int pawl_push(pawl_session* session, const pawl_item* items, size_t count, int64_t timeout_ms,
              pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr) return pawl::c::NotConnected();
    PAWL_ASSIGN_OR_RETURN(
        const auto pushes,
        Converted<pawl::PushItem>(
            *session->membership, items, count, [](const pawl_item& item, pawl::Table table) {
              return pawl::PushItem{
                  .table = std::move(table),
                  .keys = absl::MakeConstSpan(item.keys, item.key_count),
                  .gradients = absl::MakeConstSpan(item.values, item.value_count),
                  .keys_are_distinct = (item.flags & PAWL_KEYS_ARE_DISTINCT) != 0,
                  .element_type = (item.flags & PAWL_BFLOAT16) != 0  ? pawl::BFLOAT16
                                  : (item.flags & PAWL_FLOAT16) != 0 ? pawl::FLOAT16
                                                                     : pawl::FLOAT32};
            }));
    session->session->Push(pushes, Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

int pawl_assign(pawl_session* session, const pawl_item* items, size_t count, int64_t timeout_ms,
                pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr) return pawl::c::NotConnected();
    PAWL_ASSIGN_OR_RETURN(
        const auto assigned,
        Converted<pawl::AssignItem>(
            *session->membership, items, count, [](const pawl_item& item, pawl::Table table) {
              return pawl::AssignItem{
                  .table = std::move(table),
                  .keys = absl::MakeConstSpan(item.keys, item.key_count),
                  .values = absl::MakeConstSpan(item.values, item.value_count),
                  .slots = absl::MakeConstSpan(item.slots, item.slot_count),
                  .keep_slots = (item.flags & PAWL_KEEP_SLOTS) != 0,
                  .keys_are_distinct = (item.flags & PAWL_KEYS_ARE_DISTINCT) != 0};
            }));
    session->session->Assign(assigned, Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

size_t pawl_slot_count(pawl_client* client, uint32_t table) {
  const absl::StatusOr<pawl::Table> found = pawl::c::FindTable(*client->membership, table);
  if (!found.ok()) return 0;
  if (!found->dense()) return found->SlotFloats(found->row_width());
  size_t count = 0;
  for (uint64_t block = 0; block < pawl::BlockCount(found->elements()); ++block)
    count += found->SlotFloats(pawl::BlockElements(found->elements(), block));
  return count;
}

int pawl_scan(pawl_client* client, uint32_t table, uint32_t partition, uint64_t first_key,
              uint64_t* keys, float* values, float* slots, size_t rows, int64_t timeout_ms,
              pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        if ((keys == nullptr || values == nullptr) && rows > 0)
          return absl::InvalidArgumentError("an array is NULL");
        pawl::ScanItem item = {.partition = partition, .first_key = first_key};
        PAWL_ASSIGN_OR_RETURN(item.table, pawl::c::FindTable(*membership, table));
        const uint64_t width = item.table.row_width();
        item.keys = absl::MakeSpan(keys, rows);
        item.values = absl::MakeSpan(values, rows * width);
        if (slots != nullptr)
          item.slots = absl::MakeSpan(slots, rows * item.table.SlotFloats(width));
        connected.Scan(item, Timeout(timeout_ms),
                       [state = std::move(state)](const absl::StatusOr<pawl::ScanPage>& page) {
                         if (!page.ok()) return state->End(page.status());
                         nlohmann::ordered_json result = {{"rows", page->rows}};
                         if (page->next_key) result["next_key"] = *page->next_key;
                         state->End(result.dump());
                       });
        return absl::OkStatus();
      });
}

int pawl_assignment(pawl_client* client, uint64_t newer_than_version, int64_t timeout_ms,
                    pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        pawl::GetAssignmentRequest request;
        request.set_newer_than_version(newer_than_version);
        request.set_ready(true);
        connected.Assignment(std::move(request), Timeout(timeout_ms),
                             [membership = std::move(membership), state = std::move(state)](
                                 const absl::StatusOr<pawl::GetAssignmentResponse>& assignment) {
                               if (assignment.ok()) {
                                 const absl::MutexLock lock(&membership->mutex);
                                 membership->assignment = *assignment;
                               }
                               EndsWithJson<pawl::GetAssignmentResponse>(state)(assignment);
                             });
        return absl::OkStatus();
      });
}

int pawl_take_over(pawl_client* client, uint32_t rank, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(const pawl::LogicalWorkerAssignment assigned,
                              AssignedRank(*membership, rank));
        connected.TakeOver(assigned, Timeout(timeout_ms),
                           [membership = std::move(membership), state = std::move(state),
                            assigned](const absl::StatusOr<pawl::LogicalWorker*>& session) {
                             if (session.ok()) {
                               const uint32_t rank = assigned.rank();
                               const absl::MutexLock lock(&membership->mutex);
                               membership->taken_over[rank] = assigned;
                               membership->ranks[rank] = std::make_unique<pawl_session>(
                                   pawl_session{membership.get(), *session, *session});
                             }
                             state->End(AsNothing(session.status()));
                           });
        return absl::OkStatus();
      });
}

pawl_session* pawl_rank(pawl_client* client, uint32_t rank) {
  const absl::MutexLock lock(&client->membership->mutex);
  const auto found = client->membership->ranks.find(rank);
  return found == client->membership->ranks.end() ? nullptr : found->second.get();
}

uint64_t pawl_step(pawl_session* session) { return session->rank->step(); }

int pawl_set_learning_rates(pawl_session* session, const uint32_t* tables, const float* rates,
                            size_t count, int64_t timeout_ms, pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr || session->rank == nullptr)
      return absl::InvalidArgumentError("only the session of a rank has learning rates");
    std::vector<pawl::LearningRateItem> items;
    for (size_t i = 0; i < count; ++i) {
      PAWL_ASSIGN_OR_RETURN(pawl::Table table, pawl::c::FindTable(*session->membership, tables[i]));
      items.push_back({.table = std::move(table), .learning_rate = rates[i]});
    }
    session->rank->SetLearningRates(items, Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

int pawl_end_step(pawl_session* session, int64_t timeout_ms, pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr || session->rank == nullptr)
      return absl::InvalidArgumentError("only the session of a rank has steps");
    session->rank->EndStep(Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

void pawl_close_rank(pawl_client* client, uint32_t rank) {
  pawl::Client* const connected = pawl::c::Connected(client);
  if (connected == nullptr) return;
  connected->CloseLogicalWorker(rank);
  const absl::MutexLock lock(&client->membership->mutex);
  client->membership->ranks.erase(rank);
}

int pawl_give_up_ranks(pawl_client* client, const uint32_t* ranks, size_t count, int64_t timeout_ms,
                       pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        pawl::GiveUpRanksRequest request;
        for (size_t i = 0; i < count; ++i) {
          PAWL_ASSIGN_OR_RETURN(*request.add_logical_workers(),
                                TakenOverRank(*membership, ranks[i]));
        }
        connected.GiveUpRanks(request, Timeout(timeout_ms),
                              [membership = std::move(membership), state = std::move(state),
                               request](const absl::Status& given_up) {
                                if (given_up.ok()) {
                                  const absl::MutexLock lock(&membership->mutex);
                                  for (const auto& rank : request.logical_workers())
                                    membership->taken_over.erase(rank.rank());
                                }
                                state->End(AsNothing(given_up));
                              });
        return absl::OkStatus();
      });
}

int pawl_finish_rank(pawl_client* client, uint32_t rank, const char* progress_json,
                     int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(
            const pawl::WorkerProgress progress,
            pawl::c::FromJson<pawl::WorkerProgress>(progress_json, "progress_json"));
        const uint32_t ranks[] = {rank};
        connected.FinishWork(progress, Timeout(timeout_ms), ranks,
                             EndsWithNothing(std::move(state)));
        return absl::OkStatus();
      });
}

int pawl_report_progress(pawl_client* client, const char* progress_json) {
  pawl::Client* const connected = pawl::c::Connected(client);
  if (connected == nullptr) return Fail(pawl::c::NotConnected());
  const absl::StatusOr<pawl::WorkerProgress> progress =
      pawl::c::FromJson<pawl::WorkerProgress>(progress_json, "progress_json");
  if (!progress.ok()) return Fail(progress.status());
  connected->SetProgress(*progress);
  return PAWL_OK;
}

int pawl_barrier(pawl_client* client, const char* name, uint32_t parties, uint32_t party,
                 int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(client, call,
                         [&](pawl::Client& connected, Shared, State state) -> absl::Status {
                           connected.Barrier(Text(name), parties, party, Timeout(timeout_ms),
                                             EndsWithNothing(std::move(state)));
                           return absl::OkStatus();
                         });
}

int pawl_report_evaluation(pawl_client* client, const char* report_json, int64_t timeout_ms,
                           pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(
            pawl::ReportEvaluationRequest report,
            pawl::c::FromJson<pawl::ReportEvaluationRequest>(report_json, "report_json"));
        connected.ReportEvaluation(std::move(report), Timeout(timeout_ms),
                                   EndsWithJson<pawl::ReportEvaluationResponse>(std::move(state)));
        return absl::OkStatus();
      });
}

int pawl_status(pawl_client* client, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared, State state) -> absl::Status {
        connected.GetStatus(Timeout(timeout_ms),
                            EndsWithJson<pawl::GetStatusResponse>(std::move(state)));
        return absl::OkStatus();
      });
}

int pawl_unique(pawl_client* client, uint32_t table, const uint64_t* keys, size_t count,
                uint64_t* distinct, int64_t* inverse, size_t* distinct_count) {
  *distinct_count = 0;
  pawl_item item = {};
  item.table = table;
  item.keys = keys;
  item.key_count = count;
  const int code = pawl_unique_items(client, &item, 1, distinct, inverse);
  if (code == PAWL_OK) *distinct_count = item.key_count;
  return code;
}

int pawl_unique_items(pawl_client* client, pawl_item* items, size_t count, uint64_t* distinct,
                      int64_t* places) {
  pawl::Client* const connected = pawl::c::Connected(client);
  if (connected == nullptr) return Fail(pawl::c::NotConnected());
  for (size_t i = 0; i < count; ++i) {
    const absl::StatusOr<pawl::Table> table =
        pawl::c::FindTable(*client->membership, items[i].table);
    if (!table.ok()) return Fail(table.status());
    if (table->dense()) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("table '", table->name(), "' is dense: its blocks have no keys to choose")));
    }
    if (items[i].key_count > pawl::kMaxKeysInItem) {
      return Fail(absl::InvalidArgumentError(absl::StrCat(items[i].key_count, " keys; at most ",
                                                          pawl::kMaxKeysInItem, " are possible")));
    }
  }
  // Keeps its memory for the thread's next batch.
  thread_local pawl::c::DistinctKeys distinct_keys;
  int64_t first = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t found =
        distinct_keys.Find(items[i].table, absl::MakeConstSpan(items[i].keys, items[i].key_count),
                           connected->job().partitions(), first, distinct, places);
    places += items[i].key_count;
    items[i].keys = distinct;
    items[i].key_count = found;
    items[i].flags |= PAWL_KEYS_ARE_DISTINCT;
    distinct += found;
    first += static_cast<int64_t>(found);
  }
  return PAWL_OK;
}
