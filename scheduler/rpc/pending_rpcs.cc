#include "scheduler/rpc/pending_rpcs.h"

#include "absl/strings/str_cat.h"

namespace pawl {

absl::Status PendingRpcs::CheckRoom() const {
  const size_t pending =
      std::apply([](const auto&... calls) { return (calls.size() + ...); }, All());
  if (pending < kMaxPendingCalls) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(kMaxPendingCalls, " calls wait in the scheduler, the limit"));
}

void PendingRpcs::AnswerOne(Ticket ticket, const absl::Status& answer, DeferredActions& actions) {
  std::apply([&](auto&... calls) { (calls.AnswerOne(ticket, answer, actions), ...); }, All());
}

void PendingRpcs::AnswerAll(const absl::Status& answer, DeferredActions& actions) {
  std::apply([&](auto&... calls) { (calls.AnswerAll(answer, actions), ...); }, All());
}

}  // namespace pawl
