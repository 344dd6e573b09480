// Reads the kernel's and gRPC's statistics of a port's connections for a ConnectionLedger.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_WATCH_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_WATCH_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/base/clock.h"
#include "client_lib/security/admission/connection_ledger.h"
#include "client_lib/security/admission/peer_quotas.h"
#include "client_lib/security/admission/transport_statistics.h"

namespace pawl {

// How often connections are looked at; new ones more often while a peer is excluded, so that its
// own end soon.
inline constexpr std::chrono::milliseconds kWatchInterval{100};
inline constexpr std::chrono::milliseconds kAlertWatchInterval{5};
// Bound the cost of a look: others have their turn at the next one.
inline constexpr size_t kMaxWatchedAtOnce = 1024;
inline constexpr int kMaxReadAtOnce = 256;

// Passes the statistics of the connections that gRPC has to its ledger, at regular intervals. For
// one thread, except ledger().
class ConnectionWatch {
 public:
  struct Connection {
    int descriptor = -1;
    uint64_t inode = 0;
    // RemoteAddress::connection.
    std::string connection;
  };
  // By the URIs of a peer's certificate; null: none is trusted.
  using IsTrusted = std::function<bool(const std::vector<std::string>& uris)>;

  // `port`: of the server.
  ConnectionWatch(int port, const LedgerLimits& limits, std::shared_ptr<PeerQuotas> quotas,
                  IsTrusted is_trusted)
      : statistics_(port), is_trusted_(std::move(is_trusted)), ledger_(limits, std::move(quotas)) {}

  ConnectionLedger& ledger() { return ledger_; }

  // Whether Look reads all its connections; otherwise it only identifies new ones.
  bool Reads(MonotonicTime now) const { return now >= read_at_ + kWatchInterval; }
  bool IsDue(MonotonicTime now) { return now >= looked_at_ + Interval(now); }
  MonotonicDuration Interval(MonotonicTime now) {
    return ledger_.HasExcluded(now) ? kAlertWatchInterval : kWatchInterval;
  }
  // `connections`: all that gRPC has, or a part of them. Returns those to be closed.
  std::vector<ConnectionLedger::Offender> Look(const std::vector<Connection>& connections,
                                               MonotonicTime now);
  // See ConnectionLedger::Sweep.
  void Sweep(const std::function<bool(const std::string&)>& is_open, MonotonicTime now);

 private:
  void Identify(MonotonicTime now);

  TransportStatistics statistics_;
  const IsTrusted is_trusted_;
  ConnectionLedger ledger_;
  // By RemoteAddress::connection.
  absl::flat_hash_map<std::string, intptr_t> sockets_;
  MonotonicTime looked_at_;
  MonotonicTime read_at_;
  // The connection whose streams are read first.
  size_t first_ = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_WATCH_H_
