// Tables, scans and distinct keys.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/c/distinct_keys.h"
#include "client_lib/c/membership.h"
#include "nlohmann/json.hpp"

namespace pawl::c {
namespace {

// Remembers the table, so that items can name it by its number.
absl::StatusOr<std::string> Remember(Membership& membership, const absl::StatusOr<Table>& table) {
  if (!table.ok()) return table.status();
  const absl::MutexLock lock(&membership.mutex);
  membership.tables.insert_or_assign(table->id(), *table);
  return ToJson(table->spec());
}

}  // namespace
}  // namespace pawl::c

using pawl::c::Connected;
using pawl::c::DistinctKeys;
using pawl::c::Fail;
using pawl::c::FindTable;
using pawl::c::FromJson;
using pawl::c::NotConnected;
using pawl::c::Remember;
using pawl::c::Shared;
using pawl::c::StartClientCall;
using pawl::c::State;
using pawl::c::Text;
using pawl::c::Timeout;
using pawl::c::ToJson;

int pawl_create_table(pawl_client* client, const char* spec_json, int64_t timeout_ms,
                      pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(const pawl::TableSpec spec,
                              FromJson<pawl::TableSpec>(spec_json, "spec_json"));
        connected.CreateTable(spec, Timeout(timeout_ms),
                              [membership = std::move(membership),
                               state = std::move(state)](const absl::StatusOr<pawl::Table>& table) {
                                state->End(Remember(*membership, table));
                              });
        return absl::OkStatus();
      });
}

int pawl_open_table(pawl_client* client, const char* name, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        connected.OpenTable(Text(name), Timeout(timeout_ms),
                            [membership = std::move(membership),
                             state = std::move(state)](const absl::StatusOr<pawl::Table>& table) {
                              state->End(Remember(*membership, table));
                            });
        return absl::OkStatus();
      });
}

int pawl_list_tables(pawl_client* client, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        connected.ListTables(Timeout(timeout_ms),
                             [membership = std::move(membership), state = std::move(state)](
                                 const absl::StatusOr<std::vector<pawl::Table>>& tables) {
                               if (!tables.ok()) return state->End(tables.status());
                               pawl::ListTablesResponse listed;
                               for (const pawl::Table& table : *tables) {
                                 Remember(*membership, table).IgnoreError();
                                 *listed.add_tables() = table.spec();
                               }
                               state->End(ToJson(listed));
                             });
        return absl::OkStatus();
      });
}

size_t pawl_slot_count(pawl_client* client, uint32_t table) {
  if (client == nullptr) return 0;
  const absl::StatusOr<pawl::Table> found = FindTable(*client->membership, table);
  if (!found.ok()) return 0;
  if (!found->dense()) return found->SlotFloats(found->row_width());
  size_t count = 0;
  for (uint64_t block = 0; block < pawl::BlockCount(found->elements()); ++block)
    count += found->SlotFloats(pawl::BlockElements(found->elements(), block));
  return count;
}

int pawl_scan(pawl_client* client, uint32_t table, uint32_t partition, uint64_t first_key,
              uint64_t* keys, float* values, float* slots, size_t rows, int64_t timeout_ms,
              pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        if ((keys == nullptr || values == nullptr) && rows > 0)
          return absl::InvalidArgumentError("an array is NULL");
        pawl::ScanItem item = {.partition = partition, .first_key = first_key};
        PAWL_ASSIGN_OR_RETURN(item.table, FindTable(*membership, table));
        const uint64_t width = item.table.row_width();
        item.keys = absl::MakeSpan(keys, rows);
        item.values = absl::MakeSpan(values, rows * width);
        if (slots != nullptr)
          item.slots = absl::MakeSpan(slots, rows * item.table.SlotFloats(width));
        connected.Scan(item, Timeout(timeout_ms),
                       [state = std::move(state)](const absl::StatusOr<pawl::ScanPage>& page) {
                         if (!page.ok()) return state->End(page.status());
                         nlohmann::ordered_json result = {{"rows", page->rows}};
                         if (page->next_key) result["next_key"] = *page->next_key;
                         state->End(result.dump());
                       });
        return absl::OkStatus();
      });
}

int pawl_unique_items(pawl_client* client, pawl_item* items, size_t count, uint64_t* distinct,
                      int64_t* places) {
  pawl::Client* const connected = Connected(client);
  if (connected == nullptr) return Fail(NotConnected());
  if (items == nullptr && count > 0) return Fail(absl::InvalidArgumentError("items is NULL"));
  for (size_t i = 0; i < count; ++i) {
    if (items[i].key_count > 0 &&
        (items[i].keys == nullptr || distinct == nullptr || places == nullptr))
      return Fail(absl::InvalidArgumentError("an array is NULL"));
    const absl::StatusOr<pawl::Table> table = FindTable(*client->membership, items[i].table);
    if (!table.ok()) return Fail(table.status());
    if (table->dense()) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("table '", table->name(), "' is dense: its blocks have no keys to choose")));
    }
    if (items[i].key_count > pawl::kMaxKeysInItem) {
      return Fail(absl::InvalidArgumentError(absl::StrCat(items[i].key_count, " keys; at most ",
                                                          pawl::kMaxKeysInItem, " are possible")));
    }
  }
  // Keeps its memory for the thread's next batch.
  thread_local DistinctKeys distinct_keys;
  int64_t first = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t found =
        distinct_keys.Find(items[i].table, absl::MakeConstSpan(items[i].keys, items[i].key_count),
                           connected->job().partitions(), first, distinct, places);
    places += items[i].key_count;
    items[i].keys = distinct;
    items[i].key_count = found;
    items[i].flags |= PAWL_KEYS_ARE_DISTINCT;
    distinct += found;
    first += static_cast<int64_t>(found);
  }
  return PAWL_OK;
}
