// A table's schema, shared by all of its partitions.
#ifndef PAWL_SERVER_SHARD_TABLE_SCHEMA_H_
#define PAWL_SERVER_SHARD_TABLE_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/bytes.h"
#include "proto/types.pb.h"
#include "server/optimizer/update_rule.h"
#include "server/shard/initializer.h"

namespace pawl {

// New weights, and perhaps slots, for some rows or blocks of one table, in the memory in which they
// arrived. REQUIRES for all functions that take one: TableSchema::CheckAssignment has accepted it.
struct Assignment {
  // The change of the slots. Those of a new row that are not given get their initial values.
  enum class Slots { kReset, kGiven, kKeep };

  // A count of updates outside of a partition is a float (PushSegment.slots).
  static bool IsUpdateCount(float count) {
    return count >= 0 && count <= kMostUpdates &&
           static_cast<float>(static_cast<uint64_t>(count)) == count;
  }
  static uint32_t UpdatesOf(float count) {
    return count < kMostUpdates ? static_cast<uint32_t>(count) : UINT32_MAX;
  }

  ByteView keys = {};
  ByteView values = {};
  Slots effect = Slots::kReset;
  // kGiven; see PushSegment.slots.
  ByteView slots = {};

 private:
  // UINT32_MAX, rounded.
  static constexpr float kMostUpdates = 4294967296.0f;
};

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
  // The number of floats that follow the weights of a row or block of `width` elements: its slots
  // and, if counts_updates(), the number of its updates as a uint32.
  size_t StateFloats(size_t width) const {
    return rule_->SlotCount(width) + (counts_updates() ? 1 : 0);
  }
  // Copies the state that follows the weights of such a row or block, with the number of updates as
  // a float (PushSegment.slots), to StateFloats(width) floats at `out`.
  void CopySlots(size_t width, const float* state, float* out) const;
  // The largest RowWidth of the table.
  size_t MaxRowWidth() const { return max_row_width_; }
  // DENSE: the number of blocks.
  uint64_t BlockCount() const { return block_count_; }

  // Checks everything about a gradient's content, so that nothing can fail later: element type and
  // exponent are valid; keys are whole, in range and in `partition` of `partitions`; the values
  // match the rows of the keys and are finite. INVALID_ARGUMENT or OUT_OF_RANGE, with the key.
  absl::Status CheckGradient(ElementType element_type, int32_t exponent, const ByteView& keys,
                             const ByteView& values, uint32_t partition, uint32_t partitions) const;
  // The same for an assignment: its keys are distinct, too, and its slots match the rows, are
  // finite and valid for the optimizer.
  absl::Status CheckAssignment(ElementType element_type, int32_t exponent,
                               const Assignment& assignment, uint32_t partition,
                               uint32_t partitions) const;
  // The same for keys only. On success `value_bytes` is the size of their rows.
  absl::Status CheckKeys(const ByteView& keys, uint32_t partition, uint32_t partitions,
                         size_t& value_bytes) const;

 private:
  TableSchema() = default;

  // `what` names the values in errors.
  absl::Status CheckValues(absl::string_view what, ElementType element_type, int32_t exponent,
                           const ByteView& keys, const ByteView& values, uint32_t partition,
                           uint32_t partitions) const;
  absl::Status CheckSlots(const Assignment& assignment, const std::vector<uint64_t>& keys) const;

  TableSpec spec_;
  uint64_t elements_ = 0;  // DENSE
  uint64_t block_count_ = 0;
  size_t max_row_width_ = 0;
  std::unique_ptr<const UpdateRule> rule_;
  std::unique_ptr<const TableInitializer> initializer_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TABLE_SCHEMA_H_
