// Operations that all members of a group of processes do together.
//
// A back end is a sibling folder with the same file names: gloo/ (memory of the host, TCP), nccl/
// (memory of a GPU). group_former.h makes the groups.
#ifndef PAWL_WORKER_COLLECTIVE_COLLECTIVE_H_
#define PAWL_WORKER_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"

namespace pawl {

enum class CollectiveType {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64
};

size_t BytesOf(CollectiveType type);

enum class Reduction { kSum, kProduct, kMin, kMax };

// One member's end of a group. The semantics of each operation are NCCL's (User Guide, "Collective
// Operations").
//
// All members call the same operations, with the same counts, types, reductions and roots, in the
// same order. An operation starts when those before it on this member have ended, and returns at
// once; `done` is called when it has ended here, on a thread of the back end. It must not block.
// Others may not have ended then.
//
// Memory is the host's or the GPU's, as the back end says; one whose memory is the host's may offer
// an operation on a device's besides. It is borrowed until `done`; input and output are the same
// memory or do not overlap. After an error the output may hold anything, the input (unless it is
// the output) what it held.
//
// Nothing waits for ever: an operation that has not ended `timeout` after its start, or whose peer
// is gone, ends with an error, and so do all after it: the group is broken then, for good, and a
// new one is to be formed.
//
// Codes: INVALID_ARGUMENT for a root or a type that there is not; DEADLINE_EXCEEDED; UNAVAILABLE
// for a broken connection; the status of Abort.
//
// Thread-safe. The destructor aborts, and waits until every `done` has been called.
class Collective {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~Collective() = default;

  virtual size_t size() const = 0;
  // This member, 0 to size() - 1.
  virtual size_t place() const = 0;

  // output[i] of every member = the reduction of input[i] over the members. The bits are the same
  // on all members.
  virtual void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                         Reduction reduction, MonotonicDuration timeout, Done done) = 0;
  // AllReduce with memory of the device that the back end was made for. A member may call it where
  // others call AllReduce: it is the same operation. UNIMPLEMENTED unless TakesDeviceMemory().
  virtual bool TakesDeviceMemory() const { return false; }
  virtual void AllReduceOnDevice(const void* input, void* output, size_t count, CollectiveType type,
                                 Reduction reduction, MonotonicDuration timeout, Done done);
  // AllReduce for the output of the member `root` alone; `output` of others is not used.
  virtual void Reduce(const void* input, void* output, size_t count, CollectiveType type,
                      Reduction reduction, size_t root, MonotonicDuration timeout, Done done) = 0;
  // data[i] of every member = that of `root`.
  virtual void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                         MonotonicDuration timeout, Done done) = 0;
  // output[p * count + i] of every member = input[i] of member p.
  virtual void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                         MonotonicDuration timeout, Done done) = 0;
  // output[i] of member p = the reduction of input[p * count + i] over the members.
  virtual void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                             Reduction reduction, MonotonicDuration timeout, Done done) = 0;
  // Ends when all members have called it.
  virtual void Barrier(MonotonicDuration timeout, Done done) = 0;

  // Ends what is under way and all that is called later with `reason`, soon, whatever the peers do.
  // The first one counts. REQUIRES: reason is not OK.
  virtual void Abort(const absl::Status& reason) = 0;

  // OK until the group is broken or aborted here, as far as this member knows; then why. Costs
  // nothing: who waits for something else than an operation looks at it often.
  virtual absl::Status status() const { return absl::OkStatus(); }

  // Whether a device that hangs may still read and write what it was given, though every `done` has
  // been called, with an error: it is not to be freed then.
  virtual bool hangs() const { return false; }
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_COLLECTIVE_H_
