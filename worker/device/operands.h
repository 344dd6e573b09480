// The operands of device operations, as plain data that kernels can use too.
#ifndef PAWL_WORKER_DEVICE_OPERANDS_H_
#define PAWL_WORKER_DEVICE_OPERANDS_H_

#include <cstddef>
#include <cstdint>

namespace pawl {

// A row-major matrix in borrowed device memory. Element (r, c) is data[r * stride + c], so a range
// of columns of a matrix is a matrix too.
struct Matrix {
  float* data = nullptr;
  size_t rows = 0;
  size_t columns = 0;
  size_t stride = 0;

  // REQUIRES: begin + count <= columns
  Matrix Columns(size_t begin, size_t count) const { return {data + begin, rows, count, stride}; }
};

struct ConstMatrix {
  ConstMatrix() = default;
  ConstMatrix(const float* data, size_t rows, size_t columns, size_t stride)
      : data(data), rows(rows), columns(columns), stride(stride) {}
  ConstMatrix(const Matrix& other)  // NOLINT: every matrix is readable.
      : data(other.data), rows(other.rows), columns(other.columns), stride(other.stride) {}

  const float* data = nullptr;
  size_t rows = 0;
  size_t columns = 0;
  size_t stride = 0;

  ConstMatrix Columns(size_t begin, size_t count) const {
    return {data + begin, rows, count, stride};
  }
};

// The categorical part of a batch in device memory; the members have the meaning that they have in
// worker/data/batch.h.
struct Entries {
  size_t samples = 0;
  size_t fields = 0;
  size_t entries = 0;
  // Distinct keys: rows of the sparse tables.
  size_t keys = 0;
  const uint32_t* field_begin = nullptr;  // [samples * fields + 1]
  const uint32_t* entry_key = nullptr;    // [entries]
  const float* entry_value = nullptr;     // [entries]
};

// The entries of a set of fields one by one, as operands of PoolRows with one field for each entry.
struct EntryList {
  // The rows of the entries' keys, times their values.
  Entries rows;
  // The rows of the entries' samples; a row of the table is one sample.
  Entries samples;
};

// A row of weights as an update rule sees it: its offset among the weights and the gradients, its
// length, and the offset of its slots among the slots.
struct UpdatedRow {
  size_t begin = 0;
  size_t count = 0;
  size_t slots_begin = 0;
};

enum class Transpose { kNo, kYes };

// The type to which a matrix product rounds its factors before it multiplies them, to nearest with
// ties to even (client_lib/base/half.h). Sums of products are float32 in any case.
enum class Factors { kFloat32, kBfloat16, kFloat16 };

// The function that a layer applies to its sums: the identity, or max(x, 0).
enum class Activation { kLinear, kRelu };

// Whether an operation replaces the contents of its output, which may then be anything, even NaN,
// or adds to them.
enum class Write { kReplace, kAdd };

// The extent of a sum over entries: each field of each sample, or each sample.
enum class PoolOver { kField, kSample };

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_OPERANDS_H_
