#include "tests/harness/byte_proxy.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using Direction = ByteProxy::Direction;

MonotonicTime Now() { return Clock::Real().Now(); }

sockaddr_in Loopback(const std::string& address) {
  uint32_t port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.find(':') + 1), &port));
  sockaddr_in parsed = {};
  parsed.sin_family = AF_INET;
  parsed.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  parsed.sin_port = htons(static_cast<uint16_t>(port));
  return parsed;
}

// A blocking socket whose calls have a timeout.
class Peer {
 public:
  explicit Peer(int descriptor) : descriptor_(descriptor) { SetTimeout(milliseconds(10000)); }
  explicit Peer(const std::string& address) : Peer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in to = Loopback(address);
    EXPECT_EQ(connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  ~Peer() { close(descriptor_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void SetTimeout(milliseconds timeout) {
    const timeval value = {timeout.count() / 1000, timeout.count() % 1000 * 1000};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value));
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value));
  }
  // Returns the number of bytes sent before the timeout or an error.
  size_t Send(const std::string& bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t sent =
          send(descriptor_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) break;
      done += static_cast<size_t>(sent);
    }
    return done;
  }
  // Receives until `count` bytes, the end of the stream, an error or the timeout; see error().
  std::string Receive(size_t count) {
    std::string bytes(count, '\0');
    size_t done = 0;
    error_ = 0;
    while (done < count) {
      const ssize_t received = recv(descriptor_, bytes.data() + done, count - done, 0);
      if (received < 0) error_ = errno;
      if (received <= 0) break;
      done += static_cast<size_t>(received);
    }
    bytes.resize(done);
    return bytes;
  }
  int error() const { return error_; }
  // Whether the other end's kernel has all that was sent.
  bool AllDelivered() const {
    int unacknowledged = 1;
    return ioctl(descriptor_, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
  }
  void EndSending() { shutdown(descriptor_, SHUT_WR); }
  uint16_t port() const {
    sockaddr_in own = {};
    socklen_t length = sizeof(own);
    getsockname(descriptor_, reinterpret_cast<sockaddr*>(&own), &length);
    return ntohs(own.sin_port);
  }

 private:
  const int descriptor_;
  int error_ = 0;
};

// Echoes each connection on a thread of its own. At the end of the input it sends '!' and closes.
class EchoServer {
 public:
  EchoServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = Loopback("127.0.0.1:0");
    socklen_t length = sizeof(own);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&own), length), 0);
    EXPECT_EQ(listen(listener_, 1024), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &length);
    address_ = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~EchoServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    {
      MutexLock lock(mu_);
      for (const int descriptor : descriptors_) shutdown(descriptor, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int descriptor : descriptors_) close(descriptor);
  }

  const std::string& address() const { return address_; }
  // Sends on all connections without a request.
  void SendToAll(const std::string& bytes) {
    MutexLock lock(mu_);
    for (const int descriptor : descriptors_)
      send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

 private:
  void Accept() {
    while (true) {
      const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor < 0) return;
      MutexLock lock(mu_);
      descriptors_.push_back(descriptor);
      threads_.emplace_back([descriptor] {
        std::string buffer(64 << 10, '\0');
        ssize_t bytes;
        while ((bytes = recv(descriptor, buffer.data(), buffer.size(), 0)) > 0) {
          ssize_t done = 0;
          while (done < bytes) {
            const ssize_t sent = send(descriptor, buffer.data() + done,
                                      static_cast<size_t>(bytes - done), MSG_NOSIGNAL);
            if (sent <= 0) return;
            done += sent;
          }
        }
        if (bytes == 0) send(descriptor, "!", 1, MSG_NOSIGNAL);
        shutdown(descriptor, SHUT_WR);
      });
    }
  }

  const int listener_;
  std::string address_;
  std::thread acceptor_;
  Mutex mu_;
  std::vector<int> descriptors_ PAWL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ PAWL_GUARDED_BY(mu_);
};

