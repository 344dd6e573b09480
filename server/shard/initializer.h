// The value of an element before its first update.
#ifndef PAWL_SERVER_SHARD_INITIALIZER_H_
#define PAWL_SERVER_SHARD_INITIALIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace pawl {

// The initial values of one table as a function of (job seed, table name, key,
// position). Immutable, hence thread-safe. Uses no function of the C library
// whose last bit differs between machines: any server gets the same bits at any time.
class TableInitializer {
 public:
  // INVALID_ARGUMENT, naming the field, for an impossible initializer.
  static absl::StatusOr<std::unique_ptr<const TableInitializer>> Create(const TableSpec& table, uint64_t job_seed);

  virtual ~TableInitializer() = default;

  // Writes elements [begin, begin + count) of the row or block `key`.
  virtual void Fill(uint64_t key, size_t begin, size_t count, float* out) const = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_INITIALIZER_H_
