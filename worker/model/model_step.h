// One pass of a model over one batch, in device memory.
#ifndef PAWL_WORKER_MODEL_MODEL_STEP_H_
#define PAWL_WORKER_MODEL_MODEL_STEP_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/device/matrix_pool.h"
#include "worker/device/workspace.h"

namespace pawl {

// What a network works on: the batch, the parameters and where the gradients go,
// all as device memory, and the stream and workspace to use. Lives for one step.
struct ModelStep {
  ModelStep(Stream& stream, Workspace& workspace, MatrixPool& pool,
            const std::vector<bool>& recomputes)
      : stream(stream), workspace(workspace), pool(pool), recomputes(recomputes) {}

  Stream& stream;
  Workspace& workspace;
  // For what a part of the step needs. Of `stream`.
  MatrixPool& pool;

  size_t samples = 0;
  Entries entries;
  ConstMatrix numerics;  // [samples, numeric_count]

  // By table: the whole tensor, or rows[keys, width]. Gradients are there only in training.
  std::vector<const float*> parameters;
  std::vector<float*> gradients;
  // To be called before the first operation that reads a table's parameters is given to the stream,
  // in the forward pass: they may come while that is under way. What it fails with ends the step
  // later; until then anything may be read.
  std::function<void(size_t table)> await;
  // To be called once for each table when the last operation on its gradient has been given to the
  // stream.
  std::function<void(size_t table)> finish;

  // By the table of their weights: whether a fully connected layer's output is computed again in
  // the backward pass.
  const std::vector<bool>& recomputes;
  // Products of matrices are made of factors of this type.
  Factors factors = Factors::kFloat32;

  void Gemm(Transpose transpose_a, Transpose transpose_b, float alpha, ConstMatrix a, ConstMatrix b,
            float beta, Matrix c) {
    stream.Gemm(factors, transpose_a, transpose_b, alpha, a, b, beta, c);
  }

  // For all of the step.
  absl::StatusOr<Matrix> Allocate(size_t columns) {
    return workspace.AllocateMatrix(samples, columns);
  }
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_MODEL_STEP_H_
