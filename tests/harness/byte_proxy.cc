#include "tests/harness/byte_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr int kMaxEvents = 64;
// The longest sleep of the loop. Events wake it earlier.
constexpr std::chrono::milliseconds kMaxSleep{1000};
// A link with limited bandwidth writes pieces that last 1/kPiecesPerSecond.
constexpr int kPiecesPerSecond = 100;
// The loop never blocks, so a change that it has not seen for this long is a bug in this file.
constexpr std::chrono::seconds kChangeTimeout{30};

MonotonicTime Now() { return Clock::Real().Now(); }

absl::StatusOr<sockaddr_in> ParseAddress(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  sockaddr_in parsed = {};
  parsed.sin_family = AF_INET;
  uint32_t port = 0;
  if (parts.size() != 2 || inet_pton(AF_INET, parts[0].c_str(), &parsed.sin_addr) != 1 ||
      !absl::SimpleAtoi(parts[1], &port) || port > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not a numeric IPv4 host:port"));
  }
  parsed.sin_port = htons(static_cast<uint16_t>(port));
  return parsed;
}

void CloseByReset(int descriptor) {
  const linger now = {1, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(descriptor);
}

}  // namespace

// The state of the proxy's thread. Events are level-triggered, and the loop examines every
// connection after every event: with a test's few connections that is cheap, and it leaves no state
// to get wrong.
class ByteProxy::Loop {
 public:
  explicit Loop(ByteProxy& proxy) : proxy_(proxy) {}

  ~Loop() {
    for (Connection& connection : connections_) Close(connection, /*reset=*/true);
  }

  void Run() {
    while (Adopt()) {
      const MonotonicTime now = Now();
      next_ = now + kMaxSleep;
      for (auto connection = connections_.begin(); connection != connections_.end();) {
        Pump(*connection, now);
        connection = connection->closed ? connections_.erase(connection) : std::next(connection);
      }
      proxy_.open_ = connections_.size();
      Wait();
    }
  }

 private:
  struct Chunk {
    MonotonicTime due;
    std::string bytes;
    size_t offset = 0;
    // Marks the end of the stream; the chunk has no bytes.
    bool end = false;
  };
  struct Pipe {
    std::deque<Chunk> chunks;
    size_t buffered = 0;
    // ended: the end has been read. passed_end: it has been passed on.
    bool ended = false;
    bool passed_end = false;
    bool write_blocked = false;
    // The earliest next write under bytes_per_second.
    MonotonicTime write_from = {};
  };
  struct End {
    int descriptor = -1;
    // The events registered with epoll. A descriptor whose peer has closed is removed, because
    // epoll would report it all the time.
    uint32_t events = 0;
    bool registered = false;
    bool gone = false;
  };
  struct Connection {
    std::string peer;
    End client;
    End target;
    bool connecting = false;
    bool closed = false;
    bool lost_bytes = false;
    std::array<Pipe, kDirections> pipes;
  };

  // Returns false to stop.
  bool Adopt() {
    uint64_t changes;
    {
      MutexLock lock(proxy_.mu_);
      changes = proxy_.changes_;
      if (changes == proxy_.changes_seen_) return true;
      CountHeld();
      control_ = proxy_.control_;
      proxy_.control_.recount = {};
      proxy_.control_.reset.clear();
    }
    for (size_t i = 0; i < kDirections; ++i) {
      if (!control_.recount[i]) continue;
      counted_[i] = 0;
      reset_done_[i] = corrupt_done_[i] = false;
    }
    for (const auto& [peer, _] : control_.reset) {
      for (Connection& connection : connections_) {
        if (peer.empty() || connection.peer == peer) Close(connection, /*reset=*/true);
      }
    }
    connections_.remove_if([](const Connection& connection) { return connection.closed; });
    proxy_.open_ = connections_.size();
    MutexLock lock(proxy_.mu_);
    proxy_.changes_seen_ = changes;
    proxy_.seen_.NotifyAll();
    return !control_.stop;
  }

  // Counts what the faults that may end now hold back.
  void CountHeld() {
    for (const Connection& connection : connections_) {
      for (size_t direction = 0; direction < kDirections; ++direction) {
        if (!FaultsOf(connection, direction).hold) continue;
        const bool to_target = direction == 0;
        const End& from = to_target ? connection.client : connection.target;
        int unread = 0;
        if (from.descriptor >= 0) ioctl(from.descriptor, FIONREAD, &unread);
        proxy_.disturbed_ += connection.pipes[direction].buffered + static_cast<uint64_t>(unread) +
                             (to_target && connection.target.descriptor < 0);
      }
    }
  }

