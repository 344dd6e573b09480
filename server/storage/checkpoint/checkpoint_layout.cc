#include "server/storage/checkpoint/checkpoint_layout.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace pawl {
namespace {

constexpr absl::string_view kStepMark = "-step-";
constexpr size_t kStepDigits = 20;
constexpr absl::string_view kEndMark = "-end";

}  // namespace

std::string FormatCheckpointName(absl::string_view job_name, CheckpointTime time) {
  return absl::StrFormat("%s%s%020d%s", job_name, kStepMark, time.step,
                         time.is_final ? kEndMark : "");
}

std::optional<CheckpointName> ParseCheckpointName(absl::string_view name) {
  absl::string_view before = name;
  CheckpointName parsed;
  parsed.time.is_final = absl::ConsumeSuffix(&before, kEndMark);
  const size_t tail = kStepMark.size() + kStepDigits;
  if (before.size() <= tail) return std::nullopt;
  parsed.job_name = std::string(before.substr(0, before.size() - tail));
  if (!absl::SimpleAtoi(before.substr(before.size() - kStepDigits), &parsed.time.step) ||
      name != FormatCheckpointName(parsed.job_name, parsed.time)) {
    return std::nullopt;
  }
  return parsed;
}

}  // namespace pawl
