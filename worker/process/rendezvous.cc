#include "worker/process/rendezvous.h"

#include "absl/strings/str_cat.h"

namespace pawl {

absl::Status Meet(Rendezvous& rendezvous, absl::string_view place, uint32_t logical_workers,
                  uint32_t rank, const Interrupt& leave) {
  absl::Status status;
  for (int attempt = 0; attempt < kMaxRendezvousAttempts; ++attempt) {
    // If a rank dies while it waits, the barrier fails for all. The survivors and its successor
    // meet again under the next name.
    auto all_there = rendezvous.Barrier(
        absl::StrCat(place, attempt == 0 ? "" : absl::StrCat("-again-", attempt)), logical_workers,
        rank);
    status = Await(all_there, kRendezvousTimeout + kLibraryGrace, leave,
                   absl::StrCat("barrier `", place, "`"));
    if (!absl::IsAborted(status)) break;
  }
  return status;
}

}  // namespace pawl
