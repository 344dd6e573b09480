#include "client_lib/session/check_items.h"

#include <cmath>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/elements.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// Checks an item of rows or of a whole tensor. `floats` is the length of its gradients or values,
// `field` their name.
absl::Status CheckItem(size_t index, const Table& table, absl::Span<const uint64_t> keys,
                       size_t floats, absl::string_view field) {
  if (!table) {
    return absl::InvalidArgumentError(absl::StrCat(
        "items[", index, "].table is empty; use a Table from CreateTable or OpenTable"));
  }
  const std::string where = absl::StrCat("items[", index, "] for table `", table.name(), "`: ");
  if (table.dense()) {
    if (!keys.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, keys.size(), " keys; a dense table is pulled as a whole, without keys"));
    }
    if (floats != table.elements()) {
      return absl::InvalidArgumentError(absl::StrCat(where, field, " has ", floats,
                                                     " floats; the tensor has ", table.elements()));
    }
    return absl::OkStatus();
  }
  if (table.row_width() == 0 || table.row_width() > kMaxRowWidth) {
    return absl::InvalidArgumentError(absl::StrCat(where, "row_width is ", table.row_width(),
                                                   "; it must be 1 to ", kMaxRowWidth));
  }
  if (keys.size() > kMaxKeysInItem) {
    return absl::InvalidArgumentError(absl::StrCat(where, keys.size(), " keys; the limit is ",
                                                   kMaxKeysInItem, "; make several calls"));
  }
  if (floats != keys.size() * table.row_width()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, field, " has ", floats, " floats; ", keys.size(), " keys of width ",
                     table.row_width(), " take ", keys.size() * table.row_width()));
  }
  return absl::OkStatus();
}

// Checks a push of some blocks of a dense table.
absl::Status CheckBlocks(size_t index, const Table& table, absl::Span<const uint64_t> blocks,
                         size_t floats, absl::string_view field) {
  const std::string where = absl::StrCat("items[", index, "] for table `", table.name(), "`: ");
  size_t elements = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] >= BlockCount(table.elements())) {
      return absl::InvalidArgumentError(absl::StrCat(where, "the tensor has ",
                                                     BlockCount(table.elements()),
                                                     " blocks; it has no block ", blocks[i]));
    }
    if (i > 0 && blocks[i] <= blocks[i - 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "blocks must ascend; ", blocks[i], " follows ", blocks[i - 1]));
    }
    elements += BlockElements(table.elements(), blocks[i]);
  }
  if (floats == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, field, " has ", floats, " floats; the blocks have ", elements));
}

// Checks the slots of some rows or blocks. REQUIRES: the rest of the item is valid.
absl::Status CheckSlots(size_t index, const Table& table, absl::Span<const uint64_t> keys,
                        size_t floats) {
  uint64_t needed = keys.size() * table.SlotFloats(table.row_width());
  if (table.dense()) {
    needed = 0;
    const size_t blocks = keys.empty() ? BlockCount(table.elements()) : keys.size();
    for (size_t i = 0; i < blocks; ++i) {
      needed += table.SlotFloats(BlockElements(table.elements(), keys.empty() ? i : keys[i]));
    }
  }
  if (floats == needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("items[", index, "] for table `", table.name(), "`: slots has ", floats,
                   " floats; the slots of its optimizer take ", needed));
}

absl::Status CheckDistinct(size_t index, const Table& table, absl::Span<const uint64_t> keys) {
  absl::flat_hash_set<uint64_t> seen;
  seen.reserve(keys.size());
  for (const uint64_t key : keys) {
    if (seen.insert(key).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("items[", index, "] for table `", table.name(),
                                                   "`: key ", key,
                                                   " is repeated; an assignment sets a row once"));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(size_t items) {
  if (items <= kMaxItemsInCall) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(items, " items in one call; the limit is ",
                                                 kMaxItemsInCall, "; make several calls"));
}

}  // namespace

