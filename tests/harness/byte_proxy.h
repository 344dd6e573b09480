// A TCP proxy that does to its connections what networks do.
//
//   auto proxy = ByteProxy::Start({.target = server_address});
//   ... let clients connect to (*proxy)->address() ...
//   (*proxy)->SetFaults(ByteProxy::Direction::kToTarget, {.hold = true});   // the way there is
//   silent
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

// What happens to the bytes of one direction. The default is nothing.
struct LinkFaults {
  // Bytes come this much later, in their order.
  MonotonicDuration delay = {};
  // Of each connection; 0: no limit.
  uint64_t bytes_per_second = 0;
  // Nothing passes, connections are accepted but lead nowhere, and what has been sent meanwhile
  // comes through afterwards: a network that is cut between two living TCP stacks. At most
  // kMaxBufferedBytes and the kernel's buffers hold it, then the sender has to wait.
  bool hold = false;
  // Bytes are taken and vanish. A connection that has lost some is reset when this ends.
  bool swallow = false;
  // After so many bytes, counted over all connections from now on, the connection that would carry
  // the next one is reset; once.
  std::optional<uint64_t> cut_after = std::nullopt;
  // One bit of this byte, counted in the same way from 0, is flipped; once.
  std::optional<uint64_t> corrupt_at = std::nullopt;
};

// Listens on a port of 127.0.0.1 and carries each connection to the target. One thread; buffers are
// bounded. All methods are thread-safe, and have taken effect when they return.
class ByteProxy {
 public:
  // kToTarget: what the side that connects sends.
  enum class Direction { kToTarget = 0, kToClient = 1 };
  static constexpr size_t kDirections = 2;

  struct Options {
    // host:port with a numeric host. May be empty until SetTarget: connections are reset meanwhile.
    std::string target;
    // Says who connects, by the port it connects from, so that faults can be of one peer; called on
    // the proxy's thread. Unset: everybody is "".
    std::function<std::string(uint16_t port)> name_peer = {};
  };
  struct Counters {
    uint64_t accepted = 0;
    uint64_t open = 0;
    // By the proxy: for a fault, or because the other side's end was a reset.
    uint64_t reset = 0;
    // Passed on, by direction.
    std::array<uint64_t, kDirections> bytes = {};
    uint64_t bytes_swallowed = 0;
    // Taken in from either side, whatever became of them.
    uint64_t bytes_read = 0;
  };

  static absl::StatusOr<std::unique_ptr<ByteProxy>> Start(Options options);
  // Resets what is still open.
  ~ByteProxy();
  ByteProxy(const ByteProxy&) = delete;
  ByteProxy& operator=(const ByteProxy&) = delete;

  // Where it listens: host:port.
  const std::string& address() const { return address_; }

  // Of connections to come.
  absl::Status SetTarget(const std::string& target);

  // Replaces the faults of this direction for one peer or, with "", for all peers that have none of
  // their own.
  void SetFaults(Direction direction, const LinkFaults& faults, const std::string& peer = "");
  // Takes back all faults of all peers and lets new connections in again.
  void Heal();
  // Resets every connection there is now, or those of one peer.
  void Reset(const std::string& peer = "");
  // New connections are reset at once; those there are go on.
  void RefuseConnections(bool refuse);

  Counters counters() const;

 private:
  class Loop;
  struct Control {
    std::string target;
    bool refuse = false;
    bool stop = false;
    // By direction, then peer.
    std::array<std::map<std::string, LinkFaults>, kDirections> faults;
    // Directions whose counts of bytes begin anew.
    std::array<bool, kDirections> recount = {};
    // Peers to reset.
    std::map<std::string, bool> reset;
  };

  explicit ByteProxy(Options options);
  absl::Status Listen();
  // Changes control_ and waits until the loop has seen it.
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

  mutable Mutex mu_;
  CondVar seen_;
  Control control_ PAWL_GUARDED_BY(mu_);
  uint64_t changes_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t changes_seen_ PAWL_GUARDED_BY(mu_) = 0;

  std::thread thread_;
};

// Of one direction of one connection.
inline constexpr size_t kMaxBufferedBytes = size_t{1} << 20;
// Beyond it new ones are reset.
inline constexpr size_t kMaxProxyConnections = 512;

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_BYTE_PROXY_H_
