// A large table besides the ledger, so that a storm's servers hold gigabytes.
#ifndef PAWL_TESTS_CHAOS_STORM_BULK_TABLE_H_
#define PAWL_TESTS_CHAOS_STORM_BULK_TABLE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/client.h"

namespace pawl {

// Creates the table and sets every element of rows 0 to `rows` - 1 to one. Returns when all writes
// are acknowledged.
absl::Status WriteBulkTable(Client& client, uint64_t rows, uint32_t row_width);

// Reads the table and counts the rows that differ from what WriteBulkTable wrote.
absl::StatusOr<uint64_t> CountBadBulkRows(Client& client, uint64_t rows);

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_BULK_TABLE_H_
