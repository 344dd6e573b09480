#include "worker/collective/gloo/collective.h"

#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "gloo/allgather.h"
#include "gloo/allreduce.h"
#include "gloo/barrier.h"
#include "gloo/broadcast.h"
#include "gloo/common/error.h"
#include "gloo/transport/address.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/types.h"
#include "worker/collective/gloo/reduction_function.h"

namespace pawl {
namespace {

// Reduce-scatter works in pieces, so that memory for received data is bounded and stays in the
// cache.
constexpr size_t kPieceBytes = size_t{1} << 20;
// Gloo's own prefixes are lower (gloo/types.h).
constexpr uint8_t kReduceScatterSlotPrefix = 0x40;
constexpr char kLate[] = "a member did not arrive in time";

// Gloo writes to sockets without suppressing SIGPIPE. Blocking the signal keeps it from ending the
// process; threads started meanwhile inherit the mask.
sigset_t BlockSigpipe() {
  sigset_t pipe, former;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &former);
  return former;
}

// Gloo's context is designed for its own rendezvous, which asks a store for one key after another;
// here all introductions are known at once.
class ConnectedContext final : public gloo::Context {
 public:
  ConnectedContext(std::shared_ptr<gloo::transport::Device> device,
                   std::shared_ptr<WatchedTransport> transport)
      : gloo::Context(transport->rank, transport->size) {
    device_ = std::move(device);
    transportContext_ = std::move(transport);
  }
};

// Converts an exception of Gloo's to a status. After the deadline the deadline is taken as its
// cause.
absl::Status StatusOfException(MonotonicTime deadline) {
  const bool late = Clock::Real().Now() >= deadline;
  try {
    throw;
  } catch (const gloo::IoException& exception) {
    if (late) return absl::DeadlineExceededError(kLate);
    return absl::UnavailableError(exception.what());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& exception) {
    if (late) return absl::DeadlineExceededError(kLate);
    return absl::InternalError(exception.what());
  }
}

// Whether `host` may be this machine: false if it is known to be none, or another one.
bool MayBeThisMachine(const std::string& host) {
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (error != 0) return error != EAI_NONAME;
  bool may_be = false;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    may_be = may_be || descriptor < 0 ||
             bind(descriptor, address->ai_addr, address->ai_addrlen) == 0 || errno != EADDRNOTAVAIL;
    if (descriptor >= 0) close(descriptor);
  }
  freeaddrinfo(found);
  return may_be;
}

// Gloo's options use a C++ type only for its size.
template <typename Options>
void SetBuffers(Options& options, void* input, void* output, size_t count, size_t element_bytes) {
  const auto set = [&](auto* tag) {
    using Element = std::remove_pointer_t<decltype(tag)>;
    if (input != nullptr && input != output) options.setInput(static_cast<Element*>(input), count);
    options.setOutput(static_cast<Element*>(output), count);
  };
  if (element_bytes == sizeof(uint32_t)) return set(static_cast<uint32_t*>(nullptr));
  set(static_cast<uint64_t*>(nullptr));
}

// Gloo asks for writable memory even where it only reads.
void* Readable(const void* input) { return const_cast<void*>(input); }

// The pairs' addresses in the order of places, each after its length.
std::string EncodeAddresses(const std::vector<std::vector<char>>& addresses) {
  std::string text;
  for (const std::vector<char>& address : addresses) {
    text.push_back(static_cast<char>(address.size()));
    text.append(address.begin(), address.end());
  }
  return text;
}

