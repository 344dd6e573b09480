#include "server/shard/shared_block.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace pawl {
namespace internal {

constexpr size_t kCacheLineBytes = 64;

// Lies before the floats, in one allocation with them.
struct alignas(kCacheLineBytes) BlockMemory {
  explicit BlockMemory(size_t floats) : floats(floats) {}

  static BlockMemory* New(size_t floats) {
    const size_t lines = (floats * sizeof(float) + kCacheLineBytes - 1) / kCacheLineBytes;
    void* memory = std::aligned_alloc(kCacheLineBytes, sizeof(BlockMemory) + lines * kCacheLineBytes);
    if (memory == nullptr) throw std::bad_alloc();
    return new (memory) BlockMemory(floats);
  }

  void Unref() {
    // What was read or written through this reference is over before another thread writes or frees the memory.
    if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    this->~BlockMemory();
    std::free(this);
  }

  float* data() { return reinterpret_cast<float*>(this + 1); }

  // Loans, and the block that lends. Only the latter adds to them, so 1 means, to it, that it is alone for good.
  std::atomic<size_t> references{1};
  const size_t floats;
};
static_assert(sizeof(BlockMemory) == kCacheLineBytes);

}  // namespace internal

using internal::BlockMemory;

BlockLoan::~BlockLoan() {
  if (memory_ != nullptr) memory_->Unref();
}
const float* BlockLoan::data() const { return memory_->data(); }
size_t BlockLoan::size() const { return memory_->floats; }

SharedBlock::SharedBlock(size_t floats) : memory_(BlockMemory::New(floats)) {}
SharedBlock::~SharedBlock() {
  if (memory_ != nullptr) memory_->Unref();
}
const float* SharedBlock::data() const { return memory_->data(); }
size_t SharedBlock::size() const { return memory_->floats; }

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
