#include "worker/train/gradient_scale.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/job/consistency.h"

namespace pawl {

float GradientScale(ConsistencyMode mode, uint32_t logical_workers, uint64_t step_samples,
                    uint64_t rank_samples) {
  if (!IsSync(mode)) return static_cast<float>(1.0 / static_cast<double>(rank_samples));
  return static_cast<float>(static_cast<double>(logical_workers) /
                            static_cast<double>(step_samples));
}

void AddDelayCompensation(float lambda, absl::Span<const float> before, absl::Span<const float> now,
                          absl::Span<float> gradient) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i];
    gradient[i] = g + lambda * g * g * (now[i] - before[i]);
  }
}

std::optional<std::string> LossScaleWatch::OnStep(float scale) {
  if (silent_steps_ > 0) {
    --silent_steps_;
    return std::nullopt;
  }
  ++steps_;
  if (scale < scale_) {
    lowest_ = repeated_ == 0 ? scale : std::min(lowest_, scale);
    ++repeated_;
  }
  if (steps_ < kSteps) return std::nullopt;
  std::optional<std::string> line;
  if (repeated_ >= kOften) {
    line =
        absl::StrCat(repeated_, " of the last ", steps_,
                     " steps were computed again because their gradients were not finite ",
                     "in FLOAT16 with the loss times ", scale_, ", at worst with ", lowest_,
                     ": precision { loss_scale: ", lowest_, " } in the job file saves that time");
    silent_steps_ = next_silence_;
    next_silence_ *= 2;
  }
  steps_ = 0;
  repeated_ = 0;
  return line;
}

}  // namespace pawl
