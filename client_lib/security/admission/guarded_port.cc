#include "client_lib/security/admission/guarded_port.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/admission/connection_watch.h"
#include "client_lib/security/admission/transport_statistics.h"
#include "grpcpp/resource_quota.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr int kBacklog = 4096;
// Connections accepted before others are looked at.
constexpr int kMaxAcceptedAtOnce = 64;
constexpr int kMaxEvents = 256;
// Bound what is discarded of a connection that is closed: more than the kernel keeps.
constexpr size_t kDiscardBytes = size_t{16} << 20;
constexpr int kMaxDiscards = 16;
// How often the thread looks at deadlines, and at queued connections.
constexpr std::chrono::milliseconds kIdleInterval{500};
constexpr std::chrono::milliseconds kQueueInterval{10};
// How long nothing is accepted when the process lacks descriptors.
constexpr std::chrono::milliseconds kListenerPause{50};
// How often ended connections are looked for at a limit, and otherwise.
constexpr std::chrono::milliseconds kSweepInterval{100};
constexpr std::chrono::milliseconds kIdleSweepInterval{1000};
// Threads for synchronous services. The only one is gRPC's reflection, where each open stream holds
// a thread; beyond the limit gRPC refuses streams. Pawl's services run on gRPC's own threads.
constexpr int kMaxSynchronousThreads = 16;

// How a TLS connection begins (RFC 8446, sections 4 and 5.1): a handshake record, its version, its
// length, and a ClientHello.
constexpr size_t kTlsStartBytes = 6;
constexpr uint8_t kTlsHandshake = 22;
constexpr uint8_t kTlsMajorVersion = 3;
constexpr uint8_t kClientHello = 1;
constexpr size_t kTlsRecordHeaderBytes = 5;
constexpr size_t kMaxTlsRecordBytes = 16384;
// How a connection without TLS begins (RFC 9113, section 3.4).
constexpr absl::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum class FirstBytes { kIncomplete, kHandshake, kOther };

FirstBytes ClassifyTls(absl::string_view begin, size_t available) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(begin[i]); };
  if (begin.size() > 0 && at(0) != kTlsHandshake) return FirstBytes::kOther;
  if (begin.size() > 1 && at(1) != kTlsMajorVersion) return FirstBytes::kOther;
  if (begin.size() < kTlsStartBytes) return FirstBytes::kIncomplete;
  const size_t record = size_t{at(3)} << 8 | at(4);
  if (record == 0 || record > kMaxTlsRecordBytes || at(5) != kClientHello)
    return FirstBytes::kOther;
  return available >= kTlsRecordHeaderBytes + record ? FirstBytes::kHandshake
                                                     : FirstBytes::kIncomplete;
}

FirstBytes ClassifyPlaintext(absl::string_view begin) {
  if (!absl::StartsWith(kHttp2Preface, begin.substr(0, kHttp2Preface.size())))
    return FirstBytes::kOther;
  return begin.size() >= kHttp2Preface.size() ? FirstBytes::kHandshake : FirstBytes::kIncomplete;
}

absl::Status CannotListen(const std::string& address, const char* what, int error) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot listen on ", address, ": ", what, ": ", std::strerror(error)));
}

// As gRPC sets up its own sockets. Connections inherit all of it.
absl::StatusOr<int> BoundSocket(const std::string& address, int family, const sockaddr* to,
                                socklen_t size) {
  const int descriptor = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return CannotListen(address, "socket", errno);
  const int on = 1;
  const int off = 0;
  const auto user_timeout = static_cast<unsigned int>(kKeepaliveTimeout.count());
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(user_timeout));
  if (family == AF_INET6) setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(descriptor, to, size) == 0 && listen(descriptor, kBacklog) == 0) return descriptor;
  const int error = errno;
  close(descriptor);
  return CannotListen(address, "bind", error);
}

uint16_t PortOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Where to listen for `host`, a name or an address.
absl::StatusOr<Addresses> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", host, ": ", gai_strerror(error)));
  }
  return Addresses(found, freeaddrinfo);
}

void SetPort(sockaddr_storage& address, int port) {
  (address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                 : reinterpret_cast<sockaddr_in&>(address).sin_port) =
      htons(static_cast<uint16_t>(port));
}

ConnectionLimits WithinDescriptors(ConnectionLimits limits) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0)
    limits.max_connections = std::min<size_t>(limits.max_connections, files.rlim_cur / 2);
  return limits;
}

}  // namespace

GuardedPort::GuardedPort(ListenerSecurity security)
    : security_(std::move(security)), table_(WithinDescriptors(security_.connections)) {}

