// Validation of the items of a call before anything is sent.
#ifndef PAWL_CLIENT_LIB_SESSION_CHECK_ITEMS_H_
#define PAWL_CLIENT_LIB_SESSION_CHECK_ITEMS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/client.h"

namespace pawl {

// INVALID_ARGUMENT, naming the item and the mistake in its table, its keys, or the length of its
// values or slots.
absl::Status CheckItems(absl::Span<const PushItem> items);
// Also checks that no key is repeated.
absl::Status CheckItems(absl::Span<const AssignItem> items);
absl::Status CheckItems(absl::Span<const LearningRateItem> items);
absl::Status CheckItems(absl::Span<const PullItem> items);
absl::Status CheckItem(const ScanItem& item, uint32_t partitions);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_CHECK_ITEMS_H_
