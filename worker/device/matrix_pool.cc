#include "worker/device/matrix_pool.h"

#include <algorithm>

#include "client_lib/base/status_macros.h"

namespace pawl {

absl::StatusOr<Matrix> MatrixPool::Take(size_t rows, size_t columns) {
  // Empty matrices also need distinct addresses.
  const size_t floats = std::max<size_t>(rows * columns, 1);
  auto best = free_.end();
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    if (piece->floats >= floats && (best == free_.end() || piece->floats < best->floats))
      best = piece;
  }
  Piece piece;
  if (best != free_.end()) {
    piece = *best;
    free_.erase(best);
  } else {
    PAWL_ASSIGN_OR_RETURN(float* const data, workspace_.Allocate<float>(floats));
    piece = {data, floats};
  }
  taken_.push_back(piece);
  return Matrix{piece.data, rows, columns, columns};
}

void MatrixPool::GiveBack(const Matrix& matrix) {
  const auto piece = std::find_if(taken_.begin(), taken_.end(),
                                  [&](const Piece& p) { return p.data == matrix.data; });
  if (piece == taken_.end()) return;
  free_.push_back(*piece);
  taken_.erase(piece);
}

void MatrixPool::Reset() {
  free_.clear();
  taken_.clear();
}

}  // namespace pawl
