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

// A Collective whose operations end in futures, and a member's reasons to leave it. Counts and
// roots are as there. For one thread.
class GroupOperations {
 public:
  using End = std::future<absl::Status>;

  // `still_in`: OK, or why this member has to leave the group; asked again and again by whoever
  // waits. `timeout`: of each operation. The collective outlives it, and so does the memory of
  // operations that have not been awaited.
  GroupOperations(Collective& collective, MonotonicDuration timeout,
                  std::function<absl::Status()> still_in)
      : collective_(collective), timeout_(timeout), still_in_(std::move(still_in)) {}

  size_t size() const { return collective_.size(); }
  size_t place() const { return collective_.place(); }
  bool TakesDeviceMemory() const { return collective_.TakesDeviceMemory(); }
  absl::Status StillIn() const { return still_in_(); }

  // Each of them starts an operation. T is float or int64_t.
  template <typename T>
  End AllReduce(const T* input, T* output, size_t count, Reduction reduction) {
    End end;
    collective_.AllReduce(input, output, count, TypeOf<T>(), reduction, timeout_, Fulfilling(end));
    return end;
  }
  // The same with memory of the device. REQUIRES: TakesDeviceMemory().
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

  // Waits for the end of an operation, and aborts the collective if the member is to leave the
  // group meanwhile. It waits for the end even so, unlike AwaitReady: until then the operation uses
  // its memory.
  absl::Status Await(End end);

 private:
  template <typename T>
  static constexpr CollectiveType TypeOf() {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, int64_t>);
    return std::is_same_v<T, float> ? CollectiveType::kFloat32 : CollectiveType::kInt64;
  }

  Collective& collective_;
  const MonotonicDuration timeout_;
  const std::function<absl::Status()> still_in_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_GROUP_OPERATIONS_H_
