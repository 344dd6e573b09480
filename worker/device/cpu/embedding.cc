#include "worker/device/cpu/stream.h"

namespace pawl {

void CpuStream::PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) {
  loops_.pool_rows(entries, over, rows, pooled);
}

void CpuStream::PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                                 Matrix rows_gradient) {
  loops_.pool_rows_backward(entries, over, pooled_gradient, rows_gradient);
}

}  // namespace pawl
