#include "client_lib/session/check_items.h"

#include <string>

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
                         size_t floats) {
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
      absl::StrCat(where, "gradients has ", floats, " floats; the blocks have ", elements));
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
      PAWL_RETURN_IF_ERROR(CheckBlocks(i, item.table, item.keys, item.gradients.size()));
    } else {
      PAWL_RETURN_IF_ERROR(CheckItem(i, item.table, item.keys, item.gradients.size(), "gradients"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckItems(absl::Span<const PullItem> items) {
  PAWL_RETURN_IF_ERROR(CheckCount(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    PAWL_RETURN_IF_ERROR(
        CheckItem(i, items[i].table, items[i].keys, items[i].values.size(), "values"));
  }
  return absl::OkStatus();
}

}  // namespace pawl
