// Matrices that are needed for a part of a step alone.
#ifndef PAWL_WORKER_DEVICE_MATRIX_POOL_H_
#define PAWL_WORKER_DEVICE_MATRIX_POOL_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/operands.h"
#include "worker/device/workspace.h"

namespace pawl {

// Hands out memory of a workspace, and again what was given back. What is given back may still be
// used by operations that a stream was given before: so all operations on matrices of a pool are
// given to one stream. Not thread-safe.
class MatrixPool {
 public:
  // `workspace` outlives it.
  explicit MatrixPool(Workspace& workspace) : workspace_(workspace) {}
  MatrixPool(const MatrixPool&) = delete;
  MatrixPool& operator=(const MatrixPool&) = delete;

  // Uninitialised, of stride `columns`; where and how large the memory is depends on the calls
  // since Reset alone. Errors as Workspace's.
  absl::StatusOr<Matrix> Take(size_t rows, size_t columns);
  // REQUIRES: Take has made it since Reset, and it was not given back.
  void GiveBack(const Matrix& matrix);
  // To be called with the workspace's.
  void Reset();

 private:
  struct Piece {
    float* data;
    size_t floats;
  };

  Workspace& workspace_;
  // A few: as many as the layers of a model at most.
  std::vector<Piece> free_;
  std::vector<Piece> taken_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_MATRIX_POOL_H_
