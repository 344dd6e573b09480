#include "scheduler/parked_rpcs.h"

#include "absl/strings/str_cat.h"

namespace pawl {

absl::Status ParkedRpcs::CheckRoom() const {
  const size_t parked = std::apply([](const auto&... calls) { return (calls.size() + ...); }, All());
  if (parked < kMaxParkedCalls) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(kMaxParkedCalls, " calls wait in the scheduler, the limit"));
}

void ParkedRpcs::AnswerOne(Ticket ticket, const absl::Status& answer, DeferredActions& actions) {
  std::apply([&](auto&... calls) { (calls.AnswerOne(ticket, answer, actions), ...); }, All());
}

void ParkedRpcs::AnswerAll(const absl::Status& answer, DeferredActions& actions) {
  std::apply([&](auto&... calls) { (calls.AnswerAll(answer, actions), ...); }, All());
}

}  // namespace pawl
