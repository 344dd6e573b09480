#include "worker/device/workspace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

Workspace::~Workspace() { FreeChunks(); }

void Workspace::FreeChunks() {
  for (const Chunk& chunk : chunks_) device_.Free(chunk.data);
  chunks_.clear();
  ++layout_;
  used_in_last_ = 0;
  total_bytes_ = 0;
}

void Workspace::Reset() {
  if (chunks_.size() > 1) {
    next_chunk_bytes_ = total_bytes_;
    FreeChunks();
  }
  used_in_last_ = 0;
  used_bytes_ = 0;
}

absl::StatusOr<void*> Workspace::AllocateBytes(size_t count, size_t element_bytes) {
  const size_t left =
      max_bytes_ - total_bytes_ + (chunks_.empty() ? 0 : chunks_.back().bytes - used_in_last_);
  if (count > (left - std::min(left, kAlignment)) / element_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a step needs more than ", max_bytes_,
                     " bytes of device memory: use a smaller batch_size or model"));
  }
  const size_t bytes = (count * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (chunks_.empty() || chunks_.back().bytes - used_in_last_ < bytes) {
    const size_t chunk_bytes =
        std::min(std::max(bytes, next_chunk_bytes_), max_bytes_ - total_bytes_);
    if (chunk_bytes < bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a step needs more than ", max_bytes_,
                       " bytes of device memory: use a smaller batch_size or model"));
    }
    PAWL_ASSIGN_OR_RETURN(void* data, device_.Allocate(chunk_bytes));
    chunks_.push_back({static_cast<char*>(data), chunk_bytes});
    total_bytes_ += chunk_bytes;
    ++layout_;
    used_in_last_ = 0;
  }
  void* piece = chunks_.back().data + used_in_last_;
  used_in_last_ += bytes;
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return piece;
}

absl::StatusOr<Matrix> Workspace::AllocateMatrix(size_t rows, size_t columns) {
  // Dimensions are 32-bit numbers, so their product fits.
  PAWL_ASSIGN_OR_RETURN(float* data, Allocate<float>(rows * columns));
  return Matrix{data, rows, columns, columns};
}

}  // namespace pawl
