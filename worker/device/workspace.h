// Device memory for the intermediate results of one step.
#ifndef PAWL_WORKER_DEVICE_WORKSPACE_H_
#define PAWL_WORKER_DEVICE_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace pawl {

// Hands out memory piece by piece and reclaims all of it at once, so that after the first steps no
// step allocates from the device. Not thread-safe.
//
// A stream has additional memory of its own, which neither max_bytes nor peak_bytes counts: for
// 16-bit factors (Stream::Gemm), as much as the two largest factors of one product.
class Workspace {
 public:
  // A step that needs more has a batch or a layer that is too large for a worker.
  static constexpr size_t kMaxBytes = size_t{16} << 30;

  explicit Workspace(Device& device, size_t max_bytes = kMaxBytes)
      : device_(device), max_bytes_(max_bytes) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Invalidates everything handed out so far. REQUIRES: no stream uses it any more.
  void Reset();

  // Increases whenever addresses change: at the same layout, the same sequence of sizes since Reset
  // gets the same addresses.
  uint64_t layout() const { return layout_; }

  // The maximum handed out between two calls of Reset.
  size_t peak_bytes() const { return peak_bytes_; }

  // Uninitialized, aligned to 64 bytes. RESOURCE_EXHAUSTED beyond max_bytes or the device's memory.
  template <typename T>
  absl::StatusOr<T*> Allocate(size_t count) {
    absl::StatusOr<void*> data = AllocateBytes(count, sizeof(T));
    if (!data.ok()) return data.status();
    return static_cast<T*>(*data);
  }
  absl::StatusOr<Matrix> AllocateMatrix(size_t rows, size_t columns);

 private:
  struct Chunk {
    char* data;
    size_t bytes;
  };

  absl::StatusOr<void*> AllocateBytes(size_t count, size_t element_bytes);
  void FreeChunks();

  Device& device_;
  const size_t max_bytes_;

  // Pieces come from the last chunk; the earlier ones are full.
  std::vector<Chunk> chunks_;
  size_t used_in_last_ = 0;
  size_t total_bytes_ = 0;
  uint64_t layout_ = 0;
  // Handed out since Reset.
  size_t used_bytes_ = 0;
  size_t peak_bytes_ = 0;
  // The size of the next chunk, which Reset chooses large enough for everything.
  size_t next_chunk_bytes_ = size_t{1} << 20;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_WORKSPACE_H_