GuardedPort::~GuardedPort() {
  Stop();
  for (const int descriptor : listeners_) close(descriptor);
  if (epoll_ >= 0) close(epoll_);
  if (wake_ >= 0) close(wake_);
}

absl::Status GuardedPort::Bind(const std::string& address) {
  PAWL_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
  std::string host = at.host;
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  port_ = at.port;
  absl::Status status;
  const auto listen_on_all = [&](const addrinfo* found) {
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      sockaddr_storage to = {};
      std::memcpy(&to, one->ai_addr, one->ai_addrlen);
      // All addresses of a name get the port of the first.
      SetPort(to, port_);
      absl::StatusOr<int> bound = BoundSocket(
          address, one->ai_family, reinterpret_cast<const sockaddr*>(&to), one->ai_addrlen);
      if (!bound.ok()) {
        status.Update(bound.status());
        continue;
      }
      listeners_.push_back(*bound);
      port_ = PortOf(*bound);
    }
    return !listeners_.empty();
  };
  if (at.IsWildcard()) {
    // A socket for all IPv6 addresses accepts IPv4 too, if the machine has IPv6.
    const absl::StatusOr<Addresses> found = Resolve("::", port_);
    if (found.ok() && listen_on_all(found->get())) return absl::OkStatus();
    host = "0.0.0.0";
    status = absl::OkStatus();
  }
  PAWL_ASSIGN_OR_RETURN(const Addresses found, Resolve(host, port_));
  return listen_on_all(found.get()) ? absl::OkStatus() : status;
}

absl::Status GuardedPort::Listen(grpc::ServerBuilder& builder, const std::string& address) {
  PAWL_RETURN_IF_ERROR(Bind(address));
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wake_ < 0) return CannotListen(address, "epoll", errno);
  std::vector<int> watched = listeners_;
  watched.push_back(wake_);
  for (const int descriptor : watched) {
    epoll_event event = {.events = EPOLLIN, .data = {.fd = descriptor}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0)
      return CannotListen(address, "epoll", errno);
  }
  grpc::ResourceQuota resources("port");
  resources.Resize(security_.max_memory_bytes);
  resources.SetMaxThreads(kMaxSynchronousThreads);
  builder.SetResourceQuota(resources);
  const auto accept_with = [&](const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    acceptors_.push_back(builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials));
  };
  if (security_.quotas != nullptr) {
    watch_ = std::make_unique<ConnectionWatch>(port_, security_.ledger, security_.quotas,
                                               security_.is_trusted);
    enforcer_ = std::make_unique<QuotaEnforcer>(
        security_.quotas, watch_->ledger(),
        [this](const std::string& connection) { CloseHandedOver(connection); });
    enforcer_->AddTo(builder);
  }
  if (watch_ == nullptr || security_.counting_credentials == nullptr) {
    accept_with(security_.credentials);
  } else {
    for (size_t slot = 0; slot < ConnectionLedger::kSlots; ++slot)
      accept_with(security_.counting_credentials(watch_->ledger().counts(slot)));
  }
  return absl::OkStatus();
}

void GuardedPort::Start() {
  thread_ = std::thread([this] { Run(); });
}

void GuardedPort::Stop() {
  stopping_ = true;
  if (thread_.joinable()) {
    // Cannot fail: the counter is far from its limit.
    eventfd_write(wake_, 1);
    thread_.join();
  }
  // Those that gRPC does not have.
  std::vector<int> left;
  {
    MutexLock lock(mu_);
    left = table_.NotHandedOver();
  }
  for (const int descriptor : left) Close(descriptor);
  if (enforcer_ != nullptr) enforcer_->Stop();
}

void GuardedPort::Run() {
  std::array<epoll_event, kMaxEvents> events;
  if (security_.revocations != nullptr) revocations_ = security_.revocations();
  swept_at_ = Clock::Real().Now();
  while (!stopping_) {
    const std::chrono::milliseconds pause = Pause(Clock::Real().Now());
    const int count =
        epoll_wait(epoll_, events.data(), kMaxEvents, static_cast<int>(pause.count()));
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<size_t>(i)].data.fd;
      if (descriptor == wake_) continue;
      if (std::find(listeners_.begin(), listeners_.end(), descriptor) != listeners_.end()) {
        Accept(descriptor);
      } else {
        Look(descriptor);
      }
    }
    Advance(Clock::Real().Now());
  }
}

std::chrono::milliseconds GuardedPort::Pause(MonotonicTime now) {
  auto pause = kIdleInterval;
  {
    MutexLock lock(mu_);
    if (table_.HasQueued()) pause = kQueueInterval;
  }
  if (paused_until_.has_value()) pause = std::min(pause, kListenerPause);
  if (watch_ != nullptr) {
    pause = std::min(pause,
                     std::chrono::duration_cast<std::chrono::milliseconds>(watch_->Interval(now)));
  }
  return pause;
}

