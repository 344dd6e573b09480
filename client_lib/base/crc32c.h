// CRC32C (Castagnoli), computed by ISA-L.
#ifndef PAWL_CLIENT_LIB_BASE_CRC32C_H_
#define PAWL_CLIENT_LIB_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace pawl {

// Extends `crc`, the CRC32C of preceding bytes (0 if there are none), by `size` bytes at `data`.
// Crc32c(0, "123456789", 9) == 0xe3069283.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_CRC32C_H_
