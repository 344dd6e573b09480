// Which connections cost much and give nothing.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_LEDGER_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_LEDGER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/admission/gate_counts.h"
#include "client_lib/security/admission/peer_quotas.h"
#include "client_lib/security/admission/token_bucket.h"

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

// Compares what the kernel and gRPC say of each connection with the calls that have arrived
// completely. What gRPC spends on a connection before that is invisible to PeerQuotas: calls that
// the gate refuses, calls that are reset, metadata and messages that do not end.
//
// The gate does not know the connection of a call, so each connection has a slot, whose calls the
// gate counts. Connections share a slot if there are more than kSlots; then a call of one seems
// open on the others, until gRPC says which streams they have. Invariants:
// 1. A call passes the gate before it is admitted.
// 2. A call that has passed, was not admitted, and has not ended is open: its message is arriving.
// 3. Bytes that no admitted call explains are incomplete messages, up to kMaxMessageBytes for each
//    open call. The others are stray. The processor time that gRPC spends on them is estimated: at
//    most that of one thread, and at most what the whole process has used.
// 4. When a call ends without being admitted, its share of the incomplete bytes is forgiven once.
//    What a peer is forgiven is limited, because a call that is reset may have held nothing.
// Thread-safe.
class ConnectionLedger {
 public:
  static constexpr size_t kSlots = 32;

  // The kernel's counts of a connection, since its start.
  struct Bytes {
    // Those that gRPC has read.
    uint64_t received = 0;
    // Those that it has not read yet.
    uint64_t unread = 0;
    uint64_t sent = 0;
  };
  // gRPC's counts of a connection.
  struct Streams {
    uint64_t started = 0;
    uint64_t ended = 0;
  };
  // A connection to be closed.
  struct Offender {
    std::string connection;
    std::string peer;
    // For the log; empty: another connection of an excluded peer.
    absl::string_view reason;
  };

  // `quotas` are charged for calls that never get to them.
  ConnectionLedger(const LedgerLimits& limits, std::shared_ptr<PeerQuotas> quotas)
      : limits_(limits), quotas_(std::move(quotas)) {}

  std::shared_ptr<GateCounts> counts(size_t slot) { return slots_[slot].gate; }

  // A new connection, by RemoteAddress::connection; returns its slot. One of the same name has
  // ended.
  size_t Add(const std::string& connection, MonotonicTime now);
  // Forgets connections for which `is_open` returns false.
  void Sweep(const std::function<bool(const std::string&)>& is_open, MonotonicTime now);
  // The peer at the other end, once its handshake has ended. `is_trusted`: the ledger ignores the
  // connection.
  void Identify(const std::string& connection, const std::string& peer, bool is_trusted,
                MonotonicTime now);

  // A call has arrived completely, with a message of that size.
  void OnAdmitted(const std::string& connection, uint64_t bytes);
  // A call has ended before its message arrived, and gRPC gives the service a call without one.
  void OnAbandoned(const std::string& connection);

  // Call it regularly. `processor_seconds`: of the process, since any time.
  void OnBytes(const std::string& connection, Bytes bytes, double processor_seconds,
               MonotonicTime now);
  // Whether OnStreams may find something.
  bool WantsStreams(const std::string& connection);
  void OnStreams(const std::string& connection, Streams streams, MonotonicTime now);

  // PeerQuotas has found that the peer is deep in debt. Returns whether its connection must end.
  bool OnDebt(const std::string& connection, MonotonicTime now);

  // Each offender once.
  std::vector<Offender> TakeOffenders();
  // Whether some peer gets no new connection now, so that new ones must be identified soon.
  bool HasExcluded(MonotonicTime now);

