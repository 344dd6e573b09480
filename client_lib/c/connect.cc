// Clients, and calls about the whole job.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client_lib/c/membership.h"
#include "client_lib/rpc/version.h"
#include "nlohmann/json.hpp"

using pawl::c::AsNothing;
using pawl::c::CappedTimeout;
using pawl::c::Connected;
using pawl::c::EndsWithJson;
using pawl::c::EndsWithNothing;
using pawl::c::Fail;
using pawl::c::Membership;
using pawl::c::NotConnected;
using pawl::c::Shared;
using pawl::c::StartCall;
using pawl::c::StartClientCall;
using pawl::c::State;
using pawl::c::Text;
using pawl::c::Timeout;
using pawl::c::ToJson;

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
    converted.ignores_environment = options->tls_dir != nullptr && *options->tls_dir == '\0';
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
      converted.connect_timeout = CappedTimeout(options->connect_timeout_ms);
    if (options->call_timeout_ms > 0)
      converted.call_timeout = CappedTimeout(options->call_timeout_ms);
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
  pawl::Client* const connected = Connected(client);
  if (connected == nullptr) return Fail(NotConnected());
  const absl::Status status = connected->status();
  const pawl::ClientCounters counters = connected->counters();
  const nlohmann::ordered_json description = {
      {"node", connected->node()},
      {"job_id", connected->job_id()},
      {"state", pawl::JobState_Name(connected->job_state())},
      {"leave_requested", connected->leave_requested()},
      {"code", static_cast<int>(status.code())},
      {"error", std::string(status.message())},
      {"job", nlohmann::ordered_json::parse(ToJson(connected->job()))},
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
  pawl::Client* const connected = Connected(client);
  if (connected == nullptr) return Fail(NotConnected());
  const std::chrono::milliseconds timeout =
      timeout_ms < 0 ? pawl::c::kLongestTimeout : CappedTimeout(timeout_ms);
  return connected->WaitForEnd(timeout) ? PAWL_OK : PAWL_PENDING;
}

int pawl_status(pawl_client* client, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared, State state) -> absl::Status {
        connected.GetStatus(Timeout(timeout_ms),
                            EndsWithJson<pawl::GetStatusResponse>(std::move(state)));
        return absl::OkStatus();
      });
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