absl::StatusOr<std::vector<std::vector<char>>> DecodeAddresses(const std::string& text,
                                                               size_t count) {
  static_assert(gloo::transport::Address::kMaxByteSize < 256);
  std::vector<std::vector<char>> addresses;
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = static_cast<uint8_t>(text[at++]);
    if (length == 0 || length > text.size() - at)
      return absl::InvalidArgumentError("an introduction is malformed");
    addresses.emplace_back(text.begin() + at, text.begin() + at + length);
    at += length;
  }
  if (addresses.size() != count)
    return absl::InvalidArgumentError("an introduction is for another number of members");
  return addresses;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooCollective>> GlooCollective::Create(const Options& options) {
  if (options.place >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("place ", options.place, " in a group of ", options.size));
  }
  if (options.size > kMaxGlooMembers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a group of ", options.size, " members; at most ", kMaxGlooMembers, " are possible"));
  }
  std::unique_ptr<GlooCollective> collective(new GlooCollective(options));
  if (options.size > 1) {
    const sigset_t former = BlockSigpipe();
    absl::Status status;
    try {
      collective->Listen();
    } catch (const std::exception& exception) {
      const std::string text =
          absl::StrCat("cannot listen at ", options.host, ": ", exception.what());
      status = MayBeThisMachine(options.host) ? absl::UnavailableError(text)
                                              : absl::FailedPreconditionError(text);
    }
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
    PAWL_RETURN_IF_ERROR(status);
  }
  const auto interrupt = [transport = collective->transport_] {
    if (transport == nullptr) return;
    transport->Interrupt();
    // Closing the pairs notifies the other members, and wakes Connect, which waits for one pair.
    for (int place = 0; place < transport->size; ++place) {
      if (place != transport->rank && transport->getPair(place) != nullptr)
        transport->getPair(place)->close();
    }
  };
  collective->thread_ = std::make_unique<OperationThread>([] { BlockSigpipe(); }, interrupt);
  return collective;
}

GlooCollective::~GlooCollective() {
  // A `done` may still use this object, so stop the thread before members are destroyed.
  if (thread_ != nullptr) thread_->Stop();
  if (watch_.joinable()) watch_.join();
}

void GlooCollective::Listen() {
  device_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(options_.host.c_str()));
  const auto inner =
      device_->createContext(static_cast<int>(options_.place), static_cast<int>(options_.size));
  // Gloo gives a new pair five times as long.
  inner->setTimeout(std::max(options_.pair_timeout / 5, std::chrono::milliseconds(1)));
  transport_ = std::make_shared<WatchedTransport>(inner);
  std::vector<std::vector<char>> addresses;
  for (size_t other = 0; other < options_.size; ++other) {
    if (other == options_.place) continue;
    addresses.push_back(transport_->createPair(static_cast<int>(other))->address().bytes());
  }
  introduction_ = EncodeAddresses(addresses);
  context_ = std::make_shared<ConnectedContext>(device_, transport_);
}

void GlooCollective::Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
                             Done done) {
  thread_->Add(
      timeout,
      [this, introductions = std::move(introductions)](MonotonicTime deadline) {
        absl::Status status = ConnectPairs(introductions, deadline);
        connected_ = status.ok();
        if (connected_ && options_.size > 1) watch_ = std::thread([this] { WatchFormerMember(); });
        return status;
      },
      std::move(done));
}

absl::Status GlooCollective::ConnectPairs(const std::vector<std::string>& introductions,
                                          MonotonicTime deadline) {
  if (introductions.size() != options_.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        introductions.size(), " introductions in a group of ", options_.size, " members"));
  }
  for (size_t other = 0; other < options_.size; ++other) {
    if (other == options_.place) continue;
    PAWL_ASSIGN_OR_RETURN(const auto addresses,
                          DecodeAddresses(introductions[other], options_.size - 1));
    if (Clock::Real().Now() >= deadline)
      return absl::DeadlineExceededError("the members have not connected in time");
    try {
      // The other member's list omits itself, so this member's index depends on which place is
      // lower.
      transport_->getPair(static_cast<int>(other))
          ->connect(addresses[other < options_.place ? options_.place - 1 : options_.place]);
    } catch (...) {
      const absl::Status status = StatusOfException(deadline);
      return absl::Status(status.code(), absl::StrCat("member ", other, ": ", status.message()));
    }
    // Gloo reports a pair that was closed meanwhile as connected.
    if (transport_->interrupted()) return absl::UnavailableError("interrupted");
  }
  if (options_.size == 1) return absl::OkStatus();
  // The kernel may connect a pair before, or without, the other member's call of Connect. The
  // barrier waits for that call.
  transport_->SetDeadline(deadline);
  try {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  } catch (...) {
    return StatusOfException(deadline);
  }
  transport_->SetDeadline(MonotonicTime::max());
  return absl::OkStatus();
}

