#include "server/optimizer/math/finite.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

const std::vector<uint32_t> kNotFinite = {0x7F800000u, 0xFF800000u, 0x7F800001u,
                                          0x7FC00000u, 0xFFFFFFFFu, 0xFF800001u};
// The largest numbers of both signs, subnormals, zeros, one.
const std::vector<uint32_t> kFinite = {0x7F7FFFFFu, 0xFF7FFFFFu, 0x00000001u, 0x807FFFFFu,
                                       0u,          0x80000000u, 0x3F800000u};

std::vector<uint32_t> FiniteNumbers(size_t count) {
  std::vector<uint32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = kFinite[i % kFinite.size()];
  return numbers;
}

// Checks numbers at an odd address in memory with nothing around it.
bool Check(const std::vector<uint32_t>& numbers, Isa isa) {
  std::vector<char> bytes(1 + numbers.size() * sizeof(float));
  if (!numbers.empty())
    std::memcpy(bytes.data() + 1, numbers.data(), numbers.size() * sizeof(float));
  return AllFinite(bytes.data() + 1, numbers.size(), isa);
}

TEST(FiniteTest, FiniteNumbersPass) {
  for (const Isa isa : SupportedIsas()) {
    for (size_t count = 0; count <= 70; ++count)
      EXPECT_TRUE(Check(FiniteNumbers(count), isa)) << count;
    EXPECT_TRUE(Check(FiniteNumbers(100003), isa));
    EXPECT_TRUE(AllFinite(nullptr, 0, isa));
  }
}

TEST(FiniteTest, BadNumberAtAnyPositionIsFound) {
  for (const Isa isa : SupportedIsas()) {
    for (size_t count = 1; count <= 70; ++count) {
      for (size_t at = 0; at < count; ++at) {
        std::vector<uint32_t> numbers = FiniteNumbers(count);
        numbers[at] = kNotFinite[(at + count) % kNotFinite.size()];
        EXPECT_FALSE(Check(numbers, isa)) << IsaName(isa) << ": " << at << " of " << count;
      }
    }
    for (const uint32_t bad : kNotFinite) EXPECT_FALSE(Check({bad}, isa)) << bad;
  }
}

TEST(FiniteTest, BadNumberInALongGradientIsFound) {
  constexpr size_t kCount = 100003;
  for (const Isa isa : SupportedIsas()) {
    for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{65536}, kCount - 1}) {
      std::vector<uint32_t> numbers = FiniteNumbers(kCount);
      numbers[at] = 0x7FC00000u;
      EXPECT_FALSE(Check(numbers, isa)) << IsaName(isa) << ": " << at;
    }
  }
}

// Checks every 16-bit number, alone and among others at an odd address.
TEST(FiniteTest, NonFiniteHalvesAreFound) {
  for (const int fraction_bits : {7, 10}) {
    const uint32_t infinity = 0x7FFFu >> fraction_bits << fraction_bits;
    for (const Isa isa : SupportedIsas()) {
      for (uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const bool finite = (bits & 0x7FFFu) < infinity;
        ASSERT_EQ(AllHalvesFinite(&half, 1, fraction_bits, isa), finite) << bits;
        std::vector<uint16_t> halves(67, static_cast<uint16_t>(infinity - 1));
        halves[bits % 67] = half;
        std::vector<char> bytes(1 + halves.size() * sizeof(uint16_t));
        std::memcpy(bytes.data() + 1, halves.data(), halves.size() * sizeof(uint16_t));
        ASSERT_EQ(AllHalvesFinite(bytes.data() + 1, halves.size(), fraction_bits, isa), finite)
            << bits;
      }
    }
    EXPECT_TRUE(AllHalvesFinite(nullptr, 0, fraction_bits));
  }
}

TEST(FiniteTest, DefaultUsesTheBestInstructions) {
  const float good[] = {1.0f, 2.0f};
  const float bad[] = {1.0f, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(AllFinite(good, 2));
  EXPECT_FALSE(AllFinite(bad, 2));
}

}  // namespace
}  // namespace pawl
