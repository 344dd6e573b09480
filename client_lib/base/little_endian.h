// Numbers as files and digests hold them: little-endian, unaligned.
#ifndef PAWL_CLIENT_LIB_BASE_LITTLE_ENDIAN_H_
#define PAWL_CLIENT_LIB_BASE_LITTLE_ENDIAN_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace pawl {

static_assert(std::endian::native == std::endian::little,
              "files are written as the machine holds numbers");

// Writes `value` at `out` and returns the place after it.
template <typename Unsigned>
char* PutNumber(char* out, Unsigned value) {
  std::memcpy(out, &value, sizeof(value));
  return out + sizeof(value);
}

template <typename Unsigned>
void AppendNumber(std::string& out, Unsigned value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Reads the number at `in` and moves `in` behind it.
template <typename Unsigned>
Unsigned TakeNumber(const char*& in) {
  Unsigned value;
  std::memcpy(&value, in, sizeof(value));
  in += sizeof(value);
  return value;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_LITTLE_ENDIAN_H_
