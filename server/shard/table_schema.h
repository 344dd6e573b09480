// A table's schema, shared by all of its partitions.
#ifndef PAWL_SERVER_SHARD_TABLE_SCHEMA_H_
#define PAWL_SERVER_SHARD_TABLE_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "proto/types.pb.h"
#include "server/optimizer/update_rule.h"
#include "server/shard/initializer.h"

namespace pawl {

// The spec of a table with its optimizer and initializer. Immutable, hence thread-safe.
class TableSchema {
 public:
  // INVALID_ARGUMENT, naming the table and the field, for an invalid spec.
  static absl::StatusOr<std::shared_ptr<const TableSchema>> Create(const TableSpec& spec,
                                                                   uint64_t job_seed);

  const TableSpec& spec() const { return spec_; }
  uint32_t id() const { return spec_.id(); }
  bool is_dense() const { return spec_.kind() == DENSE; }
  const UpdateRule& rule() const { return *rule_; }
  const TableInitializer& initializer() const { return *initializer_; }
  // Whether rows have a count of their updates; see UpdateRule.
  bool counts_updates() const { return rule_->CountsUpdates(); }

  // The number of elements of the row or block `key`. REQUIRES: the table has the key.
  size_t RowWidth(uint64_t key) const;
  // The largest RowWidth of the table.
  size_t MaxRowWidth() const { return max_row_width_; }
  // DENSE: the number of blocks.
  uint64_t BlockCount() const { return block_count_; }

  // Checks everything about a gradient's content, so that nothing can fail later: element type and
  // exponent are valid; keys are whole, in range and in `partition` of `partitions`; the values
  // match the rows of the keys and are finite. INVALID_ARGUMENT or OUT_OF_RANGE, with the key.
  absl::Status CheckGradient(ElementType element_type, int32_t exponent, const ByteView& keys,
                             const ByteView& values, uint32_t partition, uint32_t partitions) const;
  // The same for keys only. On success `value_bytes` is the size of their rows.
  absl::Status CheckKeys(const ByteView& keys, uint32_t partition, uint32_t partitions,
                         size_t& value_bytes) const;

 private:
  TableSchema() = default;

  TableSpec spec_;
  uint64_t elements_ = 0;  // DENSE
  uint64_t block_count_ = 0;
  size_t max_row_width_ = 0;
  std::unique_ptr<const UpdateRule> rule_;
  std::unique_ptr<const TableInitializer> initializer_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TABLE_SCHEMA_H_
