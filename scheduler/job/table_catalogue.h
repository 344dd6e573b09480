// The job's tables.
#ifndef PAWL_SCHEDULER_JOB_TABLE_CATALOGUE_H_
#define PAWL_SCHEDULER_JOB_TABLE_CATALOGUE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/scheduler_state.pb.h"
#include "proto/types.pb.h"

namespace pawl {

// Bounded because every partition has a small map for each table.
inline constexpr size_t kMaxTables = 1024;
// The limit on partitions times tables: one server may report the digests of all of them in one
// answer (Inspect), at up to kMaxDigestBytes each, which must stay below the control channels'
// limit of 16 MiB.
inline constexpr uint64_t kMaxTableParts = uint64_t{1} << 19;
inline constexpr uint64_t kMaxDigestBytes = 30;

// Numbers tables and keeps their specifications. Not thread-safe.
//
// Invariants:
//  1. An id is never reused, even if its table could not be created.
//  2. Table names are unique.
class TableCatalogue {
 public:
  struct Entry {
    TableSpec spec;
    // Every partition has the table.
    bool ready = false;
  };

  // Tables without an optimizer get the job's.
  explicit TableCatalogue(const Job& job);

  struct Creation {
    const Entry* entry;
    // False: an equal table existed already.
    bool is_new;
  };
  // Checks the table, fills in its defaults (element type, optimizer, id) and adds it, not ready
  // yet. INVALID_ARGUMENT names the field; ALREADY_EXISTS: a different table has the name;
  // RESOURCE_EXHAUSTED: beyond kMaxTables or kMaxTableParts. The entry is valid until Remove.
  absl::StatusOr<Creation> Create(const TableSpec& requested);

  void MarkReady(uint32_t id);
  // The servers have refused the table: its name is free again.
  void Remove(uint32_t id);

  // nullptr if there is none.
  const Entry* Find(uint32_t id) const;
  // By id.
  std::vector<const Entry*> All() const;
  bool HasReadyTable() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const auto& entry) { return entry.second.ready; });
  }

  StoredTables Save() const;
  // REQUIRES: the catalogue is empty.
  void Restore(const StoredTables& stored);

 private:
  const uint64_t partitions_;
  const Optimizer dense_optimizer_;
  const Optimizer sparse_optimizer_;
  std::map<uint32_t, Entry> entries_;
  absl::flat_hash_map<std::string, uint32_t> by_name_;
  uint32_t last_id_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_TABLE_CATALOGUE_H_
