// A TCP proxy that injects network faults into its connections.
//
//   auto proxy = ByteProxy::Start({.target = server_address});
//   ... let clients connect to (*proxy)->address() ...
//   // Silence the direction to the server.
//   (*proxy)->SetFaults(ByteProxy::Direction::kToTarget, {.hold = true});
//   (*proxy)->Heal();
#ifndef PAWL_TESTS_HARNESS_BYTE_PROXY_H_
#define PAWL_TESTS_HARNESS_BYTE_PROXY_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// The faults of one direction. By default there are none.
struct LinkFaults {
  // Delays bytes by this much and keeps their order.
  MonotonicDuration delay = {};
  // Per connection; 0: no limit.
  uint64_t bytes_per_second = 0;
  // Nothing passes, and connections are accepted but lead nowhere. Bytes sent meanwhile arrive when
  // the fault ends, as after a cut between two live TCP stacks. They fill kMaxBufferedBytes and the
  // kernel's buffers; then the sender blocks.
  bool hold = false;
  // Drops all bytes. A connection that has lost bytes is reset when the fault ends.
  bool swallow = false;
  // After this many bytes, counted over all connections from now on, resets the connection that
  // would carry the next one. Happens once.
  std::optional<uint64_t> reset_after = std::nullopt;
  // Flips one bit of this byte, counted in the same way from 0. Happens once.
  std::optional<uint64_t> corrupt_at = std::nullopt;
};

// Listens on a port of 127.0.0.1 and forwards each connection to the target. Uses one thread and
// bounded buffers. All methods are thread-safe; their effects are complete when they return.
class ByteProxy {
 public:
  // kToTarget: bytes from the side that connects.
  enum class Direction { kToTarget = 0, kToClient = 1 };
  static constexpr size_t kDirections = 2;

  struct Options {
    // host:port with a numeric host. If empty, connections are reset until SetTarget.
    std::string target;
    // Names the connecting process by its local port, so that faults can apply to one peer. Runs on
    // the proxy's thread. If unset, every peer is "".
    std::function<std::string(uint16_t port)> name_peer = {};
  };
  struct Counters {
    uint64_t accepted = 0;
    uint64_t open = 0;
    // Resets by the proxy: because of a fault, or because the other end was reset.
    uint64_t reset = 0;
    // Bytes passed on, by direction.
    std::array<uint64_t, kDirections> bytes = {};
    uint64_t bytes_swallowed = 0;
    // Bytes read from either side, including those dropped later.
    uint64_t bytes_read = 0;
    // What faults have done: bytes delayed, held back (counted when the faults change) or dropped,
    // and connections reset or held back. 0: no fault has met anything.
    uint64_t disturbed = 0;
  };

  static absl::StatusOr<std::unique_ptr<ByteProxy>> Start(Options options);
  // Resets the open connections.
  ~ByteProxy();
  ByteProxy(const ByteProxy&) = delete;
  ByteProxy& operator=(const ByteProxy&) = delete;

  // The host:port that the proxy listens on.
  const std::string& address() const { return address_; }

  // Applies to new connections.
  absl::Status SetTarget(const std::string& target);

  // Replaces this direction's faults for one peer or, with "", for all peers that have no faults of
  // their own.
  void SetFaults(Direction direction, const LinkFaults& faults, const std::string& peer = "");
  // Removes all faults of all peers and accepts connections again.
  void Heal();
  // Resets all open connections, or those of one peer.
  void Reset(const std::string& peer = "");
  // If true, resets new connections at once. Open ones are not affected.
  void RefuseConnections(bool refuse);

  Counters counters() const;

 private:
  class Loop;
  struct Control {
    std::string target;
    bool refuse = false;
    bool stop = false;
    // By direction, then by peer.
    std::array<std::map<std::string, LinkFaults>, kDirections> faults;
    // Directions whose byte counts restart at 0.
    std::array<bool, kDirections> recount = {};
    // Peers to reset.
    std::map<std::string, bool> reset;
  };

  explicit ByteProxy(Options options);
  absl::Status Listen();
  // Changes control_ and waits until the loop has applied it.
  void Change(const std::function<void(Control&)>& change);

  const Options options_;
  std::string address_;
  int listener_ = -1;
  int epoll_ = -1;
  int wake_ = -1;

  std::atomic<uint64_t> accepted_{0};
  std::atomic<uint64_t> open_{0};
  std::atomic<uint64_t> reset_{0};
  std::array<std::atomic<uint64_t>, kDirections> bytes_ = {};
  std::atomic<uint64_t> bytes_swallowed_{0};
  std::atomic<uint64_t> bytes_read_{0};
  std::atomic<uint64_t> disturbed_{0};

  mutable Mutex mu_;
  CondVar seen_;
  Control control_ PAWL_GUARDED_BY(mu_);
  uint64_t changes_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t changes_seen_ PAWL_GUARDED_BY(mu_) = 0;

  std::thread thread_;
};

// Per direction of a connection.
inline constexpr size_t kMaxBufferedBytes = size_t{1} << 20;
// Further connections are reset.
inline constexpr size_t kMaxProxyConnections = 512;

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_BYTE_PROXY_H_
