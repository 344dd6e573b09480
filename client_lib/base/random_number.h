// Numbers that nobody foresees: what names a process's incarnation, and how long a retry waits.
#ifndef PAWL_CLIENT_LIB_BASE_RANDOM_NUMBER_H_
#define PAWL_CLIENT_LIB_BASE_RANDOM_NUMBER_H_

#include <cstdint>
#include <functional>

namespace pawl {

// 64 random bits. Not for secrets. Thread-safe.
uint64_t RandomNumber();

// As long as it lives, RandomNumber on this thread gives what `source` gives: a simulation can then
// be repeated.
class ScopedRandomNumbers {
 public:
  explicit ScopedRandomNumbers(std::function<uint64_t()> source);
  ~ScopedRandomNumbers();
  ScopedRandomNumbers(const ScopedRandomNumbers&) = delete;
  ScopedRandomNumbers& operator=(const ScopedRandomNumbers&) = delete;

 private:
  const std::function<uint64_t()> source_;
  const std::function<uint64_t()>* const former_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_RANDOM_NUMBER_H_
