#include "tests/hostile/attacks.h"

#include <chrono>
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

// Many connections that say nothing: half of a handshake, held for as long as the peer lets them.
uint64_t HoldConnections(const Target& target, const std::atomic<bool>& stop) {
  Random random(target.seed);
  std::vector<RawConnection> held;
  uint64_t opened = 0;
  while (!stop) {
    std::optional<RawConnection> connection =
        held.size() < kIdleConnections ? RawConnection::Open(AnyOf(random, target.addresses))
                                       : std::nullopt;
    if (connection.has_value()) {
      held.push_back(*std::move(connection));
      ++opened;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  return opened;
}

// Handshakes that advance by a byte in a second.
uint64_t SendSlowly(const Target& target, const std::atomic<bool>& stop) {
  // A TLS record of a handshake with the longest length.
  const std::string hello("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11);
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
      if (slow[i].Send(hello.substr(turn % hello.size(), 1))) {
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

}  // namespace

std::vector<Attack> AllAttacks() {
  const auto garbage = [](std::string first) {
    return [first = std::move(first)](const Target& target, const std::atomic<bool>& stop) {
      return SendGarbage(target, stop, first);
    };
  };
  return {
      {"garbage", false, garbage("")},
      {"tls_garbage", false,
       garbage(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11))},
      {"http2_plaintext", false, garbage("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
      {"slow_handshakes", false, SendSlowly},
      {"silent_connections", false, HoldConnections},
      {"malformed_messages", true, SendMalformed},
      {"huge_messages", true, SendHuge},
      {"repeated_messages", true, RepeatMessages},
      {"pending_calls", true, ParkCalls},
      {"metadata", true, SendMetadata},
  };
}

}  // namespace pawl
