#include "server/shard/shared_block.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace pawl {
namespace internal {

BlockMemory* BlockMemory::New(size_t floats) {
  const size_t lines = (floats * sizeof(float) + kCacheLineBytes - 1) / kCacheLineBytes;
  void* memory = std::aligned_alloc(kCacheLineBytes, sizeof(BlockMemory) + lines * kCacheLineBytes);
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) BlockMemory(floats);
}

void BlockMemory::Unref() {
  // All accesses through this reference happen before another thread writes or frees the memory.
  if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  this->~BlockMemory();
  std::free(this);
}

}  // namespace internal

using internal::BlockMemory;

SharedBlock::SharedBlock(size_t floats) : memory_(BlockMemory::New(floats)) {}
SharedBlock::~SharedBlock() {
  if (memory_ != nullptr) memory_->Unref();
}

float* SharedBlock::Mutable() {
  if (memory_->references.load(std::memory_order_acquire) != 1) {
    BlockMemory* const copy = BlockMemory::New(memory_->floats);
    std::memcpy(copy->data(), memory_->data(), memory_->floats * sizeof(float));
    std::exchange(memory_, copy)->Unref();
  }
  return memory_->data();
}

BlockLoan SharedBlock::Lend() const {
  memory_->references.fetch_add(1, std::memory_order_relaxed);
  return BlockLoan(memory_);
}

}  // namespace pawl
