#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/status.h"
#include "worker/device/cuda/stream.h"

namespace pawl {
namespace {

// For row-major matrices, which look transposed to cuBLAS, whose matrices are column-major.
cublasOperation_t OperationOf(Transpose transpose) {
  return transpose == Transpose::kNo ? CUBLAS_OP_N : CUBLAS_OP_T;
}

}  // namespace

absl::Status CudaStream::InitializeGemm() {
  PAWL_RETURN_IF_ERROR(StatusOf(cublasCreate(&gemm_), Where()));
  // Setting the stream resets the workspace, so it comes first. With a workspace of its own the
  // bits do not depend on other streams.
  PAWL_RETURN_IF_ERROR(StatusOf(cublasSetStream(gemm_, stream_), Where()));
  PAWL_RETURN_IF_ERROR(StatusOf(
      cudaMallocFromPoolAsync(&gemm_workspace_, kGemmWorkspaceBytes, options_.pool, stream_),
      Where()));
  PAWL_RETURN_IF_ERROR(
      StatusOf(cublasSetWorkspace(gemm_, gemm_workspace_, kGemmWorkspaceBytes), Where()));
  PAWL_RETURN_IF_ERROR(StatusOf(cublasSetAtomicsMode(gemm_, CUBLAS_ATOMICS_NOT_ALLOWED), Where()));
  // The default keeps float32 throughout; TF32 multiplies with 10 bits of mantissa.
  return StatusOf(
      cublasSetMathMode(gemm_, options_.math == CudaMath::kTf32 ? CUBLAS_TF32_TENSOR_OP_MATH
                                                                : CUBLAS_DEFAULT_MATH),
      Where());
}

void CudaStream::Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
                      ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  if (!Begin("Gemm") || c.rows == 0 || c.columns == 0) return;
  const size_t inner = transpose_a == Transpose::kNo ? a.columns : a.rows;
  if (inner == 0) {
    cuda::ScaleRows(queue(), beta, c);
    return Launched();
  }
  // For 16-bit factors the strides are those of rounded rows.
  const size_t largest = std::max({inner, c.rows, c.columns, a.stride, b.stride, c.stride,
                                   cuda::HalfStride(a.columns), cuda::HalfStride(b.columns)});
  if (largest > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return Fail(absl::ResourceExhaustedError(
        absl::StrCat(Where(), ": a matrix with ", largest, " rows or columns")));
  }
  if (gemm_ == nullptr && !Check(InitializeGemm())) return;
  if (factors != Factors::kFloat32)
    return GemmOf16Bits(factors, transpose_a, transpose_b, alpha, a, b, beta, c, inner);
  // The transpose of c is the product of the transposes of b and a.
  Check(cublasSgemm(gemm_, OperationOf(transpose_b), OperationOf(transpose_a),
                    static_cast<int>(c.columns), static_cast<int>(c.rows), static_cast<int>(inner),
                    &alpha, b.data, static_cast<int>(b.stride), a.data, static_cast<int>(a.stride),
                    &beta, c.data, static_cast<int>(c.stride)));
}

void CudaStream::GemmOf16Bits(Factors factors, Transpose transpose_a, Transpose transpose_b,
                              float alpha, ConstMatrix a, ConstMatrix b, float beta, Matrix c,
                              size_t inner) {
  // Rows start at multiples of 16 bytes, as the tensor cores require.
  const size_t a_stride = cuda::HalfStride(a.columns), b_stride = cuda::HalfStride(b.columns);
  const size_t a_halves = a.rows * a_stride;
  const Scratch scratch(*this, (a_halves + b.rows * b_stride) * sizeof(uint16_t));
  if (!scratch.ok()) return;
  uint16_t* const a_data = static_cast<uint16_t*>(scratch.data());
  uint16_t* const b_data = a_data + a_halves;
  cuda::RoundRows(queue(), factors, a, a_data, a_stride);
  cuda::RoundRows(queue(), factors, b, b_data, b_stride);
  Launched();
  const cudaDataType_t type = factors == Factors::kBfloat16 ? CUDA_R_16BF : CUDA_R_16F;
  Check(cublasGemmEx(gemm_, OperationOf(transpose_b), OperationOf(transpose_a),
                     static_cast<int>(c.columns), static_cast<int>(c.rows), static_cast<int>(inner),
                     &alpha, b_data, type, static_cast<int>(b_stride), a_data, type,
                     static_cast<int>(a_stride), &beta, c.data, CUDA_R_32F,
                     static_cast<int>(c.stride), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

void CudaStream::Copy(ConstMatrix from, Write write, Matrix to) {
  if (!Begin("Copy")) return;
  cuda::CopyRows(queue(), from, write, to);
  Launched();
}

void CudaStream::AddBias(const float* bias, Matrix x) {
  if (!Begin("AddBias")) return;
  cuda::AddBias(queue(), bias, x);
  Launched();
}

void CudaStream::SumColumns(ConstMatrix x, float* sums) {
  if (!Begin("SumColumns")) return;
  const Scratch scratch(*this, cuda::SumColumnsScratch(x.rows, x.columns) * sizeof(float));
  if (!scratch.ok()) return;
  cuda::SumColumns(queue(), x, static_cast<float*>(scratch.data()), sums);
  Launched();
}

}  // namespace pawl
