// Conversions of single 16-bit floating-point numbers. GPU code includes this file too, so it
// includes only headers that nvcc has.
#ifndef PAWL_CLIENT_LIB_BASE_HALF_H_
#define PAWL_CLIENT_LIB_BASE_HALF_H_

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define PAWL_HOST_DEVICE __host__ __device__
#else
#define PAWL_HOST_DEVICE
#endif

namespace pawl {

PAWL_HOST_DEVICE inline uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

PAWL_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// All conversions round to nearest, ties to even. Numbers that are too large become infinity; a NaN
// becomes a quiet NaN. The code has only branches that a compiler can turn into selections, so that
// loops over it vectorise.

// BFLOAT16: the upper half of a binary32.
PAWL_HOST_DEVICE inline uint16_t Bfloat16Of(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

PAWL_HOST_DEVICE inline float FloatOfBfloat16(uint16_t half) {
  return FloatOfBits(uint32_t{half} << 16);
}

// FLOAT16: IEEE 754 binary16.
PAWL_HOST_DEVICE inline uint16_t Float16Of(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Changes the exponent's bias from 127 to 15.
  const uint32_t normal = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
  // The last place of 0.5 is the last place of FLOAT16's subnormal numbers, so the addition rounds.
  const uint32_t subnormal = BitsOfFloat(FloatOfBits(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x47800000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? nan : half;
  return static_cast<uint16_t>(half | (bits >> 16 & 0x8000u));
}

PAWL_HOST_DEVICE inline float FloatOfFloat16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t shifted = magnitude << 13;
  // Times 2^-24.
  const uint32_t subnormal =
      BitsOfFloat(static_cast<float>(static_cast<int32_t>(magnitude)) * 5.9604644775390625e-8f);
  // The bit that makes a NaN quiet.
  const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  uint32_t bits = magnitude < 0x400u ? subnormal : shifted + 0x38000000u;
  bits = magnitude >= 0x7c00u ? (shifted + 0x70000000u) | quiet : bits;
  return FloatOfBits(bits | (half & 0x8000u) << 16);
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_HALF_H_
