#include <type_traits>
#include <variant>

#include "worker/device/cuda/kernels/launch.h"

namespace pawl::cuda {
namespace {

// Rows per launch: they are kernel arguments, which hold 4 KiB.
constexpr size_t kRowsOfLaunch = 64;
struct Rows {
  UpdatedRow row[kRowsOfLaunch];
};

// The sums of a row use this many lanes on every hardware (server/optimizer/README.md).
constexpr unsigned kSumLanes = 16;
// Elements that a block keeps in shared memory at a time; a multiple of the lanes.
constexpr unsigned kTile = 2048;

// The factors of a row's elements, from the row's sums.
struct RowFactors {
  float clip;
  // The formula's rate, or one for the row if the formula has a slot for it.
  float rate;
};

// A stand-in for a formula without a slot for the row, so that RowKernel is the same for all.
struct NoRowSlot {
  static constexpr size_t kRowSlots = 0;
};

__global__ void __launch_bounds__(kThreads)
    FindNotFiniteKernel(size_t count, const float* __restrict__ x, float* found) {
  bool bad = false;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += size_t{gridDim.x} * kThreads) {
    // Inf and NaN minus themselves are NaN.
    bad |= !(x[i] - x[i] == 0.0f);
  }
  // All writers write the same value.
  if (bad) *found = 1.0f;
}

__global__ void __launch_bounds__(kThreads)
    AssignKernel(Rows rows, const float* __restrict__ gradients, float* __restrict__ weights) {
  const size_t begin = rows.row[blockIdx.y].begin, count = rows.row[blockIdx.y].count;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += size_t{gridDim.x} * kThreads) {
    weights[begin + i] = gradients[begin + i];
  }
}

// The sum of the squares of value(0) to value(count - 1), the same in all threads of the block:
// lane j of 16 sums elements j, j + 16, ... in order.
template <typename Value>
__device__ double SumOfSquares(size_t count, Value value) {
  __shared__ float tile[kTile];
  __shared__ double total;
  double sum = 0;
  for (size_t begin = 0; begin < count; begin += kTile) {
    const unsigned size = static_cast<unsigned>(count - begin < kTile ? count - begin : kTile);
    for (unsigned i = threadIdx.x; i < size; i += kThreads) tile[i] = value(begin + i);
    __syncthreads();
    if (threadIdx.x < kSumLanes) {
      for (unsigned i = threadIdx.x; i < size; i += kSumLanes) {
        const double x = tile[i];
        sum += x * x;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x < kWarp) {
    sum = SumOverLanes(sum, kSumLanes);
    if (threadIdx.x == 0) total = sum;
  }
  __syncthreads();
  return total;
}

// Block r computes factors[r] of row r and updates the row's own slot, if it has one.
template <typename F, GradientMode kMode>
__global__ void __launch_bounds__(kThreads)
    RowKernel(F formula, GradientPass pass, float clip_norm, Rows rows,
              const float* __restrict__ gradients, const float* __restrict__ weights,
              float* __restrict__ slots, RowFactors* __restrict__ factors) {
  const UpdatedRow row = rows.row[blockIdx.x];
  const float* const gradient = gradients + row.begin;
  const float* const weight = weights + row.begin;
  if (clip_norm > 0.0f) {
    const double norm = sqrt(SumOfSquares(
        row.count, [&](size_t i) { return Clipped<kMode, float>(pass, gradient[i]); }));
    const double limit = clip_norm;
    if (norm > limit) pass.factor = static_cast<float>(limit / norm);
  }
  RowFactors of_row = {pass.factor, 0};
  if constexpr (F::kRowSlots == 1) {
    const double sum = SumOfSquares(
        row.count, [&](size_t i) { return Prepared<kMode, float>(pass, gradient[i], weight[i]); });
    // For an empty row the quotient is NaN, as on the CPU.
    const float mean_square = static_cast<float>(sum / static_cast<double>(row.count));
    if (threadIdx.x == 0) {
      formula.BeginRow(mean_square, slots + row.slots_begin);
      of_row.rate = formula.factor;
    }
  }
  if (threadIdx.x == 0) factors[blockIdx.x] = of_row;
}

// factors: null if `pass` and `formula` give the same ones for all rows.
template <typename F, GradientMode kMode>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(F formula, GradientPass pass, Rows rows, const float* __restrict__ gradients,
                 const RowFactors* __restrict__ factors, float* __restrict__ weights,
                 float* __restrict__ slots) {
  const size_t begin = rows.row[blockIdx.y].begin, count = rows.row[blockIdx.y].count;
  const size_t slots_begin = rows.row[blockIdx.y].slots_begin;
  if (factors != nullptr) {
    pass.factor = factors[blockIdx.y].clip;
    if constexpr (F::kRowSlots == 1) formula.factor = factors[blockIdx.y].rate;
  }
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += size_t{gridDim.x} * kThreads) {
    float w = weights[begin + i];
    const float g = Prepared<kMode, float>(pass, gradients[begin + i], w);
    w = Decayed<kMode>(pass, w);
    if constexpr (F::kSlotArrays == 0) {
      formula.Element(g, w);
    } else if constexpr (F::kSlotArrays == 1) {
      float s = slots[slots_begin + i];
      formula.Element(g, w, s);
      slots[slots_begin + i] = s;
    } else {
      float s = slots[slots_begin + i], t = slots[slots_begin + count + i];
      formula.Element(g, w, s, t);
      slots[slots_begin + i] = s;
      slots[slots_begin + count + i] = t;
    }
    weights[begin + i] = w;
  }
}

// The rows of one launch, at most kRowsOfLaunch, and the number of blocks for the longest of them.
struct Launches {
  Rows rows = {};
  unsigned count = 0;
  unsigned blocks = 1;
};

template <typename F, GradientMode kMode>
void UpdateRows(const Queue& queue, const F& element, const UpdateFormula& formula,
                const Launches& launch, const float* gradients, float* scratch, float* weights,
                float* slots) {
  RowFactors* const factors = reinterpret_cast<RowFactors*>(scratch);
  const bool has_sums = UpdateScratch(formula) > 0;
  if (has_sums) {
    const auto row_formula = [&] {
      if constexpr (F::kRowSlots == 1) {
        return element;
      } else {
        return NoRowSlot();
      }
    }();
    Launch(queue, dim3(launch.count), dim3(kThreads), 0,
           RowKernel<std::decay_t<decltype(row_formula)>, kMode>, row_formula, formula.pass,
           formula.clip_norm, launch.rows, gradients, static_cast<const float*>(weights), slots,
           factors);
  }
  Launch(queue, dim3(launch.blocks, launch.count), dim3(kThreads), 0, UpdateKernel<F, kMode>,
         element, formula.pass, launch.rows, gradients,
         static_cast<const RowFactors*>(has_sums ? factors : nullptr), weights, slots);
}

}  // namespace

