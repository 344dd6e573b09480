#include "tests/chaos/storm/bulk_table.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "client_lib/base/status_macros.h"
#include "tests/harness/ledger/ledger.h"

namespace pawl {
namespace {

constexpr char kTable[] = "bulk";
constexpr size_t kBytesInCall = 8 << 20;
constexpr std::chrono::seconds kCallTimeout{120};

// Calls call(keys) for all rows, with as many keys as fit a message.
absl::Status ForEachRun(uint64_t rows, uint32_t row_width, auto call) {
  const uint64_t rows_in_call = std::max<uint64_t>(1, kBytesInCall / (row_width * sizeof(float)));
  for (uint64_t first = 0; first < rows; first += rows_in_call) {
    std::vector<uint64_t> keys(std::min(rows_in_call, rows - first));
    std::iota(keys.begin(), keys.end(), first);
    PAWL_RETURN_IF_ERROR(call(keys));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteBulkTable(Client& client, uint64_t rows, uint32_t row_width) {
  PAWL_ASSIGN_OR_RETURN(const Table table,
                        client.CreateTable(LedgerTable(kTable, row_width)).get());
  std::vector<float> gradients;
  return ForEachRun(rows, row_width, [&](const std::vector<uint64_t>& keys) {
    gradients.assign(keys.size() * row_width, -1.0f);
    return client.free_running()
        .Push({{.table = table, .keys = keys, .gradients = gradients, .keys_are_distinct = true}},
              {.timeout = kCallTimeout})
        .get();
  });
}

absl::StatusOr<uint64_t> CountBadBulkRows(Client& client, uint64_t rows) {
  PAWL_ASSIGN_OR_RETURN(const Table table, client.OpenTable(kTable).get());
  uint64_t bad = 0;
  std::vector<float> values;
  PAWL_RETURN_IF_ERROR(
      ForEachRun(rows, table.row_width(), [&](const std::vector<uint64_t>& keys) -> absl::Status {
        values.assign(keys.size() * table.row_width(), 0.0f);
        PAWL_RETURN_IF_ERROR(
            client.free_running()
                .Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(values)}},
                      {.timeout = kCallTimeout})
                .get());
        for (size_t row = 0; row < keys.size(); ++row) {
          const auto begin = values.begin() + static_cast<ptrdiff_t>(row * table.row_width());
          bad += !std::all_of(begin, begin + table.row_width(),
                              [](float value) { return value == 1.0f; });
        }
        return absl::OkStatus();
      }));
  return bad;
}

}  // namespace pawl
