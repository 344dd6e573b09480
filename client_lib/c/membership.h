// What the functions of the C interface share: a client's membership, its sessions, and how
// operations start and end.
#ifndef PAWL_CLIENT_LIB_C_MEMBERSHIP_H_
#define PAWL_CLIENT_LIB_C_MEMBERSHIP_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client_lib/c/call.h"
#include "client_lib/c/error.h"
#include "client_lib/c/json.h"
#include "client_lib/c/pawl.h"
#include "client_lib/client.h"
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

using State = std::shared_ptr<CallState>;
using Shared = std::shared_ptr<Membership>;

absl::Status NotConnected();

// The connected client; null while there is none.
Client* Connected(const pawl_client* client);

// The table of this number, if the client has created or opened it.
absl::StatusOr<Table> FindTable(Membership& membership, uint32_t number);

// The options of a call; 0: the client's own timeout.
CallOptions Timeout(int64_t timeout_ms);
// Longer times would overflow the nanoseconds of a deadline.
inline constexpr std::chrono::hours kLongestTimeout{24 * 365};
// At most kLongestTimeout.
std::chrono::milliseconds CappedTimeout(int64_t ms);

// "" for NULL.
std::string Text(const char* text);

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

absl::StatusOr<std::string> AsNothing(absl::Status status);

// Callbacks that end an operation.
Callback EndsWithNothing(State state);

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

}  // namespace pawl::c

#endif  // PAWL_CLIENT_LIB_C_MEMBERSHIP_H_
