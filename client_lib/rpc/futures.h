// Futures for the results of callbacks.
#ifndef PAWL_CLIENT_LIB_RPC_FUTURES_H_
#define PAWL_CLIENT_LIB_RPC_FUTURES_H_

#include <chrono>
#include <future>
#include <utility>

#include "absl/functional/any_invocable.h"

namespace pawl {

// Returns a callback that fulfils `future`. It may run once, on any thread, also before the call
// that takes it has returned. If it is destroyed without having run, `future` throws
// std::future_error (broken_promise).
template <typename T>
absl::AnyInvocable<void(T)> Fulfilling(std::future<T>& future) {
  std::promise<T> promise;
  future = promise.get_future();
  return [promise = std::move(promise)](T value) mutable { promise.set_value(std::move(value)); };
}

// Whether get() of a std::future or std::shared_future returns at once. REQUIRES: future.valid().
template <typename Future>
bool IsReady(const Future& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_FUTURES_H_