  const LinkFaults& FaultsOf(const Connection& connection, size_t direction) const {
    static const LinkFaults none;
    const auto& faults = control_.faults[direction];
    auto found = faults.find(connection.peer);
    if (found == faults.end()) found = faults.find("");
    return found == faults.end() ? none : found->second;
  }

  void Wait() {
    const MonotonicDuration left = std::max(MonotonicDuration::zero(), next_ - Now());
    epoll_event events[kMaxEvents];
    const int count =
        epoll_wait(proxy_.epoll_, events, kMaxEvents,
                   static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == &proxy_.wake_) {
        uint64_t value;
        [[maybe_unused]] const ssize_t bytes = read(proxy_.wake_, &value, sizeof(value));
      } else if (events[i].data.ptr == &proxy_.listener_) {
        Accept();
      } else if ((events[i].events & (EPOLLHUP | EPOLLERR)) != 0) {
        static_cast<End*>(events[i].data.ptr)->gone = true;
      }
    }
  }

  void Accept() {
    sockaddr_in from = {};
    socklen_t length = sizeof(from);
    const int descriptor = accept4(proxy_.listener_, reinterpret_cast<sockaddr*>(&from), &length,
                                   SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) return;
    ++proxy_.accepted_;
    if (control_.refuse || control_.target.empty() || connections_.size() >= kMaxProxyConnections) {
      CloseByReset(descriptor);
      ++proxy_.reset_;
      return;
    }
    NoDelay(descriptor);
    Connection& connection = connections_.emplace_back();
    connection.client.descriptor = descriptor;
    if (proxy_.options_.name_peer)
      connection.peer = proxy_.options_.name_peer(ntohs(from.sin_port));
  }

  static void NoDelay(int descriptor) {
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }

  void Connect(Connection& connection) {
    const absl::StatusOr<sockaddr_in> address = ParseAddress(control_.target);
    const int descriptor =
        address.ok() ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (descriptor < 0) return Close(connection, /*reset=*/true);
    NoDelay(descriptor);
    connection.target.descriptor = descriptor;
    if (connect(descriptor, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
      if (errno != EINPROGRESS) return Close(connection, /*reset=*/true);
      connection.connecting = true;
    }
  }

  // Returns true once connected.
  bool FinishConnecting(Connection& connection) {
    if (!connection.connecting) return true;
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(connection.target.descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      Close(connection, /*reset=*/true);
      return false;
    }
    sockaddr_in peer = {};
    length = sizeof(peer);
    if (getpeername(connection.target.descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0)
      return false;
    connection.connecting = false;
    return true;
  }

  void Pump(Connection& connection, MonotonicTime now) {
    const LinkFaults& out = FaultsOf(connection, 0);
    const LinkFaults& back = FaultsOf(connection, 1);
    if (connection.lost_bytes && !out.swallow && !back.swallow)
      return Close(connection, /*reset=*/true);
    const bool silent = out.hold || out.swallow;
    if (connection.target.descriptor < 0 && !silent) Connect(connection);
    if (connection.closed) return;
    const bool connected = connection.target.descriptor >= 0 && FinishConnecting(connection);
    if (connection.closed) return;
    bool reads[kDirections] = {};
    for (size_t direction = 0; direction < kDirections; ++direction) {
      const bool to_target = direction == 0;
      const LinkFaults& faults = to_target ? out : back;
      Pipe& pipe = connection.pipes[direction];
      End& from = to_target ? connection.client : connection.target;
      End& to = to_target ? connection.target : connection.client;
      pipe.write_blocked = false;
      if (faults.hold) continue;
      if (to_target || connected) reads[direction] = Read(connection, pipe, faults, from, now);
      if (connection.closed) return;
      if (!to_target || connected) Write(connection, pipe, faults, direction, to, now);
      if (connection.closed) return;
      reads[direction] = reads[direction] && pipe.buffered < kMaxBufferedBytes && !pipe.ended;
    }
    if (connection.pipes[0].passed_end && connection.pipes[1].passed_end)
      return Close(connection, /*reset=*/false);
    Watch(connection.client, reads[0], connection.pipes[1].write_blocked);
    Watch(connection.target, reads[1],
          connection.pipes[0].write_blocked || (connection.connecting && !silent));
  }

  // Returns true if there may be more to read later.
  bool Read(Connection& connection, Pipe& pipe, const LinkFaults& faults, End& from,
            MonotonicTime now) {
    if (pipe.ended || pipe.buffered >= kMaxBufferedBytes) return false;
    buffer_.resize(kReadBytes);
    const ssize_t bytes = recv(from.descriptor, buffer_.data(), buffer_.size(), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes < 0) {
      // A reset overtakes bytes in flight, as it does in TCP.
      if (faults.swallow) {
        pipe.ended = connection.lost_bytes = true;
      } else {
        Close(connection, /*reset=*/true);
      }
      return false;
    }
    if (faults.swallow) {
      connection.lost_bytes = true;
      proxy_.bytes_swallowed_ += static_cast<uint64_t>(bytes);
      proxy_.bytes_read_ += static_cast<uint64_t>(bytes);
      proxy_.disturbed_ += static_cast<uint64_t>(bytes);
      pipe.ended = bytes == 0;
      return bytes > 0;
    }
    if (faults.delay > MonotonicDuration::zero()) proxy_.disturbed_ += static_cast<uint64_t>(bytes);
    pipe.ended = bytes == 0;
    pipe.chunks.push_back(
        {now + faults.delay, buffer_.substr(0, static_cast<size_t>(bytes)), 0, bytes == 0});
    pipe.buffered += static_cast<size_t>(bytes);
    proxy_.bytes_read_ += static_cast<uint64_t>(bytes);
    return true;
  }

  void Write(Connection& connection, Pipe& pipe, const LinkFaults& faults, size_t direction,
             End& to, MonotonicTime now) {
    while (!pipe.chunks.empty()) {
      Chunk& chunk = pipe.chunks.front();
      if (faults.swallow) {
        connection.lost_bytes = true;
        proxy_.bytes_swallowed_ += chunk.bytes.size() - chunk.offset;
        proxy_.disturbed_ += chunk.bytes.size() - chunk.offset;
        pipe.buffered -= chunk.bytes.size() - chunk.offset;
        pipe.chunks.pop_front();
        continue;
      }
      const MonotonicTime from =
          std::max(chunk.due, faults.bytes_per_second == 0 ? MonotonicTime{} : pipe.write_from);
      if (now < from) {
        next_ = std::min(next_, from);
        return;
      }
      if (chunk.end) {
        shutdown(to.descriptor, SHUT_WR);
        pipe.passed_end = true;
        pipe.chunks.pop_front();
        return;
      }
      size_t size = chunk.bytes.size() - chunk.offset;
      if (faults.bytes_per_second != 0) {
        size = std::min<size_t>(size,
                                std::max<uint64_t>(1, faults.bytes_per_second / kPiecesPerSecond));
      }
      if (faults.reset_after.has_value() && !reset_done_[direction]) {
        const uint64_t left =
            *faults.reset_after - std::min(*faults.reset_after, counted_[direction]);
        if (left == 0) {
          reset_done_[direction] = true;
          ++proxy_.disturbed_;
          return Close(connection, /*reset=*/true);
        }
        size = std::min<size_t>(size, left);
      }
      if (faults.corrupt_at.has_value() && !corrupt_done_[direction] &&
          *faults.corrupt_at >= counted_[direction] &&
          *faults.corrupt_at - counted_[direction] < size) {
        const size_t distance = *faults.corrupt_at - counted_[direction];
        if (distance == 0) {
          chunk.bytes[chunk.offset] = static_cast<char>(chunk.bytes[chunk.offset] ^ 1);
          corrupt_done_[direction] = true;
        } else {
          // The byte comes first in the next round, so it has not been sent yet.
          size = distance;
        }
      }
      const ssize_t sent =
          send(to.descriptor, chunk.bytes.data() + chunk.offset, size, MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) return Close(connection, /*reset=*/true);
        pipe.write_blocked = true;
        return;
      }
      const auto count = static_cast<uint64_t>(sent);
      proxy_.bytes_[direction] += count;
      counted_[direction] += count;
      pipe.buffered -= count;
      chunk.offset += count;
      if (faults.bytes_per_second != 0) {
        pipe.write_from = std::max(now, pipe.write_from) +
                          std::chrono::nanoseconds(count * 1000000000 / faults.bytes_per_second);
      }
      if (chunk.offset == chunk.bytes.size()) pipe.chunks.pop_front();
    }
  }

  void Watch(End& end, bool read, bool write) {
    if (end.descriptor < 0) return;
    if (end.gone) {
      if (end.registered) epoll_ctl(proxy_.epoll_, EPOLL_CTL_DEL, end.descriptor, nullptr);
      end.registered = false;
      // epoll no longer reports this descriptor, so poll it.
      if (read || write) next_ = std::min(next_, Now() + std::chrono::milliseconds(1));
      return;
    }
    const uint32_t wanted = (read ? EPOLLIN : 0u) | (write ? EPOLLOUT : 0u);
    if (end.registered && end.events == wanted) return;
    epoll_event event = {};
    event.events = wanted;
    event.data.ptr = &end;
    epoll_ctl(proxy_.epoll_, end.registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, end.descriptor,
              &event);
    end.registered = true;
    end.events = wanted;
  }

  void Close(Connection& connection, bool reset) {
    if (connection.closed) return;
    connection.closed = true;
    proxy_.reset_ += reset;
    for (const int descriptor : {connection.client.descriptor, connection.target.descriptor}) {
      if (descriptor < 0) continue;
      if (reset) {
        CloseByReset(descriptor);
      } else {
        close(descriptor);
      }
    }
  }

  ByteProxy& proxy_;
  Control control_;
  // A list, because epoll keeps addresses of its ends.
  std::list<Connection> connections_;
  // Bytes passed on since the direction's faults were set.
  std::array<uint64_t, kDirections> counted_ = {};
  std::array<bool, kDirections> reset_done_ = {};
  std::array<bool, kDirections> corrupt_done_ = {};
  MonotonicTime next_ = {};
  std::string buffer_;
};

