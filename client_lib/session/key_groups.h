// The keys of one call to one table, grouped by partition.
#ifndef PAWL_CLIENT_LIB_SESSION_KEY_GROUPS_H_
#define PAWL_CLIENT_LIB_SESSION_KEY_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace pawl {

// The distinct keys of a list, grouped by partition in ascending order, within a partition in the
// order of their first occurrence; and the positions of each. A group has a limited size, so a
// partition may have several, one after the other.
//
// The result is a function of the arguments only, so a recomputed step gives the same groups.
// Reusable, to save allocations; not thread-safe.
class KeyGroups {
 public:
  struct Group {
    uint32_t partition;
    // A range [begin, end) of keys().
    uint32_t begin;
    uint32_t end;

    uint32_t size() const { return end - begin; }
  };

  // `distinct`: the caller guarantees that no key is repeated. REQUIRES: partitions > 0,
  // max_group_keys > 0, keys.size() < 2^31.
  void Build(uint32_t table, absl::Span<const uint64_t> keys, uint32_t partitions, bool distinct,
             uint32_t max_group_keys);

  absl::Span<const Group> groups() const { return groups_; }
  absl::Span<const uint64_t> keys() const { return keys_; }

  // Calls visit(position in the list) for each occurrence of keys()[index], in ascending order.
  template <typename Visit>
  void ForEachPosition(uint32_t index, Visit visit) const {
    uint32_t position = first_position(index);
    visit(position);
    if (!has_duplicates_) return;
    while ((position = next_[position]) != kNone) visit(position);
  }

  // The position of the first occurrence.
  uint32_t first_position(uint32_t index) const { return in_order_ ? index : first_[index]; }
  bool has_duplicates() const { return has_duplicates_; }
  // Whether keys() is the list itself: distinct, and in the order of the groups already.
  bool in_order() const { return in_order_; }
  // The size of the memory kept for the next use.
  size_t capacity_bytes() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  void RemoveDuplicates();
  void DivideGroups(uint32_t max_group_keys);

  std::vector<Group> groups_;
  std::vector<uint64_t> keys_;
  bool in_order_ = false;
  std::vector<uint32_t> first_;  // by index in keys_; only filled unless in_order_
  bool has_duplicates_ = false;
  std::vector<uint32_t> next_;  // by position; only filled if has_duplicates_

  // Scratch.
  std::vector<uint32_t> partition_of_;  // by position
  std::vector<uint32_t> end_of_;        // by partition
  std::vector<uint32_t> last_;          // by index in keys_
  std::vector<Group> undivided_;
  absl::flat_hash_map<uint64_t, uint32_t> index_of_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_KEY_GROUPS_H_
