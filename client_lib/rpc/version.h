// The version of Pawl, and the protocol versions that it speaks.
#ifndef PAWL_CLIENT_LIB_RPC_VERSION_H_
#define PAWL_CLIENT_LIB_RPC_VERSION_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pawl {

// As defined by semver.org; every binary prints it on --version. "-dev": before that release.
inline constexpr char kVersion[] = "0.3.0-dev";

// Protocol versions of the messages between the processes of a job. A change that older processes
// would misunderstand raises the newest version; the end of support for one raises the oldest. A
// peer that names no version speaks 1. Version 2: servers compare their logs by terms
// (ReplicaPosition.follows_since). Version 3: pushes have effects (PushSegment.effect), and pulls
// give slots. Version 4: logical workers close steps (EndStepRequest.phase) and arrive at
// evaluations (ReportEvaluationRequest.arrives).
inline constexpr uint32_t kOldestProtocol = 1;
inline constexpr uint32_t kNewestProtocol = 4;
// For servers: the others cannot replicate to a server with an older protocol.
inline constexpr uint32_t kOldestServerProtocol = 4;
// What a client needs for assignments, learning rates and slots.
inline constexpr uint32_t kEffectsProtocol = 3;
// What a worker needs for Job.clip_global_norm, and for evaluations outside of SYNC mode.
inline constexpr uint32_t kStepPhasesProtocol = 4;

struct ProtocolRange {
  uint32_t oldest = kOldestProtocol;
  uint32_t newest = kNewestProtocol;
};

// Returns the newest protocol that both sides speak. UNIMPLEMENTED, naming both ranges, if there is
// none. `peer` names the peer in the message. A peer that names no version has the range 0 to 0.
inline absl::StatusOr<uint32_t> CommonProtocol(ProtocolRange peer_range, absl::string_view peer,
                                               ProtocolRange own = {}) {
  if (peer_range.newest == 0) peer_range = {1, 1};
  const uint32_t newest = std::min(peer_range.newest, own.newest);
  if (newest >= std::max(peer_range.oldest, own.oldest)) return newest;
  return absl::UnimplementedError(
      absl::StrCat(peer, " speaks protocols ", peer_range.oldest, " to ", peer_range.newest,
                   ", and this process (Pawl ", kVersion, ") ", own.oldest, " to ", own.newest,
                   ": run versions of Pawl with a common protocol"));
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_VERSION_H_