absl::StatusOr<std::unique_ptr<ByteProxy>> ByteProxy::Start(Options options) {
  if (!options.target.empty()) PAWL_RETURN_IF_ERROR(ParseAddress(options.target).status());
  std::unique_ptr<ByteProxy> proxy(new ByteProxy(std::move(options)));
  PAWL_RETURN_IF_ERROR(proxy->Listen());
  proxy->thread_ = std::thread([raw = proxy.get()] { Loop(*raw).Run(); });
  return proxy;
}

ByteProxy::ByteProxy(Options options) : options_(std::move(options)) {
  MutexLock lock(mu_);
  control_.target = options_.target;
  changes_ = 1;
}

ByteProxy::~ByteProxy() {
  if (thread_.joinable()) {
    Change([](Control& control) { control.stop = true; });
    thread_.join();
  }
  for (const int descriptor : {listener_, epoll_, wake_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

absl::Status ByteProxy::Listen() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener_, SOMAXCONN) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return absl::ErrnoToStatus(errno, "the proxy cannot listen");
  }
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (int* descriptor : {&listener_, &wake_}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = descriptor;
    if (epoll_ < 0 || wake_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, *descriptor, &event) != 0) {
      return absl::ErrnoToStatus(errno, "the proxy cannot wait");
    }
  }
  return absl::OkStatus();
}