void GlooCollective::WatchFormerMember() {
  const size_t former = (options_.place + options_.size - 1) % options_.size;
  transport_->AwaitBreak(static_cast<int>(former));
  // A wait that takes too long makes Gloo break all connections before that operation has ended.
  const bool late = Clock::Real().Now() >= transport_->deadline();
  thread_->Abort(late ? absl::DeadlineExceededError(kLate)
                      : absl::UnavailableError(
                            absl::StrCat("the connection to member ", former, " is broken")));
}

void GlooCollective::Add(size_t count, CollectiveType type, MonotonicDuration timeout,
                         absl::AnyInvocable<void(size_t, uint32_t)> work, Done done,
                         absl::Status invalid) {
  const size_t element_bytes = BytesOf(type);
  if (invalid.ok() && element_bytes == 0) {
    invalid = absl::InvalidArgumentError(absl::StrCat("unknown type ", static_cast<int>(type)));
  } else if (invalid.ok() &&
             count > std::numeric_limits<size_t>::max() / element_bytes / options_.size) {
    invalid = absl::InvalidArgumentError(absl::StrCat(count, " elements exceed the address space"));
  }
  thread_->Add(
      timeout,
      [this, bytes = count * element_bytes, work = std::move(work),
       invalid](MonotonicTime deadline) mutable {
        PAWL_RETURN_IF_ERROR(invalid);
        if (!connected_) return absl::FailedPreconditionError("the members are not connected");
        const uint32_t tag = ++last_tag_;
        if (bytes == 0) return absl::OkStatus();
        if (transport_ != nullptr) transport_->SetDeadline(deadline);
        try {
          work(bytes, tag);
        } catch (...) {
          return StatusOfException(deadline);
        }
        if (transport_ != nullptr) transport_->SetDeadline(MonotonicTime::max());
        return absl::OkStatus();
      },
      std::move(done));
}

absl::Status GlooCollective::CheckRoot(size_t root) const {
  if (root < options_.size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("root ", root, " in a group of ", options_.size));
}

namespace {

absl::Status CheckReduction(CollectiveType type, Reduction reduction) {
  if (FindReductionFunction(type, reduction) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("unknown reduction ", static_cast<int>(reduction),
                                                 " of type ", static_cast<int>(type)));
}

}  // namespace

void GlooCollective::AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                               Reduction reduction, MonotonicDuration timeout, Done done) {
  const auto work = [=, this](size_t bytes, uint32_t tag) {
    if (options_.size == 1) {
      if (input != output) std::memcpy(output, input, bytes);
      return;
    }
    gloo::AllreduceOptions options(context_);
    SetBuffers(options, Readable(input), output, count, BytesOf(type));
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(FindReductionFunction(type, reduction));
    options.setTag(tag);
    gloo::allreduce(options);
  };
  Add(count, type, timeout, work, std::move(done), CheckReduction(type, reduction));
}

void GlooCollective::Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                               MonotonicDuration timeout, Done done) {
  const auto work = [=, this](size_t, uint32_t tag) {
    if (options_.size == 1) return;
    gloo::BroadcastOptions options(context_);
    SetBuffers(options, nullptr, data, count, BytesOf(type));
    options.setRoot(static_cast<int>(root));
    options.setTag(tag);
    gloo::broadcast(options);
  };
  Add(count, type, timeout, work, std::move(done), CheckRoot(root));
}

