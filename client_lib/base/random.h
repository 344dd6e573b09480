// Random numbers: unpredictable ones for names and retry delays, and a counter-based generator
// whose numbers every process computes alike.
#ifndef PAWL_CLIENT_LIB_BASE_RANDOM_H_
#define PAWL_CLIENT_LIB_BASE_RANDOM_H_

#include <array>
#include <cstdint>
#include <functional>

namespace pawl {

// Returns 64 random bits. Not for secrets. Thread-safe.
uint64_t RandomNumber();

// While an instance exists, RandomNumber returns what `source` returns, on this thread only. It
// makes a simulation repeatable. Instances nest.
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

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// The constants of Philox4x32.
inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultipliers[] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr uint32_t kPhiloxKeySteps[] = {0x9E3779B9u, 0xBB67AE85u};

// Philox4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy
// as 1, 2, 3", section 3.3). The n-th number of a stream is a pure function of (key, counter).
inline constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kPhiloxKeySteps[0], key[1] + kPhiloxKeySteps[1]};
  }
  return counter;
}

// The same with counter and key as 64-bit numbers, low half first.
inline constexpr PhiloxCounter Philox4x32(uint64_t counter_low, uint64_t counter_high,
                                          uint64_t key) {
  return Philox4x32(
      PhiloxCounter{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                    static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)},
      PhiloxKey{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_RANDOM_H_