void GuardedPort::Advance(MonotonicTime now) {
  if (paused_until_.has_value() && now >= *paused_until_) {
    paused_until_.reset();
    SetListening(true);
  }
  std::vector<int> turns;
  std::vector<int> overdue;
  {
    MutexLock lock(mu_);
    overdue = table_.Overdue(now);
    if (overdue.empty()) turns = table_.TakeTurns(now);
  }
  for (const int descriptor : overdue) Close(descriptor);
  for (const int descriptor : turns) HandOver(descriptor);
  if (now >= swept_at_ + kIdleSweepInterval) {
    Sweep();
    CloseAllIfRevoked();
  }
  if (watch_ != nullptr && watch_->IsDue(now)) Watch();
}

void GuardedPort::Accept(int listener) {
  for (int i = 0; i < kMaxAcceptedAtOnce; ++i) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    const int descriptor = accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0) {
      Admit(descriptor, RemoteAddressOf(address));
      continue;
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    if (!CloseOldestSilent()) return PauseListeners();
  }
}

// Otherwise epoll would report them at once, and again.
void GuardedPort::PauseListeners() {
  paused_until_ = Clock::Real().Now() + kListenerPause;
  SetListening(false);
}

void GuardedPort::SetListening(bool listening) {
  for (const int listener : listeners_) {
    epoll_event event = {.events = listening ? EPOLLIN : 0u, .data = {.fd = listener}};
    // Cannot fail: the listener is in the set.
    epoll_ctl(epoll_, EPOLL_CTL_MOD, listener, &event);
  }
}

bool GuardedPort::HasRoomFor(int descriptor, const RemoteAddress& remote) {
  MutexLock lock(mu_);
  // The connection that had this descriptor has ended.
  if (table_.Find(descriptor) != nullptr) table_.Remove(descriptor);
  // Two connections of one remote port, to different addresses of a wildcard, would be confused.
  const std::optional<int> other = table_.DescriptorOf(remote.connection);
  if (other.has_value() && SocketInode(*other) == table_.Find(*other)->inode) return false;
  return table_.HasRoom() && table_.HasRoomFor(remote);
}

void GuardedPort::Admit(int descriptor, const RemoteAddress& remote) {
  const MonotonicTime now = Clock::Real().Now();
  bool is_admitted = HasRoomFor(descriptor, remote);
  if (!is_admitted && now >= swept_at_ + kSweepInterval) {
    Sweep();
    is_admitted = HasRoomFor(descriptor, remote);
  }
  const auto is_full = [&] {
    MutexLock lock(mu_);
    return !table_.HasRoom();
  };
  // Silent connections of many hosts do not keep out the others.
  if (!is_admitted && is_full() && CloseOldestSilent())
    is_admitted = HasRoomFor(descriptor, remote);
  if (!is_admitted) {
    if (security_.figures != nullptr) ++security_.figures->refused_connections;
    close(descriptor);
    return;
  }
  std::optional<int> replaced;
  {
    MutexLock lock(mu_);
    table_.Add(descriptor, SocketInode(descriptor), remote, now);
    replaced = table_.SilentBeyondLimit(remote.host);
  }
  if (replaced.has_value()) Close(*replaced);
  epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.fd = descriptor}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) Close(descriptor);
}

bool GuardedPort::CloseOldestSilent() {
  std::optional<int> oldest;
  {
    MutexLock lock(mu_);
    oldest = table_.OldestSilent();
  }
  if (oldest.has_value()) Close(*oldest);
  return oldest.has_value();
}

void GuardedPort::Look(int descriptor) {
  {
    MutexLock lock(mu_);
    const ConnectionTable::Connection* const connection = table_.Find(descriptor);
    if (connection == nullptr || connection->phase != ConnectionTable::Phase::kSilent) return;
  }
  std::array<char, kHttp2Preface.size()> begin;
  const ssize_t count = recv(descriptor, begin.data(), begin.size(), MSG_PEEK);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Close(descriptor);
  int available = 0;
  if (ioctl(descriptor, FIONREAD, &available) != 0) available = 0;
  const absl::string_view seen(begin.data(), static_cast<size_t>(count));
  const FirstBytes first_bytes = security_.is_tls
                                     ? ClassifyTls(seen, static_cast<size_t>(available))
                                     : ClassifyPlaintext(seen);
  if (first_bytes == FirstBytes::kOther) return Close(descriptor);
  if (first_bytes == FirstBytes::kIncomplete) return;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
  MutexLock lock(mu_);
  table_.SetQueued(descriptor);
}

