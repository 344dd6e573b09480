// Host memory that a GPU accesses directly.
#ifndef PAWL_WORKER_DEVICE_CUDA_STAGING_H_
#define PAWL_WORKER_DEVICE_CUDA_STAGING_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

namespace pawl {

// Page-locked memory, handed out piece by piece and reclaimed all at once. A copy from or to other
// host memory would block the calling thread until the stream has reached it. Not thread-safe.
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

  // Returns the next piece, of at most `bytes`, possibly fewer. An empty piece: everything is
  // handed out. RESOURCE_EXHAUSTED: the machine provides no more such memory, and none is handed
  // out. REQUIRES: bytes > 0
  absl::StatusOr<Piece> Take(size_t bytes);
  // REQUIRES: the GPU is done with all pieces, and the data that it copied there has been read.
  void TakeBack();
  // Leaks the memory, because a hanging GPU may still write to it.
  void Abandon() { chunks_.clear(); }

 private:
  std::vector<char*> chunks_;
  // The current chunk, and how much of it is handed out.
  size_t current_ = 0;
  size_t used_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_STAGING_H_
