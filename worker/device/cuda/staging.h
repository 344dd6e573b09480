// Host memory that a GPU copies from and to by itself.
#ifndef PAWL_WORKER_DEVICE_CUDA_STAGING_H_
#define PAWL_WORKER_DEVICE_CUDA_STAGING_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

namespace pawl {

// Page-locked memory, handed out piece by piece and taken back all at once. A copy from or to other
// host memory would stop the calling thread until the stream has come so far. Not thread-safe.
class Staging {
 public:
  static constexpr size_t kChunkBytes = size_t{4} << 20;
  // 256 MiB in all.
  static constexpr size_t kMaxChunks = 64;

  struct Piece {
    char* data = nullptr;
    size_t bytes = 0;
  };

  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // The next piece, of at most `bytes`, perhaps of less. Of no bytes: all are handed out.
  // RESOURCE_EXHAUSTED: the machine gives no more such memory, and none was handed out. REQUIRES:
  // bytes > 0
  absl::StatusOr<Piece> Take(size_t bytes);
  // REQUIRES: the GPU is done with all pieces, and what it has copied there has been taken.
  void TakeBack();
  // A GPU that hangs may still write there: never frees it.
  void Abandon() { chunks_.clear(); }

 private:
  std::vector<char*> chunks_;
  // The chunk that pieces come from, and how much of it is handed out.
  size_t current_ = 0;
  size_t used_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_STAGING_H_