std::string Text(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

class ByteProxyTest : public testing::Test {
 protected:
  ByteProxyTest() {
    auto proxy = ByteProxy::Start({.target = server_.address()});
    EXPECT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
  }

  EchoServer server_;
  std::unique_ptr<ByteProxy> proxy_;
};

TEST_F(ByteProxyTest, BytesAndEndOfStreamPassBothWays) {
  Peer peer(proxy_->address());
  const std::string text = Text(3 << 20);
  std::thread sender([&] {
    EXPECT_EQ(peer.Send(text), text.size());
    peer.EndSending();
  });
  EXPECT_EQ(peer.Receive(text.size() + 2), text + "!");
  sender.join();
  EXPECT_EQ(proxy_->counters().bytes[0], text.size());
  EXPECT_EQ(proxy_->counters().bytes[1], text.size() + 1);
  EXPECT_EQ(proxy_->counters().reset, 0u);
}

TEST_F(ByteProxyTest, DelayAppliesToEachDirection) {
  Peer peer(proxy_->address());
  peer.Send("a");
  EXPECT_EQ(peer.Receive(1), "a");
  proxy_->SetFaults(Direction::kToTarget, {.delay = milliseconds(60)});
  proxy_->SetFaults(Direction::kToClient, {.delay = milliseconds(40)});
  const MonotonicTime begin = Now();
  peer.Send("b");
  EXPECT_EQ(peer.Receive(1), "b");
  EXPECT_GE(Now() - begin, milliseconds(100));
}

TEST_F(ByteProxyTest, DelayedBytesKeepTheirOrder) {
  Peer peer(proxy_->address());
  proxy_->SetFaults(Direction::kToTarget, {.delay = milliseconds(50)});
  peer.Send("first");
  ASSERT_TRUE(Eventually([&] { return proxy_->counters().bytes_read == 5; }));
  proxy_->Heal();
  peer.Send("second");
  EXPECT_EQ(peer.Receive(11), "firstsecond");
}

TEST_F(ByteProxyTest, ConnectionIsResetAfterTheGivenBytes) {
  Peer peer(proxy_->address());
  proxy_->SetFaults(Direction::kToClient, {.reset_after = 100000});
  std::thread sender([&] { peer.Send(Text(300000)); });
  const std::string received = peer.Receive(300000);
  EXPECT_LE(received.size(), 100000u);
  EXPECT_EQ(peer.error(), ECONNRESET);
  sender.join();
  EXPECT_EQ(proxy_->counters().bytes[1], 100000u);
  // The reset happens once: the next connection passes.
  Peer next(proxy_->address());
  std::thread next_sender([&] { next.Send(Text(300000)); });
  EXPECT_EQ(next.Receive(300000), Text(300000));
  next_sender.join();
}

TEST_F(ByteProxyTest, CorruptionFlipsOneBit) {
  Peer peer(proxy_->address());
  proxy_->SetFaults(Direction::kToTarget, {.corrupt_at = 70001});
  std::string text = Text(200000);
  std::thread sender([&] { peer.Send(text); });
  const std::string received = peer.Receive(text.size());
  sender.join();
  text[70001] = static_cast<char>(text[70001] ^ 1);
  EXPECT_TRUE(received == text);
}

TEST_F(ByteProxyTest, ResetEndsOpenConnectionsOnly) {
  Peer peer(proxy_->address());
  peer.Send("a");
  EXPECT_EQ(peer.Receive(1), "a");
  proxy_->Reset();
  EXPECT_EQ(proxy_->counters().open, 0u);
  peer.Receive(1);
  EXPECT_EQ(peer.error(), ECONNRESET);
  Peer next(proxy_->address());
  next.Send("b");
  EXPECT_EQ(next.Receive(1), "b");
}

TEST_F(ByteProxyTest, HeldBytesArriveAfterTheHold) {
  Peer peer(proxy_->address());
  proxy_->SetFaults(Direction::kToTarget, {.hold = true});
  EXPECT_EQ(peer.Send("before"), 6u);
  Peer connected_meanwhile(proxy_->address());
  connected_meanwhile.Send("mean");
  peer.SetTimeout(milliseconds(100));
  EXPECT_EQ(peer.Receive(1), "");
  EXPECT_EQ(peer.error(), EAGAIN);
  proxy_->Heal();
  peer.SetTimeout(milliseconds(10000));
  EXPECT_EQ(peer.Receive(6), "before");
  EXPECT_EQ(connected_meanwhile.Receive(4), "mean");
}

TEST_F(ByteProxyTest, HoldLeavesTheOtherDirectionOpen) {
  Peer peer(proxy_->address());
  peer.Send("a");
  EXPECT_EQ(peer.Receive(1), "a");
  proxy_->SetFaults(Direction::kToTarget, {.hold = true});
  peer.Send("b");
  server_.SendToAll("unasked");
  EXPECT_EQ(peer.Receive(7), "unasked");
  proxy_->Heal();
  EXPECT_EQ(peer.Receive(1), "b");
}

TEST_F(ByteProxyTest, HeldDirectionBuffersBoundedBytes) {
  Peer peer(proxy_->address());
  proxy_->SetFaults(Direction::kToClient, {.hold = true});
  peer.SetTimeout(milliseconds(500));
  const size_t sent = peer.Send(std::string(256 << 20, 'x'));
  // The buffers of four sockets and of two pipes, and what the echo server holds.
  EXPECT_LT(sent, size_t{64} << 20);
}

TEST_F(ByteProxyTest, SwallowedBytesVanishAndResetTheConnection) {
  Peer peer(proxy_->address());
  Peer idle(proxy_->address());
  idle.Send("a");
  EXPECT_EQ(idle.Receive(1), "a");
  proxy_->SetFaults(Direction::kToTarget, {.swallow = true});
  EXPECT_EQ(peer.Send(std::string(8 << 20, 'x')), size_t{8} << 20);
  peer.SetTimeout(milliseconds(100));
  EXPECT_EQ(peer.Receive(1), "");
  EXPECT_EQ(peer.error(), EAGAIN);
  EXPECT_EQ(proxy_->counters().bytes_swallowed, uint64_t{8} << 20);
  proxy_->Heal();
  peer.SetTimeout(milliseconds(10000));
  EXPECT_EQ(peer.Receive(1), "");
  EXPECT_EQ(peer.error(), ECONNRESET);
  // The idle connection lost no bytes.
  idle.Send("b");
  EXPECT_EQ(idle.Receive(1), "b");
}

TEST_F(ByteProxyTest, FaultCountsWhatItMeets) {
  const LinkFaults all[] = {
      {.delay = milliseconds(1)}, {.hold = true}, {.swallow = true}, {.reset_after = 0}};
  for (const LinkFaults& faults : all) {
    // The connection of another case, which may still be closing, would be counted too.
    const auto proxy = ByteProxy::Start({.target = server_.address()});
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    Peer peer((*proxy)->address());
    peer.Send("a");
    EXPECT_EQ(peer.Receive(1), "a");
    const uint64_t before = (*proxy)->counters().disturbed;
    (*proxy)->SetFaults(Direction::kToTarget, faults);
    (*proxy)->Heal();
    EXPECT_EQ((*proxy)->counters().disturbed, before);
    (*proxy)->SetFaults(Direction::kToTarget, faults);
    peer.Send("b");
    const auto is_counted = [&] { return (*proxy)->counters().disturbed > before; };
    // What is held back is counted when it no longer is.
    EXPECT_EQ(Eventually(is_counted, milliseconds(faults.hold ? 0 : 10000)), !faults.hold);
    if (faults.hold) {
      EXPECT_TRUE(Eventually([&] { return peer.AllDelivered(); }));
    }
    (*proxy)->Heal();
    EXPECT_TRUE(is_counted());
  }
}

TEST_F(ByteProxyTest, BandwidthLimitSlowsTheTransfer) {
  Peer peer(proxy_->address());
  proxy_->SetFaults(Direction::kToTarget, {.bytes_per_second = 1000000});
  const MonotonicTime begin = Now();
  std::thread sender([&] { peer.Send(Text(200000)); });
  EXPECT_EQ(peer.Receive(200000), Text(200000));
  sender.join();
  EXPECT_GE(Now() - begin, milliseconds(180));
}

TEST_F(ByteProxyTest, FaultsOfOnePeerSpareTheOthers) {
  Mutex mu;
  uint16_t bad_port = 0;
  auto proxy = ByteProxy::Start({.target = server_.address(), .name_peer = [&](uint16_t port) {
                                   MutexLock lock(mu);
                                   return std::string(port == bad_port ? "bad" : "good");
                                 }});
  ASSERT_TRUE(proxy.ok());
  Peer good((*proxy)->address());
  good.Send("a");
  EXPECT_EQ(good.Receive(1), "a");
  // Bound before it connects, so that the test can name its port before the proxy asks.
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = Loopback("127.0.0.1:0");
  socklen_t length = sizeof(own);
  ASSERT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&own), length), 0);
  Peer bad(descriptor);
  {
    MutexLock lock(mu);
    bad_port = bad.port();
  }
  const sockaddr_in to = Loopback((*proxy)->address());
  ASSERT_EQ(connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  (*proxy)->SetFaults(Direction::kToTarget, {.hold = true}, "bad");
  bad.Send("b");
  good.Send("c");
  EXPECT_EQ(good.Receive(1), "c");
  bad.SetTimeout(milliseconds(50));
  EXPECT_EQ(bad.Receive(1), "");
  (*proxy)->Reset("bad");
  bad.SetTimeout(milliseconds(10000));
  bad.Receive(1);
  EXPECT_EQ(bad.error(), ECONNRESET);
  good.Send("d");
  EXPECT_EQ(good.Receive(1), "d");
}

