#include "scheduler/store/state_store.h"

#include "absl/strings/str_cat.h"

namespace pawl {

absl::Status StateStore::CheckState(uint64_t revision, absl::string_view state) {
  if (revision == 0)
    return absl::InvalidArgumentError("revision 0 stands for no state; start with 1");
  if (state.size() > kMaxStateBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the state of revision ", revision, " has ",
                                                   state.size(), " bytes, and at most ",
                                                   kMaxStateBytes, " are stored"));
  }
  return absl::OkStatus();
}

absl::Status StateStore::NotNewer(absl::string_view store, uint64_t revision,
                                  uint64_t stored_revision) {
  return absl::FailedPreconditionError(absl::StrCat(store, ": revision ", revision,
                                                    " is not newer than ", stored_revision,
                                                    ", the stored one; load that one first"));
}

}  // namespace pawl