void ByteProxy::Change(const std::function<void(Control&)>& change) {
  const MonotonicTime deadline = Now() + kChangeTimeout;
  MutexLock lock(mu_);
  change(control_);
  const uint64_t number = ++changes_;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  while (changes_seen_ < number) {
    if (!seen_.WaitUntil(mu_, deadline) && changes_seen_ < number) std::abort();
  }
}

absl::Status ByteProxy::SetTarget(const std::string& target) {
  PAWL_RETURN_IF_ERROR(ParseAddress(target).status());
  Change([&](Control& control) { control.target = target; });
  return absl::OkStatus();
}

void ByteProxy::SetFaults(Direction direction, const LinkFaults& faults, const std::string& peer) {
  const auto index = static_cast<size_t>(direction);
  Change([&](Control& control) {
    control.faults[index][peer] = faults;
    control.recount[index] = true;
  });
}

void ByteProxy::Heal() {
  Change([](Control& control) {
    for (auto& faults : control.faults) faults.clear();
    control.recount = {true, true};
    control.refuse = false;
  });
}

void ByteProxy::Reset(const std::string& peer) {
  Change([&](Control& control) { control.reset[peer] = true; });
}

void ByteProxy::RefuseConnections(bool refuse) {
  Change([&](Control& control) { control.refuse = refuse; });
}

ByteProxy::Counters ByteProxy::counters() const {
  Counters counters;
  counters.accepted = accepted_;
  counters.open = open_;
  counters.reset = reset_;
  for (size_t i = 0; i < kDirections; ++i) counters.bytes[i] = bytes_[i];
  counters.bytes_swallowed = bytes_swallowed_;
  counters.bytes_read = bytes_read_;
  counters.disturbed = disturbed_;
  return counters;
}

}  // namespace pawl
