#include "server/optimizer/math/finite.h"
#include "worker/device/cpu/stream.h"

namespace pawl {

void CpuStream::FindNotFinite(size_t count, const float* x, float* found) {
  *found = AllFinite(x, count) ? 0.0f : 1.0f;
}

void CpuStream::Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
                       absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
                       float* slots) {
  for (const UpdatedRow& row : rows) {
    rule.Apply(position, scale, gradients + row.begin, row.count, 0, row.count, weights + row.begin,
               slots + row.slots_begin);
  }
}

}  // namespace pawl
