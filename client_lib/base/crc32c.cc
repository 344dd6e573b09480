#include "client_lib/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace pawl {

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  // ISA-L does not invert the value at either end, and does not modify the data despite its
  // non-const parameter.
  constexpr size_t kMaxChunkBytes = std::numeric_limits<int>::max();
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  crc = ~crc;
  while (size > 0) {
    const size_t chunk = std::min(size, kMaxChunkBytes);
    crc = crc32_iscsi(bytes, static_cast<int>(chunk), crc);
    bytes += chunk;
    size -= chunk;
  }
  return ~crc;
}

uint32_t MaskedCrc32c(const void* data, size_t size) {
  const uint32_t crc = Crc32c(0, data, size);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

uint32_t Crc32(uint32_t crc, const void* data, size_t size) {
  return crc32_gzip_refl(crc, static_cast<const unsigned char*>(data), size);
}

}  // namespace pawl
