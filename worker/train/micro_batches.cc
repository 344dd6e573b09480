#include "worker/train/micro_batches.h"

#include <algorithm>

#include "client_lib/base/status_macros.h"
#include "worker/data/batch.h"
#include "worker/data/sampler.h"

namespace pawl {

absl::StatusOr<LossSum> MicroBatches::ComputeGradients(
    TrainingModel& model, const Batch& batch, absl::Span<const absl::Span<const float>> parameters,
    float gradient_scale, absl::Span<const absl::Span<float>> gradients,
    const GradientHooks& hooks) {
  const uint32_t parts = std::min(std::max(parts_, 1u), batch.samples);
  if (parts <= 1)
    return model.ComputeGradients(batch, parameters, gradient_scale, gradients, hooks);

  values_.resize(gradients.size());
  std::vector<absl::Span<float>> of_part;
  for (size_t t = 0; t < gradients.size(); ++t) {
    values_[t].resize(gradients[t].size());
    of_part.push_back(absl::MakeSpan(values_[t]));
  }
  LossSum loss;
  for (uint32_t part = 0; part < parts; ++part) {
    SliceBatch(batch, ShareOf(batch.samples, part, parts), &part_);
    const auto add = [&](size_t table) {
      if (part > 0) {
        for (size_t i = 0; i < gradients[table].size(); ++i)
          gradients[table][i] += values_[table][i];
      }
      if (part + 1 == parts && hooks.sink) hooks.sink(table);
    };
    PAWL_ASSIGN_OR_RETURN(
        const LossSum result,
        model.ComputeGradients(part_, parameters, gradient_scale,
                               part == 0 ? gradients : absl::MakeConstSpan(of_part),
                               {.sink = add, .gate = hooks.gate, .try_gate = hooks.try_gate}));
    loss.loss_sum += result.loss_sum;
    loss.samples += result.samples;
    loss.loss_scale = part == 0 ? result.loss_scale : std::min(loss.loss_scale, result.loss_scale);
  }
  return loss;
}

}  // namespace pawl
