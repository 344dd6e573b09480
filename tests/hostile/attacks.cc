#include "tests/hostile/attacks.h"

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/method_roles.h"
#include "client_lib/security/security.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter.pb.h"
#include "proto/scheduler.pb.h"
#include "tests/hostile/http2_connection.h"
#include "tests/hostile/raw_connection.h"

namespace pawl {
namespace {

using Random = std::mt19937_64;

constexpr size_t kIdleConnections = 10'000;
constexpr size_t kSlowConnections = 500;
constexpr std::chrono::milliseconds kSlowPause{1000};
constexpr size_t kMaxGarbageBytes = 4096;
constexpr size_t kCallsInFlight = 256;
constexpr std::chrono::seconds kCallTimeout{5};
constexpr size_t kHugeMessageBytes = size_t{80} << 20;
constexpr size_t kMetadataBytes = size_t{900} << 10;
constexpr size_t kHugeMetadataBytes = size_t{8} << 20;
// The begin of a TLS record: a ClientHello of the greatest length.
constexpr absl::string_view kTlsBegin("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11);
// On each connection that holds calls.
constexpr size_t kHeldStreams = 256;
constexpr size_t kHeldConnections = 8;
constexpr size_t kHalfOpenConnections = 2000;
constexpr size_t kIncompleteBytes = size_t{60} << 20;

std::string RandomBytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

const std::string& AnyOf(Random& random, const std::vector<std::string>& addresses) {
  return addresses[random() % addresses.size()];
}

// Without a certificate ------------------------------------------------------------

// Connections that each send `first` and then random bytes.
uint64_t SendGarbage(const Target& target, const std::atomic<bool>& stop,
                     const std::string& first) {
  Random random(target.seed);
  uint64_t sent = 0;
  while (!stop) {
    std::optional<RawConnection> connection = RawConnection::Open(AnyOf(random, target.addresses));
    if (!connection.has_value()) continue;
    connection->Send(first + RandomBytes(random, 1 + random() % kMaxGarbageBytes));
    connection->AwaitAnswer();
    ++sent;
  }
  return sent;
}

// 10,000 connections that say `first` and nothing more. `hosts`: as many addresses that they come
// from; 0: this process's own.
uint64_t HoldConnections(const Target& target, const std::atomic<bool>& stop,
                         const std::string& first, uint32_t hosts) {
  Random random(target.seed);
  std::deque<RawConnection> held;
  uint64_t opened = 0;
  while (!stop) {
    std::optional<RawConnection> connection =
        RawConnection::Open(AnyOf(random, target.addresses),
                            hosts == 0 ? "" : absl::StrCat("127.0.", 1 + opened % hosts, ".1"));
    if (!connection.has_value()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    if (!first.empty()) connection->Send(first);
    held.push_back(*std::move(connection));
    ++opened;
    // The peer may have closed the oldest ones.
    if (held.size() > kIdleConnections) held.pop_front();
  }
  return opened;
}

// Connections that end in the middle of a handshake, in one direction only or by a reset.
uint64_t EndHalfway(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  std::deque<RawConnection> held;
  uint64_t opened = 0;
  while (!stop) {
    std::optional<RawConnection> connection = RawConnection::Open(AnyOf(random, target.addresses));
    if (!connection.has_value()) continue;
    connection->Send(kTlsBegin.substr(0, 1 + random() % kTlsBegin.size()));
    ++opened;
    if (opened % 2 == 0) {
      connection->EndWithReset();
      continue;
    }
    connection->HalfClose();
    held.push_back(*std::move(connection));
    if (held.size() > kSlowConnections) held.pop_front();
  }
  return opened;
}

// Whole handshakes, which end because the client has no certificate.
uint64_t ShakeHands(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  const TlsClient client("");
  uint64_t handshakes = 0;
  for (; !stop; ++handshakes) {
    std::optional<TlsClient::Connection> connection =
        client.Connect(AnyOf(random, target.addresses));
    if (connection.has_value()) connection->Receive();
  }
  return handshakes;
}

// Handshakes that advance by a byte in a second.
uint64_t SendSlowly(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  std::vector<RawConnection> slow;
  uint64_t opened = 0;
  for (size_t turn = 0; !stop; ++turn) {
    while (slow.size() < kSlowConnections && !stop) {
      std::optional<RawConnection> connection =
          RawConnection::Open(AnyOf(random, target.addresses));
      if (!connection.has_value()) break;
      slow.push_back(*std::move(connection));
      ++opened;
    }
    for (size_t i = 0; i < slow.size();) {
      if (slow[i].Send(std::string(kTlsBegin.substr(turn % kTlsBegin.size(), 1)))) {
        ++i;
      } else {
        std::vector<RawConnection> rest;
        for (size_t j = 0; j < slow.size(); ++j) {
          if (j != i) rest.push_back(std::move(slow[j]));
        }
        slow = std::move(rest);
      }
    }
    std::this_thread::sleep_for(kSlowPause);
  }
  return opened;
}

// With a certificate -----------------------------------------------------------------

// Calls in flight to all addresses, at most kCallsInFlight at a time.
class Caller {
 public:
  explicit Caller(const Target& target) {
    auto security = Security::Open({.tls_dir = target.tls_dir}, kAllRoles);
    if (!security.ok()) std::abort();
    security_ = *std::move(security);
    const auto credentials = security_->To(RoleSet(PeerRole::kScheduler, PeerRole::kServer));
    for (const std::string& address : target.addresses) {
      grpc::ChannelArguments arguments = ChannelSettings(ChannelKind::kBulk);
      arguments.SetMaxSendMessageSize(-1);
      stubs_.push_back(std::make_unique<grpc::GenericStub>(
          grpc::CreateCustomChannel(address, credentials, arguments)));
    }
  }
  ~Caller() {
    while (in_flight_ > 0) TakeOne();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
    stubs_.clear();
  }

  void Call(size_t target, absl::string_view method, const std::string& message,
            MonotonicDuration timeout, size_t metadata_bytes = 0) {
    while (in_flight_ >= kCallsInFlight) TakeOne();
    auto* const call = new OneCall;
    SetDeadline(call->context, timeout);
    // While there is no connection, further calls would cost only this process.
    call->context.set_wait_for_ready(true);
    if (metadata_bytes > 0) call->context.AddMetadata("x-attack", std::string(metadata_bytes, 'x'));
    const grpc::Slice slice(message);
    const grpc::ByteBuffer request(&slice, 1);
    call->rpc = stubs_[target % stubs_.size()]->PrepareUnaryCall(
        &call->context, std::string(method), request, &queue_);
    call->rpc->StartCall();
    call->rpc->Finish(&call->response, &call->status, call);
    ++in_flight_;
    ++calls_;
  }
  uint64_t calls() const { return calls_; }

 private:
  struct OneCall {
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    grpc::Status status;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> rpc;
  };

  void TakeOne() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return;
    delete static_cast<OneCall*>(tag);
    --in_flight_;
  }

  std::unique_ptr<Security> security_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  size_t in_flight_ = 0;
  uint64_t calls_ = 0;
};

// Valid messages, to be damaged.
std::vector<std::string> ValidMessages() {
  PushRequest push;
  push.mutable_header()->set_job_id(1);
  push.mutable_header()->set_epoch(1);
  push.mutable_header()->set_client(1);
  push.add_segments()->set_keys(std::string(64, 'k'));
  push.mutable_segments(0)->set_values(std::string(256, 'v'));
  RegisterRequest registration;
  registration.set_role(WORKER_ROLE);
  registration.set_process_nonce(4711);
  registration.set_newest_protocol(2);
  HeartbeatRequest heartbeat;
  heartbeat.set_node("worker-0");
  heartbeat.set_incarnation(1);
  heartbeat.mutable_worker()->set_steps_max(1);
  return {"", push.SerializeAsString(), registration.SerializeAsString(),
          heartbeat.SerializeAsString()};
}

// Every rpc with random bytes, and with valid messages that have some bytes changed.
uint64_t SendMalformed(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  Caller caller(target);
  const std::vector<absl::string_view> methods = KnownMethods();
  const std::vector<std::string> valid = ValidMessages();
  while (!stop) {
    std::string message = valid[random() % valid.size()];
    if (message.empty()) {
      message = RandomBytes(random, random() % kMaxGarbageBytes);
    } else {
      for (uint64_t i = random() % 4; i > 0; --i)
        message[random() % message.size()] = static_cast<char>(random());
    }
    caller.Call(random(), methods[random() % methods.size()], message, kCallTimeout);
  }
  return caller.calls();
}

// Messages beyond every limit.
uint64_t SendHuge(const Target& target, const std::atomic<bool>& stop) {
  Caller caller(target);
  const std::string message(kHugeMessageBytes, 'x');
  for (size_t i = 0; !stop; ++i) {
    caller.Call(i, i % 2 == 0 ? "/pawl.Parameter/Push" : "/pawl.Scheduler/Register", message,
                kCallTimeout);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return caller.calls();
}

// The same registration and heartbeat again and again.
uint64_t RepeatMessages(const Target& target, const std::atomic<bool>& stop) {
  Caller caller(target);
  const std::vector<std::string> valid = ValidMessages();
  while (!stop) {
    caller.Call(0, "/pawl.Scheduler/Register", valid[2], kCallTimeout);
    caller.Call(0, "/pawl.Scheduler/Heartbeat", valid[3], kCallTimeout);
  }
  return caller.calls();
}

// Calls that the scheduler keeps pending until their deadline.
uint64_t ParkCalls(const Target& target, const std::atomic<bool>& stop) {
  GetRoutingRequest routing;
  routing.set_newer_than_epoch(uint64_t{1} << 60);
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 16; ++i) callers.push_back(std::make_unique<Caller>(target));
  uint64_t calls = 0;
  while (!stop) {
    for (const auto& caller : callers) {
      caller->Call(0, "/pawl.Scheduler/GetRouting", routing.SerializeAsString(), kCallTimeout);
      ++calls;
    }
  }
  return calls;
}

// Calls with almost the permitted amount of metadata, and with more.
uint64_t SendMetadata(const Target& target, const std::atomic<bool>& stop) {
  Caller caller(target);
  for (size_t i = 0; !stop; ++i) {
    caller.Call(i, "/pawl.Scheduler/GetStatus", "", kCallTimeout,
                i % 2 == 0 ? kMetadataBytes : 2 * kMetadataBytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return caller.calls();
}

// Calls that the certificate's role may not make.
uint64_t CallForbidden(const Target& target, const std::atomic<bool>& stop) {
  Caller caller(target);
  for (size_t i = 0; !stop; ++i)
    caller.Call(i, i % 2 == 0 ? "/pawl.Scheduler/StopJob" : "/pawl.Nothing/Known", "",
                kCallTimeout);
  return caller.calls();
}

// Connects; waits a little if that fails.
std::optional<Http2Connection> Connect(const TlsClient& client, const std::string& address) {
  std::optional<TlsClient::Connection> connection = client.Connect(address);
  if (connection.has_value()) return Http2Connection(*std::move(connection));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return std::nullopt;
}

// Metadata of 8 MiB, although the server has announced what it accepts.
uint64_t FloodMetadata(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  const TlsClient client(target.tls_dir);
  const std::string value(kHugeMetadataBytes, 'x');
  uint64_t sent = 0;
  while (!stop) {
    std::optional<Http2Connection> connection = Connect(client, AnyOf(random, target.addresses));
    while (!stop && connection.has_value() && connection->is_open()) {
      connection->StartCall("/pawl.Scheduler/GetStatus", {{"x-attack", value}});
      connection->TakeAnswers();
      ++sent;
    }
  }
  return sent;
}

// Calls that are cancelled as soon as they have started.
uint64_t ResetStreams(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  const TlsClient client(target.tls_dir);
  uint64_t sent = 0;
  while (!stop) {
    std::optional<Http2Connection> connection = Connect(client, AnyOf(random, target.addresses));
    while (!stop && connection.has_value() && connection->is_open()) {
      connection->StartCall("/pawl.Parameter/Pull");
      connection->ResetStream();
      if (++sent % 64 == 0) connection->TakeAnswers();
    }
  }
  return sent;
}

// Messages that are announced with 60 MiB and never end.
uint64_t HoldMessages(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  const TlsClient client(target.tls_dir);
  std::string begin("\0\x03\xc0\0\0", 5);
  begin.append(size_t{64} << 10, 'x');
  struct Held {
    Http2Connection connection;
    std::map<uint32_t, size_t> sent;
  };
  std::vector<Held> held;
  uint64_t bytes = 0;
  while (!stop) {
    if (held.size() < kHeldConnections) {
      if (auto connection = Connect(client, AnyOf(random, target.addresses)))
        held.push_back({*std::move(connection), {}});
    }
    std::vector<Held> open;
    for (Held& one : held) {
      if (!one.connection.TakeAnswers()) continue;
      if (one.sent.size() < kHeldStreams && one.connection.StartCall("/pawl.Parameter/Push"))
        one.sent[one.connection.last_stream()] = 0;
      for (auto& [stream, sent] : one.sent) {
        if (sent >= kIncompleteBytes) continue;
        const size_t more =
            one.connection.SendSome(stream, absl::string_view(begin).substr(sent == 0 ? 0 : 5));
        sent += more;
        bytes += more;
      }
      if (one.connection.is_open()) open.push_back(std::move(one));
    }
    held = std::move(open);
  }
  return bytes >> 20;
}

// Connections that end their handshake and then say nothing.
uint64_t HoldHalfOpen(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  const TlsClient client(target.tls_dir);
  std::deque<TlsClient::Connection> held;
  uint64_t opened = 0;
  while (!stop) {
    std::optional<TlsClient::Connection> connection =
        client.Connect(AnyOf(random, target.addresses));
    if (!connection.has_value()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    held.push_back(*std::move(connection));
    ++opened;
    if (held.size() > kHalfOpenConnections) held.pop_front();
  }
  return opened;
}

// Burns processor time and harms the cluster in no other way: what the other attacks cost because
// attackers and cluster share the machine.
uint64_t Spin(const Target&, const std::atomic<bool>& stop) {
  uint64_t turns = 0;
  while (!stop) ++turns;
  return turns;
}

}  // namespace

std::vector<Attack> AllAttacks() {
  const auto garbage = [](std::string first) {
    return [first = std::move(first)](const Target& target, const std::atomic<bool>& stop) {
      return SendGarbage(target, stop, first);
    };
  };
  const auto hold = [](absl::string_view first, uint32_t hosts) {
    return
        [first = std::string(first), hosts](const Target& target, const std::atomic<bool>& stop) {
          return HoldConnections(target, stop, first, hosts);
        };
  };
  return {
      {"spin", false, Spin},
      {"garbage", false, garbage("")},
      {"tls_garbage", false,
       garbage(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11))},
      {"http2_plaintext", false, garbage("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
      {"slow_handshakes", false, SendSlowly},
      {"silent_connections", false, hold("", 0)},
      {"silent_hosts", false, hold("", 250)},
      {"half_handshakes", false, hold(kTlsBegin, 250)},
      {"half_closed", false, EndHalfway},
      {"stranger_handshakes", false, ShakeHands},
      {"malformed_messages", true, SendMalformed},
      {"huge_messages", true, SendHuge},
      {"repeated_messages", true, RepeatMessages},
      {"pending_calls", true, ParkCalls},
      {"metadata", true, SendMetadata},
      {"forbidden_calls", true, CallForbidden},
      {"metadata_flood", true, FloodMetadata},
      {"incomplete_messages", true, HoldMessages},
      {"half_open", true, HoldHalfOpen},
      // The last one, because gRPC 1.51 has no defence against it (CVE-2023-44487): the scheduler
      // may not answer during it.
      {"rapid_resets", true, ResetStreams},
  };
}

}  // namespace pawl