TEST_F(ByteProxyTest, RefusalResetsOnlyNewConnections) {
  Peer old(proxy_->address());
  old.Send("a");
  EXPECT_EQ(old.Receive(1), "a");
  proxy_->RefuseConnections(true);
  Peer refused(proxy_->address());
  refused.Receive(1);
  EXPECT_EQ(refused.error(), ECONNRESET);
  old.Send("b");
  EXPECT_EQ(old.Receive(1), "b");
  proxy_->Heal();
  Peer next(proxy_->address());
  next.Send("c");
  EXPECT_EQ(next.Receive(1), "c");
}

TEST_F(ByteProxyTest, MissingTargetResetsTheClient) {
  std::string silent_address;
  {
    EchoServer gone;
    silent_address = gone.address();
  }
  ASSERT_TRUE(proxy_->SetTarget(silent_address).ok());
  Peer peer(proxy_->address());
  peer.Receive(1);
  EXPECT_EQ(peer.error(), ECONNRESET);
  ASSERT_TRUE(proxy_->SetTarget(server_.address()).ok());
  Peer next(proxy_->address());
  next.Send("a");
  EXPECT_EQ(next.Receive(1), "a");
}

TEST_F(ByteProxyTest, InvalidAddressIsRefused) {
  for (const char* address : {"localhost:1", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:x", ""}) {
    EXPECT_EQ(proxy_->SetTarget(address).code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST_F(ByteProxyTest, ManyConnectionsPassAtOnce) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(std::make_unique<Peer>(proxy_->address()));
  const std::string text = Text(10000);
  for (const auto& peer : peers) peer->Send(text);
  for (const auto& peer : peers) EXPECT_TRUE(peer->Receive(text.size()) == text);
}

TEST_F(ByteProxyTest, EndedConnectionIsForgotten) {
  {
    Peer peer(proxy_->address());
    peer.EndSending();
    EXPECT_EQ(peer.Receive(2), "!");
  }
  EXPECT_TRUE(Eventually([this] { return proxy_->counters().open == 0; }));
}

}  // namespace
}  // namespace pawl
