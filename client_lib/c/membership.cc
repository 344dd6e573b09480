#include "client_lib/c/membership.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace pawl::c {

absl::Status NotConnected() {
  return absl::FailedPreconditionError(
      "the client is not connected: wait for the call of pawl_connect first");
}

Client* Connected(const pawl_client* client) {
  if (client == nullptr) return nullptr;
  const absl::MutexLock lock(&client->membership->mutex);
  return client->membership->client.get();
}

absl::StatusOr<Table> FindTable(Membership& membership, uint32_t number) {
  const absl::MutexLock lock(&membership.mutex);
  const auto found = membership.tables.find(number);
  if (found != membership.tables.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      "table ", number, ": this client has neither created nor opened a table of this number"));
}

std::chrono::milliseconds CappedTimeout(int64_t ms) {
  return std::min<std::chrono::milliseconds>(std::chrono::milliseconds(ms), kLongestTimeout);
}

CallOptions Timeout(int64_t timeout_ms) {
  CallOptions options;
  if (timeout_ms > 0) options.timeout = CappedTimeout(timeout_ms);
  return options;
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

absl::StatusOr<std::string> AsNothing(absl::Status status) {
  if (!status.ok()) return status;
  return std::string();
}

Callback EndsWithNothing(std::shared_ptr<CallState> state) {
  return
      [state = std::move(state)](absl::Status status) { state->End(AsNothing(std::move(status))); };
}

}  // namespace pawl::c
