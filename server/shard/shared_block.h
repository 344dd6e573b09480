// A block of floats that is lent instead of copied.
#ifndef PAWL_SERVER_SHARD_SHARED_BLOCK_H_
#define PAWL_SERVER_SHARD_SHARED_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <utility>

#include "client_lib/base/compiler.h"

namespace pawl {

namespace internal {

inline constexpr size_t kCacheLineBytes = 64;

// The header of the floats, in the same allocation.
struct alignas(kCacheLineBytes) BlockMemory {
  explicit BlockMemory(size_t floats) : floats(floats) {}

  static BlockMemory* New(size_t floats);
  void Unref();
  float* data() { return reinterpret_cast<float*>(this + 1); }

  // The loans and the lending block. Only the block adds references, so a count of 1 tells the
  // block that it is alone and stays so.
  std::atomic<size_t> references{1};
  const size_t floats;
};
static_assert(sizeof(BlockMemory) == kCacheLineBytes);

}  // namespace internal

// The floats of a SharedBlock at the moment of the loan. A loan may be destroyed on any thread,
// without the lender's lock and after the lender's end.
class BlockLoan {
 public:
  BlockLoan(BlockLoan&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  BlockLoan& operator=(BlockLoan&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~BlockLoan() {
    if (memory_ != nullptr) memory_->Unref();
  }

  const float* data() const { return memory_->data(); }
  size_t size() const { return memory_->floats; }  // floats

 private:
  friend class SharedBlock;
  explicit BlockLoan(internal::BlockMemory* memory) : memory_(memory) {}

  internal::BlockMemory* memory_;
};

// An array of floats that begins on a cache line. Lent floats never change: the first write after a
// loan goes to a copy, unless the loan has ended by then. A loan takes no time, and memory only if
// the block changes while it exists. Not thread-safe, but loans may end on other threads.
class SharedBlock {
 public:
  // The content is unspecified.
  explicit SharedBlock(size_t floats);
  SharedBlock(SharedBlock&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  SharedBlock& operator=(SharedBlock&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~SharedBlock();

  const float* data() const { return memory_->data(); }
  size_t size() const { return memory_->floats; }  // floats

  // The floats for writing until the next Lend. Earlier results of data() may belong to a loan from
  // now on.
  float* Mutable();
  // The same. REQUIRES: nothing was lent since the last Mutable.
  float* MutableUnlent() { return memory_->data(); }
  // Prefetches what Lend writes to.
  void PrefetchLend() const { PrefetchForWriting(memory_); }
  BlockLoan Lend() const;

 private:
  internal::BlockMemory* memory_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SHARED_BLOCK_H_
