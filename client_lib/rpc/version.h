// Which Pawl this is, and which peers it understands.
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

// By semver.org; every binary says it on --version.
inline constexpr char kVersion[] = "0.1.0";

// Of the messages between the processes of a job. A change that an older process would
// misunderstand raises the newest; what a process need not understand any more raises the oldest. 1
// is also what a peer speaks that names none. 2: servers compare their logs by terms
// (ReplicaPosition.follows_since).
inline constexpr uint32_t kOldestProtocol = 1;
inline constexpr uint32_t kNewestProtocol = 2;
// Of a server: with one of an older protocol the others cannot replicate.
inline constexpr uint32_t kOldestServerProtocol = 2;

struct ProtocolRange {
  uint32_t oldest = kOldestProtocol;
  uint32_t newest = kNewestProtocol;
};

// The newest protocol that both understand. UNIMPLEMENTED, naming both ranges, if there is none.
// `peer`: what the message calls the other one; its range may be 0 to 0, as of one that names none.
inline absl::StatusOr<uint32_t> CommonProtocol(ProtocolRange peer_range, absl::string_view peer,
                                               ProtocolRange own = {}) {
  if (peer_range.newest == 0) peer_range = {1, 1};
  const uint32_t newest = std::min(peer_range.newest, own.newest);
  if (newest >= std::max(peer_range.oldest, own.oldest)) return newest;
  return absl::UnimplementedError(
      absl::StrCat(peer, " speaks the protocols ", peer_range.oldest, " to ", peer_range.newest,
                   ", and this process (Pawl ", kVersion, ") ", own.oldest, " to ", own.newest,
                   ": run versions of Pawl that have one in common"));
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_VERSION_H_