void GlooCollective::AllGather(const void* input, void* output, size_t count, CollectiveType type,
                               MonotonicDuration timeout, Done done) {
  const auto work = [=, this](size_t bytes, uint32_t tag) {
    // The input is either at its final position or at the start of the output.
    char* const own = static_cast<char*>(output) + options_.place * bytes;
    if (input != own) std::memmove(own, input, bytes);
    if (options_.size == 1) return;
    gloo::AllgatherOptions options(context_);
    SetBuffers(options, nullptr, output, options_.size * count, BytesOf(type));
    options.setTag(tag);
    gloo::allgather(options);
  };
  Add(count, type, timeout, work, std::move(done));
}

void GlooCollective::ReduceScatter(const void* input, void* output, size_t count,
                                   CollectiveType type, Reduction reduction,
                                   MonotonicDuration timeout, Done done) {
  const auto work = [=, this](size_t bytes, uint32_t tag) {
    if (options_.size == 1) {
      if (input != output) std::memcpy(output, input, bytes);
      return;
    }
    ScatterReduced(static_cast<const char*>(input), static_cast<char*>(output), bytes,
                   BytesOf(type), FindReductionFunction(type, reduction), tag);
  };
  Add(count, type, timeout, work, std::move(done), CheckReduction(type, reduction));
}

void GlooCollective::ScatterReduced(const char* input, char* output, size_t bytes,
                                    size_t element_bytes,
                                    void (*reduce)(void*, const void*, const void*, size_t),
                                    uint32_t tag) {
  // Gloo has no reduce-scatter for an arbitrary number of members. The sum for member p starts at
  // member p + 1 and goes round, each member adding its own part, until it reaches p. In each of
  // the k - 1 steps every member sends its last result.
  const size_t size = options_.size;
  const size_t place = options_.place;
  const int next = static_cast<int>((place + 1) % size);
  const int former = static_cast<int>((place + size - 1) % size);
  const uint64_t slot = gloo::Slot::build(kReduceScatterSlotPrefix, tag);
  const size_t piece_bytes = std::min(bytes, kPieceBytes / element_bytes * element_bytes);
  const std::unique_ptr<char[]> memory[2] = {std::make_unique<char[]>(piece_bytes),
                                             std::make_unique<char[]>(piece_bytes)};
  const auto own = transport_->createUnboundBuffer(Readable(input), bytes * size);
  const std::unique_ptr<gloo::transport::UnboundBuffer> sums[2] = {
      transport_->createUnboundBuffer(memory[0].get(), piece_bytes),
      transport_->createUnboundBuffer(memory[1].get(), piece_bytes)};
  for (size_t begin = 0; begin < bytes; begin += piece_bytes) {
    const size_t length = std::min(piece_bytes, bytes - begin);
    for (size_t step = 0; step + 1 < size; ++step) {
      gloo::transport::UnboundBuffer& arriving = *sums[step % 2];
      gloo::transport::UnboundBuffer& leaving = step == 0 ? *own : *sums[(step + 1) % 2];
      arriving.recv(former, slot, 0, length);
      leaving.send(next, slot, step == 0 ? (place + size - 1) % size * bytes + begin : 0, length);
      const size_t whose = (place + 2 * size - 2 - step) % size;
      arriving.waitRecv(nullptr, gloo::transport::kUnsetTimeout);
      // Wait before the sent memory may change: in the last step the output may be part of the
      // input.
      leaving.waitSend(nullptr, gloo::transport::kUnsetTimeout);
      void* const sum = step + 2 == size ? output + begin : arriving.ptr;
      reduce(sum, arriving.ptr, input + whose * bytes + begin, length / element_bytes);
    }
  }
}

CollectiveFactory GlooCollectives(const std::string& host) {
  return
      [host](size_t size, size_t place) -> absl::StatusOr<std::unique_ptr<ConnectableCollective>> {
        return GlooCollective::Create({.size = size, .place = place, .host = host});
      };
}

}  // namespace pawl