 private:
  struct Slot {
    std::shared_ptr<GateCounts> gate = std::make_shared<GateCounts>();
    size_t connections = 0;
    uint64_t admitted = 0;
    // Calls that passed, and have ended without being admitted.
    uint64_t lost = 0;
    // The slot that has been empty for longest comes first.
    uint64_t emptied = 0;
    // Calls that counted as lost were admitted later. Open calls may be missed, so nothing is
    // stray.
    bool is_doubtful = false;
  };
  struct Peer {
    Peer(const LedgerLimits& limits, MonotonicTime now)
        : stray_seconds(limits.stray_seconds_per_second, limits.burst_stray_seconds, now),
          forgiven_bytes(limits.forgiven_bytes_per_second, limits.burst_forgiven_bytes, now) {}
    TokenBucket stray_seconds;
    // For each of its connections.
    TokenBucket forgiven_bytes;
    // The sum over its connections.
    uint64_t incomplete_bytes = 0;
    size_t connections = 0;
    int offences = 0;
    MonotonicTime offended_at;
    MonotonicTime excluded_until;
  };
  // The totals after a call of OnBytes.
  struct Sample {
    MonotonicTime at;
    double processor_seconds = 0;
    int64_t received = 0;
    // The part of it that admitted calls explain.
    int64_t explained = 0;
    uint64_t admitted_bytes = 0;
    uint64_t passed = 0;
    uint64_t admitted = 0;
    uint64_t unread = 0;
  };
  // Bytes that belong to no message.
  struct Stray {
    int looks = 0;
    uint64_t bytes = 0;
    // Not charged yet.
    double seconds = 0;
    // Found by OnStreams, for the next OnBytes.
    uint64_t found = 0;
  };
  struct Connection {
    size_t slot = 0;
    std::string peer;
    bool is_identified = false;
    bool is_trusted = false;
    bool is_offender = false;
    uint64_t admitted = 0;
    uint64_t admitted_bytes = 0;
    // Among the admitted ones, since the last OnBytes.
    uint64_t abandoned = 0;
    uint64_t incomplete_bytes = 0;

    // The last one. Its stray bytes, together with those of the looks directly before it.
    Sample sample;
    Stray stray;

    // Received bytes that were not explained at the last OnStreams; fewer if calls admitted since
    // explain some.
    int64_t unexplained = 0;
    uint64_t unadmitted = 0;
    uint64_t refused = 0;
    // The last few: how many more calls of the slot seemed open than the connection has streams.
    std::deque<uint64_t> excess;
  };

  // Calls of the slot whose message is arriving, and those lost but not noticed yet.
  uint64_t OpenCalls(Slot& slot) PAWL_REQUIRES(mu_);
  Connection* Find(const std::string& connection) PAWL_REQUIRES(mu_);
  void Remove(Connection& connection) PAWL_REQUIRES(mu_);
  Peer& PeerAt(const std::string& name, MonotonicTime now) PAWL_REQUIRES(mu_);
  void SetIncomplete(Connection& connection, uint64_t bytes) PAWL_REQUIRES(mu_);
  // Adds the bytes received since the last look, without those explained since, to the incomplete
  // ones. Returns how many of them are stray.
  uint64_t CountIncomplete(Connection& connection, int64_t received, uint64_t open,
                           MonotonicTime now) PAWL_REQUIRES(mu_);
  // `ended` calls have ended without being admitted, `open` have not.
  void Forgive(Connection& connection, uint64_t open, uint64_t ended, MonotonicTime now)
      PAWL_REQUIRES(mu_);
  void CountStray(const std::string& name, Connection& connection, const Sample& sample,
                  uint64_t bytes, uint64_t open) PAWL_REQUIRES(mu_);
  // Bytes that a connection must have received for its admitted calls, and because it was sent
  // `sent` bytes.
  static int64_t Explained(const Connection& connection, uint64_t sent);
  // Finds calls of the slot that have ended unnoticed, and so are not open.
  static void CountLost(Slot& slot, Connection& connection, uint64_t open, uint64_t open_streams);
  // The calls of `calls` that the gate has refused.
  uint64_t TakeRefused(Connection& connection, uint64_t calls) PAWL_REQUIRES(mu_);
  void CheckIncomplete(const std::string& peer, MonotonicTime now) PAWL_REQUIRES(mu_);
  void Offend(const std::string& name, Connection& connection, absl::string_view reason,
              MonotonicTime now) PAWL_REQUIRES(mu_);
  void Close(const std::string& name, Connection& connection, absl::string_view reason)
      PAWL_REQUIRES(mu_);

  const LedgerLimits limits_;
  const std::shared_ptr<PeerQuotas> quotas_;
  // The array is constant; the rest of a slot is guarded.
  std::array<Slot, kSlots> slots_;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::unique_ptr<Connection>> connections_ PAWL_GUARDED_BY(mu_);
  // Those of identified connections, and those that have offended.
  absl::flat_hash_map<std::string, Peer> peers_ PAWL_GUARDED_BY(mu_);
  std::vector<Offender> offenders_ PAWL_GUARDED_BY(mu_);
  MonotonicTime excluded_until_ PAWL_GUARDED_BY(mu_);
  uint64_t emptied_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_LEDGER_H_
