// The limits of a ConnectionLedger.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_LEDGER_LIMITS_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_LEDGER_LIMITS_H_

#include <chrono>
#include <cstdint>

namespace pawl {

// The limits of one peer (PeerName) at one port. Hundreds of processes may share a name, each with
// a connection. Pawl's client has at most 32 MiB of pushes in flight to a server
// (kMaxBytesInFlightPerServer in client_lib/session/messenger.h), and gives them at least 2.7 s.
struct LedgerLimits {
  // The processor time spent on stray bytes, which are part of no message: metadata, control
  // frames, and what arrives for calls that have ended, for instance the rest of a push that the
  // server gave up. gRPC 1.51 spends a second on 8 MiB of metadata (CVE-2023-33953).
  double burst_stray_seconds = 1;
  double stray_seconds_per_second = 0.1;
  // Bytes of messages that have not arrived completely. They are in gRPC's memory, which all peers
  // share. The larger of the two limits applies.
  uint64_t max_incomplete_bytes = uint64_t{512} << 20;
  uint64_t incomplete_bytes_per_connection = uint64_t{32} << 20;
  // Incomplete bytes that no longer count because their calls have ended, for each connection of
  // the peer: twice what a client has in flight, and all of it again after each deadline.
  double burst_forgiven_bytes = 64 << 20;
  double forgiven_bytes_per_second = 12 << 20;
  // How long a peer gets no new connection, after the first offence and at most. Each offence
  // multiplies it by kExclusionGrowth.
  std::chrono::milliseconds first_exclusion{2000};
  std::chrono::milliseconds max_exclusion{60000};
  // Offences are forgotten after this time without another.
  std::chrono::seconds offences_last{600};
};
inline constexpr int kExclusionGrowth = 4;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_LEDGER_LIMITS_H_
