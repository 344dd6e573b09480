// Results that a callback brings and a thread waits for.
#ifndef PAWL_CLIENT_LIB_RPC_FUTURES_H_
#define PAWL_CLIENT_LIB_RPC_FUTURES_H_

#include <chrono>
#include <future>
#include <utility>

#include "absl/functional/any_invocable.h"

namespace pawl {

// A callback that makes `future` ready with what it is given. To be run once, on any thread, also
// before the call that takes it has returned; one that is destroyed without having run leaves
// std::future_error (broken_promise) behind.
template <typename T>
absl::AnyInvocable<void(T)> Fulfilling(std::future<T>& future) {
  std::promise<T> promise;
  future = promise.get_future();
  return [promise = std::move(promise)](T value) mutable { promise.set_value(std::move(value)); };
}

// Whether get() of a std::future or std::shared_future would return at once. REQUIRES:
// future.valid().
template <typename Future>
bool IsReady(const Future& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_FUTURES_H_
