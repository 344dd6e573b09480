// The operations of a group, as the thread of one of its members awaits them.
#ifndef PAWL_WORKER_DENSE_GROUP_OPERATIONS_H_
#define PAWL_WORKER_DENSE_GROUP_OPERATIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/futures.h"
#include "worker/collective/collective.h"
#include "worker/process/interrupt.h"

namespace pawl {

// Wraps a Collective: operations end in futures, and waits check whether the member has to leave.
// Counts and roots are the collective's. Used by one thread.
class GroupOperations {
 public:
  using End = std::future<absl::Status>;

  // `check_membership` returns OK, or why this member has to leave the group; it is polled during
  // waits. `timeout` applies to each operation. The collective, and the memory of operations that
  // have not been awaited, outlive it.
  GroupOperations(Collective& collective, MonotonicDuration timeout,
                  std::function<absl::Status()> check_membership)
      : collective_(collective),
        timeout_(timeout),
        check_membership_(std::move(check_membership)) {}

  size_t size() const { return collective_.size(); }
  size_t place() const { return collective_.place(); }
  bool TakesDeviceMemory() const { return collective_.TakesDeviceMemory(); }
  absl::Status CheckMembership() const { return check_membership_(); }

  // Each of these starts an operation. T is float or int64_t.
  template <typename T>
  End AllReduce(const T* input, T* output, size_t count, Reduction reduction) {
    End end;
    collective_.AllReduce(input, output, count, TypeOf<T>(), reduction, timeout_, Fulfilling(end));
    return end;
  }
  // AllReduce of device memory. REQUIRES: TakesDeviceMemory().
  End AllReduceOnDevice(const float* input, float* output, size_t count, Reduction reduction) {
    End end;
    collective_.AllReduceOnDevice(input, output, count, TypeOf<float>(), reduction, timeout_,
                                  Fulfilling(end));
    return end;
  }
  template <typename T>
  End ReduceScatter(const T* input, T* output, size_t count, Reduction reduction) {
    End end;
    collective_.ReduceScatter(input, output, count, TypeOf<T>(), reduction, timeout_,
                              Fulfilling(end));
    return end;
  }
  template <typename T>
  End AllGather(const T* input, T* output, size_t count) {
    End end;
    collective_.AllGather(input, output, count, TypeOf<T>(), timeout_, Fulfilling(end));
    return end;
  }
  template <typename T>
  End Broadcast(T* data, size_t count, size_t root) {
    End end;
    collective_.Broadcast(data, count, TypeOf<T>(), root, timeout_, Fulfilling(end));
    return end;
  }

  // Waits for the end of an operation. If the member has to leave the group meanwhile, aborts the
  // collective and still waits, unlike AwaitReady: until its end the operation uses its memory.
  absl::Status Await(End end);

 private:
  template <typename T>
  static constexpr CollectiveType TypeOf() {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, int64_t>);
    return std::is_same_v<T, float> ? CollectiveType::kFloat32 : CollectiveType::kInt64;
  }

  Collective& collective_;
  const MonotonicDuration timeout_;
  const std::function<absl::Status()> check_membership_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_GROUP_OPERATIONS_H_