absl::Status CheckItems(absl::Span<const PushItem> items) {
  PAWL_RETURN_IF_ERROR(CheckCount(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const PushItem& item = items[i];
    if (!IsElementType(item.element_type)) {
      return absl::InvalidArgumentError(absl::StrCat("items[", i, "].element_type is ",
                                                     static_cast<int>(item.element_type),
                                                     "; it must be FLOAT32, BFLOAT16 or FLOAT16"));
    }
    if (item.table && item.table.dense() && !item.keys.empty()) {
      PAWL_RETURN_IF_ERROR(
          CheckBlocks(i, item.table, item.keys, item.gradients.size(), "gradients"));
    } else {
      PAWL_RETURN_IF_ERROR(CheckItem(i, item.table, item.keys, item.gradients.size(), "gradients"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckItems(absl::Span<const AssignItem> items) {
  PAWL_RETURN_IF_ERROR(CheckCount(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const AssignItem& item = items[i];
    if (item.table && item.table.dense() && !item.keys.empty()) {
      PAWL_RETURN_IF_ERROR(CheckBlocks(i, item.table, item.keys, item.values.size(), "values"));
    } else {
      PAWL_RETURN_IF_ERROR(CheckItem(i, item.table, item.keys, item.values.size(), "values"));
      if (!item.keys_are_distinct) PAWL_RETURN_IF_ERROR(CheckDistinct(i, item.table, item.keys));
    }
    if (item.slots.empty()) continue;
    PAWL_RETURN_IF_ERROR(CheckSlots(i, item.table, item.keys, item.slots.size()));
    if (item.keep_slots) {
      return absl::InvalidArgumentError(absl::StrCat("items[", i, "] for table `",
                                                     item.table.name(),
                                                     "`: slots are given, and keep_slots is set"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckItems(absl::Span<const LearningRateItem> items) {
  PAWL_RETURN_IF_ERROR(CheckCount(items.size()));
  if (items.empty()) return absl::InvalidArgumentError("no learning rates are given");
  absl::flat_hash_set<uint32_t> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    const Table& table = items[i].table;
    if (!table) {
      return absl::InvalidArgumentError(
          absl::StrCat("items[", i, "].table is empty; use a Table from CreateTable or OpenTable"));
    }
    const std::string where = absl::StrCat("items[", i, "] for table `", table.name(), "`: ");
    const float rate = items[i].learning_rate;
    if (!std::isfinite(rate) || rate <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "learning_rate is ", rate, "; it must be finite and above 0"));
    }
    if (table.spec().optimizer().has_assign())
      return absl::InvalidArgumentError(absl::StrCat(where, "its optimizer has no learning rate"));
    if (!seen.insert(table.id()).second)
      return absl::InvalidArgumentError(absl::StrCat(where, "the table is repeated"));
  }
  return absl::OkStatus();
}

absl::Status CheckItems(absl::Span<const PullItem> items) {
  PAWL_RETURN_IF_ERROR(CheckCount(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const PullItem& item = items[i];
    PAWL_RETURN_IF_ERROR(CheckItem(i, item.table, item.keys, item.values.size(), "values"));
    if (!item.slots.empty())
      PAWL_RETURN_IF_ERROR(CheckSlots(i, item.table, item.keys, item.slots.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckItem(const ScanItem& item, uint32_t partitions) {
  const Table& table = item.table;
  if (table && table.dense()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table `", table.name(), "` is dense; pull it instead of scanning it"));
  }
  PAWL_RETURN_IF_ERROR(CheckItem(0, table, item.keys, item.values.size(), "values"));
  const std::string where = absl::StrCat("the scan of table `", table.name(), "`: ");
  if (item.partition >= partitions) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "partition ", item.partition, "; the job has 0 to ", partitions - 1));
  }
  if (item.keys.empty())
    return absl::InvalidArgumentError(absl::StrCat(where, "keys has no room for a row"));
  if (item.slots.empty()) return absl::OkStatus();
  return CheckSlots(0, table, item.keys, item.slots.size());
}

}  // namespace pawl
