// The floats of one block, which are lent instead of copied.
#ifndef PAWL_SERVER_SHARD_SHARED_BLOCK_H_
#define PAWL_SERVER_SHARD_SHARED_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <utility>

namespace pawl {

namespace internal {

inline constexpr size_t kCacheLineBytes = 64;

// Lies before the floats, in one allocation with them.
struct alignas(kCacheLineBytes) BlockMemory {
  explicit BlockMemory(size_t floats) : floats(floats) {}

  static BlockMemory* New(size_t floats);
  void Unref();
  float* data() { return reinterpret_cast<float*>(this + 1); }

  // Loans, and the block that lends. Only the latter adds to them, so 1 means, to it, that it is
  // alone for good.
  std::atomic<size_t> references{1};
  const size_t floats;
};
static_assert(sizeof(BlockMemory) == kCacheLineBytes);

}  // namespace internal

// Floats of a SharedBlock as they were when they were lent, for as long as this lives.
// May be given back (destroyed) on any thread, without the lock of the block that lent it and after
// its end.
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

// A run of floats that begins on a cache line. What is lent never changes: the first write after a
// loan goes to a copy, unless the loan has ended by then. So a loan costs no time, and memory only
// where both go on. Not thread-safe, but knows nothing of the threads that loans end on.
class SharedBlock {
 public:
  // Of unspecified content.
  explicit SharedBlock(size_t floats);
  SharedBlock(SharedBlock&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  SharedBlock& operator=(SharedBlock&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~SharedBlock();

  const float* data() const { return memory_->data(); }
  size_t size() const { return memory_->floats; }  // floats

  // The floats, to be written until the next Lend. Earlier results of data() may be those of a loan
  // from now on.
  float* Mutable();
  // The same. REQUIRES: nothing was lent since the last Mutable.
  float* MutableUnlent() { return memory_->data(); }
  // Fetches what Lend writes to.
  void PrefetchLend() const { __builtin_prefetch(memory_, 1); }
  BlockLoan Lend() const;

 private:
  internal::BlockMemory* memory_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SHARED_BLOCK_H_
