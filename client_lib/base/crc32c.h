// CRC32C (Castagnoli) and CRC-32 (that of gzip), computed by ISA-L.
#ifndef PAWL_CLIENT_LIB_BASE_CRC32C_H_
#define PAWL_CLIENT_LIB_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace pawl {

// Extends `crc`, the CRC32C of preceding bytes (0 if there are none), by `size` bytes at `data`.
// Crc32c(0, "123456789", 9) == 0xe3069283.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// The CRC32C of the bytes as TensorFlow's record files store it: rotated, plus a constant, so that
// the checksum of bytes with checksums among them is a good one.
uint32_t MaskedCrc32c(const void* data, size_t size);

// As Crc32c, for the CRC-32 of gzip, zlib and Python's standard library. Crc32(0, "123456789", 9)
// == 0xcbf43926.
uint32_t Crc32(uint32_t crc, const void* data, size_t size);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_CRC32C_H_
