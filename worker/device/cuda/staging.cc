#include "worker/device/cuda/staging.h"

#include <algorithm>

#include "client_lib/base/status_macros.h"
#include "worker/device/cuda/status.h"

namespace pawl {
namespace {

// The alignment of pieces: a cache line.
constexpr size_t kAlignment = 64;
static_assert(Staging::kChunkBytes % kAlignment == 0);

}  // namespace

Staging::~Staging() {
  for (char* const chunk : chunks_) static_cast<void>(cudaFreeHost(chunk));
}

absl::StatusOr<Staging::Piece> Staging::Take(size_t bytes) {
  if (current_ < chunks_.size() && used_ == kChunkBytes) {
    ++current_;
    used_ = 0;
  }
  if (current_ == kMaxChunks) return Piece{};
  if (current_ == chunks_.size()) {
    void* chunk = nullptr;
    absl::Status status = StatusOf(cudaHostAlloc(&chunk, kChunkBytes, cudaHostAllocPortable),
                                   "page-locked host memory");
    if (!status.ok()) {
      // Clear the error, so that the next call does not report it.
      static_cast<void>(cudaGetLastError());
      // The existing chunks will become free again.
      if (current_ > 0) return Piece{};
      return status;
    }
    chunks_.push_back(static_cast<char*>(chunk));
  }
  const Piece piece{chunks_[current_] + used_, std::min(bytes, kChunkBytes - used_)};
  used_ += (piece.bytes + kAlignment - 1) / kAlignment * kAlignment;
  return piece;
}

void Staging::TakeBack() {
  current_ = 0;
  used_ = 0;
}

}  // namespace pawl
