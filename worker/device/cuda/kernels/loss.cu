#include "worker/device/cuda/kernels/launch.h"

namespace pawl::cuda {
namespace {

// The sum over a block's threads, for thread 0: pairs of threads, halving their number.
__device__ inline double SumOverBlock(double value) {
  __shared__ double sums[kThreads];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  sums[thread] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  return sums[0];
}

__device__ inline double WeightOf(const float* weights, size_t s) {
  return weights == nullptr ? 1.0 : weights[s];
}

__device__ inline double LossOf(double z, bool positive, double gradient_scale, float* gradient) {
  // exp of a non-positive number does not overflow.
  const double e = exp(-fabs(z));
  const double probability = (z < 0 ? e : 1.0) / (1.0 + e);
  *gradient = static_cast<float>(gradient_scale * (probability - (positive ? 1.0 : 0.0)));
  const double signed_z = positive ? -z : z;
  // NaN propagates.
  return log1p(e) + (signed_z < 0 ? 0.0 : signed_z);
}

struct LogisticOf {
  const float* logits;
  const float* labels;
  const float* weights;
  float gradient_scale;
  float* gradients;
  __device__ double operator()(size_t s) const {
    const double weight = WeightOf(weights, s);
    return weight * LossOf(logits[s], labels[s] > 0, gradient_scale * weight, gradients + s);
  }
};

struct SquaredOf {
  const float* predictions;
  const float* labels;
  const float* weights;
  float gradient_scale;
  float* gradients;
  __device__ double operator()(size_t s) const {
    const double weight = WeightOf(weights, s);
    const double error = static_cast<double>(predictions[s]) - labels[s];
    gradients[s] = static_cast<float>(gradient_scale * weight * error);
    return weight * (error * error / 2);
  }
};

struct PartOf {
  const double* parts;
  __device__ double operator()(size_t i) const { return parts[i]; }
};

// parts[block] = the sum of f over the samples of the block.
template <typename F>
__global__ void __launch_bounds__(kThreads) SumKernel(size_t samples, F f, double* parts) {
  double sum = 0;
  for (size_t s = size_t{blockIdx.x} * kThreads + threadIdx.x; s < samples;
       s += size_t{gridDim.x} * kThreads)
    sum += f(s);
  const double total = SumOverBlock(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

// Up to 32 threads of a warp for each sample. Threads without a sample take part in the warp's
// collective operations.
__global__ void __launch_bounds__(kThreads)
    SoftmaxKernel(size_t samples, uint32_t classes, const float* __restrict__ logits, size_t stride,
                  const float* __restrict__ labels, const float* __restrict__ weights,
                  float gradient_scale, float* __restrict__ gradients, size_t gradients_stride,
                  double* __restrict__ parts) {
  double sum = 0;
  for (size_t first = size_t{blockIdx.x} * blockDim.y; first < samples;
       first += size_t{gridDim.x} * blockDim.y) {
    const size_t s = first + threadIdx.y;
    const uint32_t count = s < samples ? classes : 0;
    const float* const z = logits + s * stride;
    float largest = -INFINITY;
    for (uint32_t c = threadIdx.x; c < count; c += blockDim.x) largest = fmaxf(largest, z[c]);
    for (unsigned distance = blockDim.x / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    }
    double normalizer = 0;
    for (uint32_t c = threadIdx.x; c < count; c += blockDim.x)
      normalizer += exp(static_cast<double>(z[c]) - largest);
    normalizer = SumOverLanes(normalizer, blockDim.x);
    if (count == 0) continue;
    const auto label = static_cast<uint32_t>(labels[s]);
    const double weight = WeightOf(weights, s);
    for (uint32_t c = threadIdx.x; c < count; c += blockDim.x) {
      const double probability = exp(static_cast<double>(z[c]) - largest) / normalizer;
      gradients[s * gradients_stride + c] =
          static_cast<float>(gradient_scale * weight * (probability - (c == label ? 1.0 : 0.0)));
    }
    if (threadIdx.x == 0)
      sum += weight * (log(normalizer) - (static_cast<double>(z[label]) - largest));
  }
  const double total = SumOverBlock(sum);
  if (threadIdx.x == 0 && threadIdx.y == 0) parts[blockIdx.x] = total;
}

// The number of blocks that sum a loss depends only on the number of samples, and so does the order
// of the sum.
constexpr size_t kMaxParts = 1024;
// Minimum number of samples per block: a warp for each.
constexpr size_t kMinSamplesInPart = kThreads / kWarp;

unsigned Parts(size_t samples, size_t samples_in_part) {
  return static_cast<unsigned>(AtLeast(AtMost(DivideUp(samples, samples_in_part), kMaxParts), 1));
}

void SumParts(const Queue& queue, unsigned parts, const double* scratch, double* loss_sum) {
  Launch(queue, dim3(1), dim3(kThreads), 0, SumKernel<PartOf>, size_t{parts}, PartOf{scratch},
         loss_sum);
}

template <typename F>
void SumSamples(const Queue& queue, size_t samples, F f, double* scratch, double* loss_sum) {
  const unsigned parts = Parts(samples, kThreads);
  Launch(queue, dim3(parts), dim3(kThreads), 0, SumKernel<F>, samples, f, scratch);
  SumParts(queue, parts, scratch, loss_sum);
}

}  // namespace

size_t LossScratch(size_t samples) { return Parts(samples, kMinSamplesInPart); }

void LogisticLoss(const Queue& queue, size_t samples, const float* logits, const float* labels,
                  const float* weights, float gradient_scale, float* gradients, double* scratch,
                  double* loss_sum) {
  SumSamples(queue, samples, LogisticOf{logits, labels, weights, gradient_scale, gradients},
             scratch, loss_sum);
}

void SquaredLoss(const Queue& queue, size_t samples, const float* predictions, const float* labels,
                 const float* weights, float gradient_scale, float* gradients, double* scratch,
                 double* loss_sum) {
  SumSamples(queue, samples, SquaredOf{predictions, labels, weights, gradient_scale, gradients},
             scratch, loss_sum);
}

void SoftmaxLoss(const Queue& queue, ConstMatrix logits, const float* labels, const float* weights,
                 float gradient_scale, Matrix gradients, double* scratch, double* loss_sum) {
  const unsigned x = PowerOfTwo(logits.columns, kWarp);
  const unsigned y = kThreads / x;
  const unsigned parts = Parts(logits.rows, y);
  Launch(queue, dim3(parts), dim3(x, y, 1), 0, SoftmaxKernel, logits.rows,
         static_cast<uint32_t>(logits.columns), logits.data, logits.stride, labels, weights,
         gradient_scale, gradients.data, gradients.stride, scratch);
  SumParts(queue, parts, scratch, loss_sum);
}

}  // namespace pawl::cuda