void GuardedPort::HandOver(int descriptor) {
  size_t slot = 0;
  if (watch_ != nullptr) {
    MutexLock lock(mu_);
    slot = watch_->ledger().Add(table_.Find(descriptor)->remote.connection, Clock::Real().Now());
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = listeners_.front();
  connection.fd = descriptor;
  acceptors_[slot % acceptors_.size()]->HandleNewConnection(&connection);
}

void GuardedPort::Close(int descriptor) {
  {
    MutexLock lock(mu_);
    table_.Remove(descriptor);
  }
  // Counted first, for a peer that looks at the count when its connection ends.
  if (security_.figures != nullptr) ++security_.figures->refused_connections;
  close(descriptor);
}

void GuardedPort::Sweep() {
  const MonotonicTime now = Clock::Real().Now();
  swept_at_ = now;
  absl::flat_hash_set<std::string> open;
  {
    MutexLock lock(mu_);
    table_.Sweep(now,
                 [](int descriptor, uint64_t inode) { return SocketInode(descriptor) == inode; });
    if (security_.figures != nullptr) security_.figures->connections = table_.size();
    if (watch_ == nullptr) return;
    table_.ForEachHandedOver([&](int, const ConnectionTable::Connection& connection) {
      open.insert(connection.remote.connection);
    });
  }
  watch_->Sweep([&](const std::string& connection) { return open.contains(connection); }, now);
}

void GuardedPort::Watch() {
  const MonotonicTime now = Clock::Real().Now();
  std::vector<ConnectionWatch::Connection> connections;
  if (watch_->Reads(now)) {
    MutexLock lock(mu_);
    const size_t turns = 1 + table_.size() / kMaxWatchedAtOnce;
    const size_t turn = looks_++ % turns;
    table_.ForEachHandedOver([&](int descriptor, const ConnectionTable::Connection& connection) {
      if (static_cast<size_t>(descriptor) % turns == turn)
        connections.push_back({descriptor, connection.inode, connection.remote.connection});
    });
  }
  std::vector<ConnectionLedger::Offender> offenders = std::exchange(unclosed_, {});
  for (ConnectionLedger::Offender& offender : watch_->Look(connections, now))
    offenders.push_back(std::move(offender));
  for (ConnectionLedger::Offender& offender : offenders) {
    if (!CloseHandedOver(offender.connection)) {
      unclosed_.push_back(std::move(offender));
      continue;
    }
    if (security_.figures != nullptr) ++security_.figures->closed_connections;
    if (offender.reason.empty()) continue;
    if (log_limiter_.Allows(Clock::Real().Now())) {
      spdlog::warn("closed a connection of {} (from {}): {}", offender.peer, offender.connection,
                   std::string(offender.reason));
    }
  }
}

bool GuardedPort::CloseHandedOver(const std::string& name) {
  MutexLock lock(mu_);
  const std::optional<int> descriptor = table_.DescriptorOf(name);
  if (!descriptor.has_value()) return true;
  const ConnectionTable::Connection& connection = *table_.Find(*descriptor);
  if (connection.phase != ConnectionTable::Phase::kHandedOver || connection.is_shut_down)
    return true;
  // gRPC may close the descriptor at any time, and another socket get it: look at a copy.
  const int copy = fcntl(*descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return errno == EBADF;
  if (SocketInode(copy) == connection.inode) {
    shutdown(copy, SHUT_RDWR);
    // Otherwise gRPC would serve what the kernel has received, which may be thousands of calls.
    for (int i = 0; i < kMaxDiscards; ++i) {
      if (recv(copy, nullptr, kDiscardBytes, MSG_TRUNC | MSG_DONTWAIT) <= 0) break;
    }
    table_.OnShutDown(*descriptor, Clock::Real().Now());
  }
  close(copy);
  return true;
}

void GuardedPort::CloseAllIfRevoked() {
  if (security_.revocations == nullptr) return;
  const uint64_t revocations = security_.revocations();
  if (revocations == revocations_) return;
  bool is_complete = true;
  MutexLock lock(mu_);
  table_.ForEachHandedOver([&](int descriptor, const ConnectionTable::Connection& connection) {
    // A copy, as in CloseHandedOver.
    const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
      is_complete = is_complete && errno == EBADF;
      return;
    }
    if (SocketInode(copy) == connection.inode) shutdown(copy, SHUT_RDWR);
    close(copy);
  });
  // Otherwise the process lacks descriptors, and the next sweep tries again.
  if (is_complete) revocations_ = revocations;
}

}  // namespace pawl
