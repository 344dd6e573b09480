// Reads arrays in NumPy's format; model_format.md describes the bytes.
#ifndef PAWL_SERVER_EXPORT_NPY_READER_H_
#define PAWL_SERVER_EXPORT_NPY_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/base/env.h"

namespace pawl {

template <typename T>
struct NpyArray {
  std::vector<uint64_t> shape;
  // In C order; as many as the shape has.
  std::vector<T> elements;
};

// Read a whole file with little-endian elements in C order, as numpy.save writes it. Keys may be
// uint64 or int64, with the same bits. The file is untrusted: nothing is allocated that it does not
// contain. INVALID_ARGUMENT, naming the file: not such an array.
absl::StatusOr<NpyArray<float>> ReadNpyFloats(Env& env, const std::string& path);
absl::StatusOr<NpyArray<uint64_t>> ReadNpyKeys(Env& env, const std::string& path);

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_NPY_READER_H_
