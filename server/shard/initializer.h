// The value of an element before its first update.
//
//
// This comment is the complete specification: the bits can be computed from it alone.
//
// Random bits. Element i of row or block `key` of a table uses one 32-bit word x:
//
//   stream = XXH64(name, size of name, seed = job_seed)      the table's name, as bytes
//   x      = Philox4x32(counter_low = key, counter_high = i / 4, key = stream)[i % 4]
//
// with Philox4x32 of client_lib/base/random.h. Block k of a dense tensor has key k, and its
// elements have i from 0 to 65535.
//
// Value. All arithmetic is in IEEE doubles without contraction, in the order written. The fields of
// the spec are floats and convert exactly. float(...) rounds once, to nearest, ties to even.
//
//   constant           value                                (0 if no kind is set)
//   uniform            u = (x >> 8) * 2^-24
//                      v = float(low + (high - low) * u); if v >= high: the next float below high
//   normal             z = InverseNormal((x + 0.5) * 2^-32)
//                      v = float(mean + stddev * z)
//   truncated normal   P = 0.022750131948179209 (the normal CDF at -2)
//                      p = P + (1 - 2 * P) * ((x + 0.5) * 2^-32)
//                      z = InverseNormal(p), clamped to [-2, 2]
//                      v = float(mean + stddev * z)
//   xavier             limit = float(gain * sqrt(6 / (fan_in + fan_out))), with the fans added as
//                      doubles and gain 0 read as 1
//                      v = uniform with low = -limit, high = limit
//                      A fan of 0 is taken from the table: fan_in = shape[0], fan_out = shape[1] of
//                      a dense tensor with two dimensions; fan_in = 1, fan_out = row_width of a
//                      sparse table.
//
// With zero_from above 0, elements i >= zero_from of a row are 0 instead.
//
// InverseNormal is Wichura's AS 241 (PPND16), with polynomials evaluated by Horner's rule and the
// logarithm of server/optimizer/math/deterministic_math.h.
#ifndef PAWL_SERVER_SHARD_INITIALIZER_H_
#define PAWL_SERVER_SHARD_INITIALIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/types.pb.h"
#include "server/optimizer/math/isa.h"

namespace pawl {

// The initial values of one table as a function of (job seed, table name, key, position).
// Immutable, hence thread-safe. It uses no C library function whose last bit differs between
// machines, so every server computes the same bits.
class TableInitializer {
 public:
  // INVALID_ARGUMENT, naming the field, for an invalid initializer. The values do not depend on
  // `isa`, which the processor must have.
  static absl::StatusOr<std::unique_ptr<const TableInitializer>> Create(const TableSpec& table,
                                                                        uint64_t job_seed,
                                                                        Isa isa = BestIsa());

  virtual ~TableInitializer() = default;

  // Writes elements [begin, begin + count) of the row or block `key`.
  virtual void Fill(uint64_t key, size_t begin, size_t count, float* out) const = 0;
  // Writes the first `width` elements of the row keys[i] to rows[i]. Many rows at once take a
  // fraction of the time.
  virtual void FillRows(absl::Span<const uint64_t> keys, size_t width, float* const* rows) const;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_INITIALIZER_H_
