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

// Every partition has a small map for each table.
inline constexpr size_t kMaxTables = 1024;
// Partitions times tables: one server may have to report the digest of each in one answer
// (Inspect), which takes up to kMaxDigestBytes each and has to stay below the control channels'
// limit of 16 MiB.
inline constexpr uint64_t kMaxTableParts = uint64_t{1} << 19;
inline constexpr uint64_t kMaxDigestBytes = 30;

// Numbers tables and remembers what each is. Not thread-safe.
//
// Invariants:
//  1. An id is given out once, also if its table could not be created.
//  2. No two tables have one name.
class TableCatalogue {
 public:
  struct Entry {
    TableSpec spec;
    // Every partition has it.
    bool ready = false;
  };

  // `job`'s optimizers are for tables that name none.
  explicit TableCatalogue(const Job& job);

  struct Creation {
    const Entry* entry;
    // False: an equal table was there already.
    bool is_new;
  };
  // Checks the table, puts in what it leaves open (element type, optimizer, id) and takes it in as
  // not ready. INVALID_ARGUMENT naming the field, ALREADY_EXISTS for another table of that name,
  // RESOURCE_EXHAUSTED beyond kMaxTables and kMaxTableParts. The entry lives until Remove.
  absl::StatusOr<Creation> Create(const TableSpec& requested);

  void MarkReady(uint32_t id);
  // The servers refused it, for good: its name is free again.
  void Remove(uint32_t id);

  // nullptr if there is none.
  const Entry* Find(uint32_t id) const;
  // By id.
  std::vector<const Entry*> All() const;
  bool AnyIsReady() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const auto& entry) { return entry.second.ready; });
  }

  StoredTables Save() const;
  // REQUIRES: there is no table yet.
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
