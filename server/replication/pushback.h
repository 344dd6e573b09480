// "Not now": errors that tell a sender when to come back.
#ifndef PAWL_SERVER_REPLICATION_PUSHBACK_H_
#define PAWL_SERVER_REPLICATION_PUSHBACK_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

// What a sender is told to wait when a limit is reached.
inline constexpr int kPushbackMs = 20;

// RESOURCE_EXHAUSTED with the words of `status` and the time to wait.
inline absl::Status WithPushback(const absl::Status& status) {
  absl::Status result(absl::StatusCode::kResourceExhausted, status.message());
  result.SetPayload(kPushbackPayloadUrl, absl::Cord(absl::StrCat(kPushbackMs)));
  return result;
}

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_PUSHBACK_H_
