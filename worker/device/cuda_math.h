// How a GPU multiplies float32 matrices.
#ifndef PAWL_WORKER_DEVICE_CUDA_MATH_H_
#define PAWL_WORKER_DEVICE_CUDA_MATH_H_

namespace pawl {

enum class CudaMath {
  // In float32, with 24 bits of mantissa throughout.
  kFloat32,
  // On the tensor cores, which round the factors to TF32 (11 bits of mantissa) and add in float32;
  // several times faster.
  kTf32,
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_MATH_H_
