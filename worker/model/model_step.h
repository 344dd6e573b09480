// The inputs of a model: the shape of its data, and one batch in device memory.
#ifndef PAWL_WORKER_MODEL_MODEL_STEP_H_
#define PAWL_WORKER_MODEL_MODEL_STEP_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/job/field_layout.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/device/matrix_pool.h"
#include "worker/device/workspace.h"

namespace pawl {

// Known of the data before the first batch.
struct ModelInputs {
  DataShape shape;
  FieldLayout layout;
};

// The inputs of a network: the batch, the parameters and the memory for the gradients, all in
// device memory, and the stream and workspace to use. Lives for one step.
struct ModelStep {
  ModelStep(Stream& stream, Workspace& workspace, MatrixPool& pool,
            const std::vector<bool>& recomputes)
      : stream(stream), workspace(workspace), pool(pool), recomputes(recomputes) {}

  Stream& stream;
  Workspace& workspace;
  // For memory that a part of the step needs; all of it is used on `stream`.
  MatrixPool& pool;

  size_t samples = 0;
  // By field set.
  std::vector<Entries> field_sets;
  // By field set; empty for one whose entries are summed.
  std::vector<EntryList> entry_lists;
  ConstMatrix numerics;  // [samples, numeric_count]

  // By table: the whole tensor, or rows[keys, width]. Gradients exist only in training.
  std::vector<const float*> parameters;
  std::vector<float*> gradients;
  // Called in the forward pass before the first operation that reads a table's parameters is
  // enqueued, because they may arrive during the pass. If it fails, the step ends later with that
  // error, and reads undefined values until then.
  std::function<void(size_t table)> await;
  // Called once for each table when the last operation on its gradient has been enqueued.
  std::function<void(size_t table)> finish;

  // By the table of a layer's weights: whether the layer's output is recomputed in the backward
  // pass.
  const std::vector<bool>& recomputes;
  // Matrix products round their factors to this type.
  Factors factors = Factors::kFloat32;

  void Gemm(Transpose transpose_a, Transpose transpose_b, float alpha, ConstMatrix a, ConstMatrix b,
            float beta, Matrix c) {
    stream.Gemm(factors, transpose_a, transpose_b, alpha, a, b, beta, c);
  }

  // Lives until the end of the step.
  absl::StatusOr<Matrix> Allocate(size_t columns) {
    return workspace.AllocateMatrix(samples, columns);
  }
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_MODEL_STEP_H_
