// Matrices that only a part of a step needs.
#ifndef PAWL_WORKER_DEVICE_MATRIX_POOL_H_
#define PAWL_WORKER_DEVICE_MATRIX_POOL_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/operands.h"
#include "worker/device/workspace.h"

namespace pawl {

// Hands out memory of a workspace, and reuses returned memory. Operations enqueued earlier may
// still use returned memory, so all operations on matrices of a pool must be on one stream. Not
// thread-safe.
class MatrixPool {
 public:
  // `workspace` outlives it.
  explicit MatrixPool(Workspace& workspace) : workspace_(workspace) {}
  MatrixPool(const MatrixPool&) = delete;
  MatrixPool& operator=(const MatrixPool&) = delete;

  // An uninitialized matrix with stride `columns`. The address and the size of the memory depend
  // only on the calls since Reset. Errors as Workspace's.
  absl::StatusOr<Matrix> Take(size_t rows, size_t columns);
  // REQUIRES: the matrix is from Take since Reset, and was not returned yet.
  void GiveBack(const Matrix& matrix);
  // Called together with the workspace's Reset.
  void Reset();

 private:
  struct Piece {
    float* data;
    size_t floats;
  };

  Workspace& workspace_;
  // A few: at most as many as a model has layers.
  std::vector<Piece> free_;
  std::vector<Piece> taken_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_MATRIX_POOL_H_
