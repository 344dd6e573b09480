#include "client_lib/rpc/testing/faulty_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// A copy of the message with its own memory, which may travel after the caller's memory is gone.
OutgoingMessage Copy(const ByteView& bytes) {
  auto memory = std::make_shared<std::string>(bytes.size(), '\0');
  bytes.CopyTo(memory->data());
  OutgoingMessage message;
  message.bytes.Append(memory->data(), memory->size());
  message.owner = std::move(memory);
  return message;
}

}  // namespace

FaultyTransport::FaultyTransport(std::shared_ptr<Transport> inner, const Options& options)
    : inner_(std::move(inner)), options_(options), random_(options.seed) {}

bool FaultyTransport::Happens(double probability) {
  MutexLock lock(mu_);
  return std::bernoulli_distribution(probability)(random_);
}

MonotonicDuration FaultyTransport::SomeDelay() {
  MutexLock lock(mu_);
  return MonotonicDuration(std::uniform_int_distribution<MonotonicDuration::rep>(
      0, options_.max_delay.count())(random_));
}

absl::Status FaultyTransport::Loss(const char* what) {
  return Happens(0.5) ? absl::UnavailableError(absl::StrCat("injected: ", what, " lost"))
                      : absl::DeadlineExceededError(absl::StrCat("injected: ", what, " lost"));
}

void FaultyTransport::Call(const std::string& address, Method method, OutgoingMessage request,
                           MonotonicDuration timeout, Done done) {
  ++counters_->calls;
  const OutgoingMessage copy = Copy(request.bytes);
  request.owner.reset();
  if (Happens(options_.repeat_request)) {
    ++counters_->requests_repeated;
    inner_->After(SomeDelay(), [inner = inner_.get(), address, method, copy, timeout] {
      inner->Call(address, method, copy, timeout, [](absl::Status, IncomingMessage) {});
    });
  }
  if (Happens(options_.lose_request)) {
    ++counters_->requests_lost;
    inner_->After(SomeDelay(), [status = Loss("request"), done = std::move(done)]() mutable {
      done(std::move(status), IncomingMessage());
    });
    return;
  }
  if (Happens(options_.lose_reply)) {
    done = [counters = counters_, loss = Loss("reply"), done = std::move(done)](
               absl::Status status, IncomingMessage) mutable {
      // Errors are not changed.
      if (!status.ok()) {
        done(std::move(status), IncomingMessage());
        return;
      }
      ++counters->replies_lost;
      done(std::move(loss), IncomingMessage());
    };
  }
  if (Happens(options_.delay_request)) {
    ++counters_->requests_delayed;
    inner_->After(SomeDelay(), [inner = inner_.get(), address, method, copy, timeout,
                                done = std::move(done)]() mutable {
      inner->Call(address, method, copy, timeout, std::move(done));
    });
    return;
  }
  inner_->Call(address, method, copy, timeout, std::move(done));
}

}  // namespace pawl
