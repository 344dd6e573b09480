// Pushes, pulls and the ends of steps.
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/c/membership.h"

namespace pawl::c {
namespace {

constexpr uint32_t kAllFlags =
    PAWL_KEYS_ARE_DISTINCT | PAWL_BFLOAT16 | PAWL_FLOAT16 | PAWL_KEEP_SLOTS;

absl::Status CheckItem(const pawl_item& item) {
  if ((item.flags & ~kAllFlags) != 0)
    return absl::InvalidArgumentError(absl::StrCat("unknown flags ", item.flags & ~kAllFlags));
  if ((item.flags & PAWL_BFLOAT16) != 0 && (item.flags & PAWL_FLOAT16) != 0)
    return absl::InvalidArgumentError("an item has one element type, BFLOAT16 or FLOAT16");
  if ((item.keys == nullptr && item.key_count > 0) ||
      (item.values == nullptr && item.value_count > 0) ||
      (item.slots == nullptr && item.slot_count > 0))
    return absl::InvalidArgumentError("an array is NULL");
  return absl::OkStatus();
}

// Converts items; `convert` gets the item and its table.
template <typename Item, typename Convert>
absl::StatusOr<absl::InlinedVector<Item, 8>> Converted(Membership& membership,
                                                       const pawl_item* items, size_t count,
                                                       Convert convert) {
  if (items == nullptr && count > 0) return absl::InvalidArgumentError("items is NULL");
  absl::InlinedVector<Item, 8> converted;
  for (size_t i = 0; i < count; ++i) {
    PAWL_RETURN_IF_ERROR(Annotate(CheckItem(items[i]), absl::StrCat("item ", i)));
    absl::StatusOr<Table> table = FindTable(membership, items[i].table);
    if (!table.ok()) return Annotate(table.status(), absl::StrCat("item ", i));
    converted.push_back(convert(items[i], *std::move(table)));
  }
  return converted;
}

absl::Status NoSession() {
  return absl::FailedPreconditionError(
      "the session is NULL: the client is not connected, or pawl_rank named a rank that it does "
      "not host");
}

}  // namespace
}  // namespace pawl::c

using pawl::c::Converted;
using pawl::c::EndsWithNothing;
using pawl::c::FindTable;
using pawl::c::NoSession;
using pawl::c::StartCall;
using pawl::c::State;
using pawl::c::Timeout;

pawl_session* pawl_free_running(pawl_client* client) {
  if (client == nullptr) return nullptr;
  const absl::MutexLock lock(&client->membership->mutex);
  return client->membership->free_running.get();
}

int pawl_pull(pawl_session* session, const pawl_item* items, size_t count, int64_t step,
              int64_t timeout_ms, pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr) return NoSession();
    PAWL_ASSIGN_OR_RETURN(
        const auto pulls,
        Converted<pawl::PullItem>(
            *session->membership, items, count, [](const pawl_item& item, pawl::Table table) {
              return pawl::PullItem{.table = std::move(table),
                                    .keys = absl::MakeConstSpan(item.keys, item.key_count),
                                    .values = absl::MakeSpan(item.values, item.value_count),
                                    .keys_are_distinct = (item.flags & PAWL_KEYS_ARE_DISTINCT) != 0,
                                    .slots = absl::MakeSpan(item.slots, item.slot_count)};
            }));
    pawl::CallOptions options = Timeout(timeout_ms);
    if (step >= 0) options.step = static_cast<uint64_t>(step);
    session->session->Pull(pulls, options, EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

int pawl_push(pawl_session* session, const pawl_item* items, size_t count, int64_t timeout_ms,
              pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr) return NoSession();
    PAWL_ASSIGN_OR_RETURN(
        const auto pushes,
        Converted<pawl::PushItem>(
            *session->membership, items, count, [](const pawl_item& item, pawl::Table table) {
              return pawl::PushItem{
                  .table = std::move(table),
                  .keys = absl::MakeConstSpan(item.keys, item.key_count),
                  .gradients = absl::MakeConstSpan(item.values, item.value_count),
                  .keys_are_distinct = (item.flags & PAWL_KEYS_ARE_DISTINCT) != 0,
                  .element_type = (item.flags & PAWL_BFLOAT16) != 0  ? pawl::BFLOAT16
                                  : (item.flags & PAWL_FLOAT16) != 0 ? pawl::FLOAT16
                                                                     : pawl::FLOAT32};
            }));
    session->session->Push(pushes, Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

int pawl_assign(pawl_session* session, const pawl_item* items, size_t count, int64_t timeout_ms,
                pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr) return NoSession();
    PAWL_ASSIGN_OR_RETURN(
        const auto assigned,
        Converted<pawl::AssignItem>(
            *session->membership, items, count, [](const pawl_item& item, pawl::Table table) {
              return pawl::AssignItem{
                  .table = std::move(table),
                  .keys = absl::MakeConstSpan(item.keys, item.key_count),
                  .values = absl::MakeConstSpan(item.values, item.value_count),
                  .slots = absl::MakeConstSpan(item.slots, item.slot_count),
                  .keep_slots = (item.flags & PAWL_KEEP_SLOTS) != 0,
                  .keys_are_distinct = (item.flags & PAWL_KEYS_ARE_DISTINCT) != 0};
            }));
    session->session->Assign(assigned, Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

uint64_t pawl_step(pawl_session* session) {
  return session == nullptr || session->rank == nullptr ? 0 : session->rank->step();
}

int pawl_set_learning_rates(pawl_session* session, const uint32_t* tables, const float* rates,
                            size_t count, int64_t timeout_ms, pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr || session->rank == nullptr)
      return absl::InvalidArgumentError("only the session of a rank has learning rates");
    if (count > 0 && (tables == nullptr || rates == nullptr))
      return absl::InvalidArgumentError("an array is NULL");
    std::vector<pawl::LearningRateItem> items;
    for (size_t i = 0; i < count; ++i) {
      PAWL_ASSIGN_OR_RETURN(pawl::Table table, FindTable(*session->membership, tables[i]));
      items.push_back({.table = std::move(table), .learning_rate = rates[i]});
    }
    session->rank->SetLearningRates(items, Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}

int pawl_end_step(pawl_session* session, int64_t timeout_ms, pawl_call** call) {
  return StartCall(call, [&](State state) -> absl::Status {
    if (session == nullptr || session->rank == nullptr)
      return absl::InvalidArgumentError("only the session of a rank has steps");
    session->rank->EndStep(Timeout(timeout_ms), EndsWithNothing(std::move(state)));
    return absl::OkStatus();
  });
}
