#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/stream.h"

namespace pawl {

void CudaStream::FindNotFinite(size_t count, const float* x, float* found) {
  if (!Begin("FindNotFinite")) return;
  if (!Check(cudaMemsetAsync(found, 0, sizeof(float), stream_))) return;
  cuda::FindNotFinite(queue(), count, x, found);
  Launched();
}

void CudaStream::Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
                        absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
                        float* slots) {
  if (!Begin("Update")) return;
  const UpdateFormula formula = rule.FormulaAt(position, scale);
  const Scratch scratch(*this, cuda::UpdateScratch(formula) * sizeof(float));
  if (!scratch.ok()) return;
  cuda::Update(queue(), formula, rows.data(), rows.size(), gradients,
               static_cast<float*>(scratch.data()), weights, slots);
  Launched();
}

}  // namespace pawl
