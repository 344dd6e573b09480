// Operations that all members of a group of processes do together.
//
// A back end is a subfolder with the same file names: gloo/ (host memory, TCP), nccl/ (GPU memory).
// group_former.h forms the groups.
#ifndef PAWL_WORKER_COLLECTIVE_COLLECTIVE_H_
#define PAWL_WORKER_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"

namespace pawl {

enum class CollectiveType { kInt64, kFloat32 };

size_t BytesOf(CollectiveType type);

enum class Reduction { kSum, kMin };

// One member's end of a group. The operations have NCCL's semantics (User Guide, "Collective
// Operations").
//
// All members call the same operations in the same order, with the same counts, types, reductions
// and roots. A call returns at once. The operation starts when the earlier ones on this member have
// ended. When it has ended here, `done` is called on a thread of the back end; it must not block.
// The operation may still run on other members.
//
// The back end determines whether memory is the host's or the GPU's. A back end for host memory may
// additionally offer an operation on device memory. Memory is borrowed until `done`. Input and
// output are identical or do not overlap. After an error the output is undefined, and the input is
// unchanged unless it is the output.
//
// Every operation ends: if it has not ended `timeout` after its start, or if a peer is gone, it
// fails, and so do all later ones. The group is then broken permanently, and a new one has to be
// formed.
//
// Codes: INVALID_ARGUMENT for an unknown root or type; DEADLINE_EXCEEDED; UNAVAILABLE for a broken
// connection; the status of Abort.
//
// Thread-safe. The destructor aborts and waits until every `done` has been called.
class Collective {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~Collective() = default;

  virtual size_t size() const = 0;
  // This member, 0 to size() - 1.
  virtual size_t place() const = 0;

  // output[i] of every member = the reduction of input[i] over the members; the same bits on all
  // members.
  virtual void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                         Reduction reduction, MonotonicDuration timeout, Done done) = 0;
  // AllReduce of memory of the back end's device. A member may call it where others call AllReduce:
  // it is the same operation. UNIMPLEMENTED unless TakesDeviceMemory().
  virtual bool TakesDeviceMemory() const { return false; }
  virtual void AllReduceOnDevice(const void* input, void* output, size_t count, CollectiveType type,
                                 Reduction reduction, MonotonicDuration timeout, Done done);
  // data[i] of every member = data[i] of `root`.
  virtual void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                         MonotonicDuration timeout, Done done) = 0;
  // output[p * count + i] of every member = input[i] of member p.
  virtual void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                         MonotonicDuration timeout, Done done) = 0;
  // output[i] of member p = the reduction of input[p * count + i] over the members.
  virtual void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                             Reduction reduction, MonotonicDuration timeout, Done done) = 0;

  // Ends the current operation and all later ones soon, with `reason`, whatever the peers do. The
  // first reason stays. REQUIRES: reason is not OK.
  virtual void Abort(const absl::Status& reason) = 0;

  // OK until this member knows that the group is broken or was aborted here; then the reason. Cheap
  // enough to poll during other waits.
  virtual absl::Status status() const { return absl::OkStatus(); }

  // Whether a hanging device may still read and write memory that it was given, although every
  // `done` has been called with an error. That memory must not be freed.
  virtual bool hangs() const { return false; }
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_COLLECTIVE_H_
