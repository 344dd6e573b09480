// The connections of a listener, and what each remote host may have of them.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_TABLE_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_TABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/base/clock.h"
#include "client_lib/security/admission/remote_address.h"
#include "client_lib/security/admission/token_bucket.h"

namespace pawl {

// A host runs many processes of a job, and each has a few connections to each listener. The
// defaults allow hundreds of processes on a host.
struct ConnectionLimits {
  // For one listener. The process lowers it to half of its file descriptors.
  size_t max_connections = 8192;
  // From one remote host.
  size_t max_connections_per_host = 2048;
  // Connections of one host that have not sent the begin of a handshake. The oldest one ends for
  // each new one, so that connections that say nothing do not keep out the others.
  size_t max_silent_per_host = 256;
  // Handshakes cost processor time; more wait.
  double handshakes_per_second_per_host = 30;
  double burst_handshakes_per_host = 500;
  // A connection ends unless its handshake begins within this time.
  std::chrono::milliseconds max_silence{5000};
};

// The handshakes that a connection costs in addition if its peer is excluded (ConnectionLedger).
inline constexpr double kExcludedHandshakes = 25;

// Which connections there are. Those that gRPC has are known to have ended only when another one
// gets their file descriptor, or by Sweep. For one thread.
class ConnectionTable {
 public:
  enum class Phase : uint8_t {
    // Has not sent the begin of a handshake yet.
    kSilent,
    // Has; waits for its turn.
    kQueued,
    // gRPC has it.
    kHandedOver,
  };
  struct Connection {
    // Identifies a socket as long as it is open, also when its descriptor is used again.
    uint64_t inode = 0;
    RemoteAddress remote;
    Phase phase = Phase::kSilent;
    MonotonicTime since;
    // gRPC has it, but it can no longer be used.
    bool is_shut_down = false;
  };

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  // Whether the listener has room for another connection, and whether the host may have one more.
  bool HasRoom() const { return connections_.size() < limits_.max_connections; }
  bool HasRoomFor(const RemoteAddress& remote) const;
  // Adds a connection as silent. One that had the descriptor before has ended.
  void Add(int descriptor, uint64_t inode, const RemoteAddress& remote, MonotonicTime now);
  // null: there is none with that descriptor.
  const Connection* Find(int descriptor) const;
  // REQUIRES: there is one with that descriptor.
  void Remove(int descriptor);
  // The oldest silent connection of a host that has too many; nullopt: it has not.
  std::optional<int> SilentBeyondLimit(const std::string& host);
  // The oldest silent connection of all hosts.
  std::optional<int> OldestSilent();

  // A silent connection has begun its handshake.
  void SetQueued(int descriptor);
  // The queued connections that may continue now; each host's in order of their arrival. They count
  // as handed over.
  std::vector<int> TakeTurns(MonotonicTime now);
  // A connection handed over was shut down for an offence: the next ones of its host wait longer.
  void OnShutDown(int descriptor, MonotonicTime now);
  bool HasQueued() const { return queued_ > 0; }
  // Those that are not handed over and have been there for max_silence.
  std::vector<int> Overdue(MonotonicTime now);

  // All that are not handed over.
  std::vector<int> NotHandedOver() const;

  // Removes the connections handed over that `is_open` does not find, and forgets hosts without
  // connections.
  void Sweep(MonotonicTime now, const std::function<bool(int descriptor, uint64_t inode)>& is_open);
  template <typename Function>
  void ForEachHandedOver(Function function) const {
    for (const auto& [descriptor, connection] : connections_) {
      if (connection.phase == Phase::kHandedOver) function(descriptor, connection);
    }
  }
  // The descriptor of the last connection added with that RemoteAddress::connection.
  std::optional<int> DescriptorOf(const std::string& connection) const;

  size_t size() const { return connections_.size(); }

 private:
  struct Host {
    Host(const ConnectionLimits& limits, MonotonicTime now)
        : handshakes(limits.handshakes_per_second_per_host, limits.burst_handshakes_per_host, now) {
    }
    size_t connections = 0;
    size_t silent = 0;
    TokenBucket handshakes;
    // May contain connections that have ended or changed, which are skipped.
    std::deque<std::pair<int, uint64_t>> arrivals;
    std::deque<std::pair<int, uint64_t>> queue;
  };

  bool Is(const std::pair<int, uint64_t>& entry, Phase phase) const;

  const ConnectionLimits limits_;
  absl::flat_hash_map<int, Connection> connections_;
  absl::flat_hash_map<std::string, Host> hosts_;
  absl::flat_hash_map<std::string, int> by_address_;
  // All connections in order of their arrival; entries as in Host.
  std::deque<std::pair<int, uint64_t>> arrivals_;
  size_t queued_ = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_CONNECTION_TABLE_H_