void FindNotFinite(const Queue& queue, size_t count, const float* x, float* found) {
  if (count == 0) return;
  Launch(queue, dim3(Blocks(queue, count, kThreads)), dim3(kThreads), 0, FindNotFiniteKernel, count,
         x, found);
}

size_t UpdateScratch(const UpdateFormula& formula) {
  const bool has_sums =
      formula.clip_norm > 0.0f || std::holds_alternative<RowWiseAdagradFormula>(formula.element);
  return has_sums ? kRowsOfLaunch * sizeof(RowFactors) / sizeof(float) : 0;
}

void Update(const Queue& queue, const UpdateFormula& formula, const UpdatedRow* rows,
            size_t row_count, const float* gradients, float* scratch, float* weights,
            float* slots) {
  for (size_t first = 0; first < row_count; first += kRowsOfLaunch) {
    Launches launch;
    launch.count = static_cast<unsigned>(AtMost(row_count - first, kRowsOfLaunch));
    size_t longest = 0;
    for (unsigned r = 0; r < launch.count; ++r) {
      launch.rows.row[r] = rows[first + r];
      longest = AtLeast(longest, launch.rows.row[r].count);
    }
    launch.blocks = Blocks(queue, longest, kThreads);
    std::visit(
        [&](const auto& element) {
          using F = std::decay_t<decltype(element)>;
          if constexpr (std::is_same_v<F, AssignFormula>) {
            Launch(queue, dim3(launch.blocks, launch.count), dim3(kThreads), 0, AssignKernel,
                   launch.rows, gradients, weights);
          } else {
            switch (formula.mode) {
              case GradientMode::kPlain:
                return UpdateRows<F, GradientMode::kPlain>(queue, element, formula, launch,
                                                           gradients, scratch, weights, slots);
              case GradientMode::kClipped:
                return UpdateRows<F, GradientMode::kClipped>(queue, element, formula, launch,
                                                             gradients, scratch, weights, slots);
              case GradientMode::kRegularized:
                return UpdateRows<F, GradientMode::kRegularized>(
                    queue, element, formula, launch, gradients, scratch, weights, slots);
            }
          }
        },
        formula.element);
  }
}

}  // namespace pawl::cuda
