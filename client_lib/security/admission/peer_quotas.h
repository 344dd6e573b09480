// How much one peer may ask of a process, so that it leaves something to the others.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_PEER_QUOTAS_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_PEER_QUOTAS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/admission/token_bucket.h"

namespace pawl {

// Calls of one kind share limits on what is pending. Pulls and pushes have separate ones: a pending
// pull must not keep out the push that it waits for.
enum class CallKind : uint8_t { kPush, kPull, kControl, kReplication };
inline constexpr size_t kCallKinds = 4;

// The limits of one peer: the processes of one host with one certificate. Several processes may
// share both, so that all are far above the limits of a client (client_lib/client.h).
struct PeerLimits {
  // Calls in progress of each kind; replication has limits of its own. One connection has at most
  // kMaxStreamsPerConnection.
  size_t max_pending_calls = 16384;
  // Bytes of the requests of these calls, each kind.
  uint64_t max_pending_bytes = uint64_t{1} << 30;
  // Pushes and pulls are free. Every other call costs a token, a registration kRegistrationCost, a
  // call that was refused for its content or its sender kRefusedCost.
  double tokens_per_second = 2000;
  double burst_tokens = 20000;
  // The largest debt: a call waits no longer than this for tokens.
  double max_debt_seconds = 5;
  // Calls that wait for a limit. Further ones are refused.
  size_t max_waiting_calls = 1024;
};
inline constexpr double kRegistrationCost = 20;
inline constexpr double kRefusedCost = 20;
// A call that its peer cancelled before its message had arrived. Deadlines of many calls may expire
// at once: kMaxStreamsPerConnection for each of several connections.
inline constexpr double kAbandonedCost = 3;
// Peers that are told apart; further ones are named by NameInTable.
inline constexpr size_t kMaxPeers = 4096;

// The cost of a call by its method: `/pawl.Parameter/Push` and the like.
struct CallCost {
  CallKind kind = CallKind::kControl;
  double tokens = 1;
};
CallCost CostOf(absl::string_view method);

// The peer with these URIs in its certificate, none without one, on a host
// (RemoteAddress::host).
std::string PeerName(const std::vector<std::string>& uris, absl::string_view host);
// The URIs in a PeerName. Empty: everyone on the host has that name.
absl::string_view UrisOfPeer(absl::string_view peer);
// The name under which a table by PeerName counts a peer. In a full table, a certificate counts
// once for all hosts, so that one certificate cannot take the place of others; and once there are
// kMaxPeers such certificates, all further peers count as one.
template <typename Table>
std::string NameInTable(const Table& peers, absl::string_view peer) {
  if (peers.size() < kMaxPeers || peers.contains(peer)) return std::string(peer);
  const absl::string_view uris = UrisOfPeer(peer);
  return peers.size() < 2 * kMaxPeers || peers.contains(uris) ? std::string(uris) : "";
}

// Counts what each peer has in progress. Thread-safe.
class PeerQuotas {
 public:
  enum class Verdict {
    // Serve the call.
    kRun,
    // Serve it when TakeReady returns it.
    kWait,
    // Refuse it with RESOURCE_EXHAUSTED.
    kRefuse,
    // The same, and close its connection: the peer is deep in debt and does not heed refusals.
    kRefuseAndClose,
  };
  struct Peer;
  // A call from Begin to End. The caller owns it.
  struct Call {
    CallCost cost;
    uint64_t bytes = 0;
    // Set by PeerQuotas.
    std::shared_ptr<Peer> peer;
    bool runs = false;
  };

  explicit PeerQuotas(const PeerLimits& limits) : limits_(limits) {}

  // `call` stays where it is until End. After kWait another thread may get it from TakeReady at
  // once.
  Verdict Begin(const std::string& peer, Call& call, MonotonicTime now);
  // A call that ended before its message arrived; do not call End. kRun or, if the peer is deep in
  // debt, kRefuseAndClose.
  Verdict OnAbandoned(const std::string& peer, MonotonicTime now);
  // Takes tokens for calls that never came to Begin. Returns whether the peer is deep in debt, so
  // that its connection must end.
  bool Charge(const std::string& peer, double tokens, MonotonicTime now);
  // The call was refused for its content or its sender.
  void OnRefused(Call& call, MonotonicTime now);
  // REQUIRES: the call is not waiting.
  void End(Call& call, MonotonicTime now);

  // The waiting calls that may run now.
  std::vector<Call*> TakeReady(MonotonicTime now);
  // All waiting calls, whatever the limits: the process is ending.
  std::vector<Call*> TakeAll();
  // When TakeReady may return something; nullopt: not before another call of Begin or End.
  std::optional<MonotonicTime> NextReady(MonotonicTime now);
  // Whether calls wait. Takes no lock.
  bool HasWaiting() const { return waiting_.load(std::memory_order_relaxed) > 0; }

  // Counters since the start.
  uint64_t delayed() const { return delayed_; }
  uint64_t refused() const { return refused_; }

 private:
  bool IsDeepInDebt(Peer& peer, MonotonicTime now) const PAWL_REQUIRES(mu_);
  Peer& PeerAt(const std::string& name, MonotonicTime now, Call& call) PAWL_REQUIRES(mu_);
  bool HasRoom(const Peer& peer, const Call& call) const PAWL_REQUIRES(mu_);
  void Run(Peer& peer, Call& call, MonotonicTime now) PAWL_REQUIRES(mu_);

  const PeerLimits limits_;
  std::atomic<uint64_t> delayed_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<size_t> waiting_{0};
  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Peer>> peers_ PAWL_GUARDED_BY(mu_);
  // When idle peers were last removed from a full table.
  std::optional<MonotonicTime> swept_at_ PAWL_GUARDED_BY(mu_);
  // Those with waiting calls.
  absl::flat_hash_set<std::shared_ptr<Peer>> with_waiting_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_PEER_QUOTAS_H_
