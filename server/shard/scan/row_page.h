// A page of a scan: some rows of a table part, in the order of their keys.
#ifndef PAWL_SERVER_SHARD_SCAN_ROW_PAGE_H_
#define PAWL_SERVER_SHARD_SCAN_ROW_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/shard/table_part.h"

namespace pawl {

struct RowPageLimits {
  // At least 1.
  size_t rows = 0;
  // The bytes of keys, weights and slots. A single row may be larger.
  size_t bytes = 0;
  bool with_slots = false;
};

struct RowPage {
  std::vector<uint64_t> keys;  // ascending
  std::vector<float> values;
  // As in PullResult.slots; empty unless they are wanted.
  std::vector<float> slots;
  // The part has no row after the page.
  bool done = true;
  // Unless done: where the next page begins, above every key of this one.
  uint64_t next_key = 0;
};

// The first rows whose keys are not below `first_key`, as many as the limits allow, but at least
// one if there is one. Depends on the rows only, and not on the order in which they came into the
// table or on the process. A chain of pages, each beginning at the `next_key` of the one before,
// therefore has every row once, even if each page is read from another replica.
//
// Looks at every key of `held` and copies only the page. REQUIRES: the table is sparse.
RowPage ReadPage(const HeldTable& held, uint64_t first_key, const RowPageLimits& limits);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SCAN_ROW_PAGE_H_
