#include "worker/device/matrix_pool.h"

#include "gtest/gtest.h"
#include "worker/device/cpu/device.h"

namespace pawl {
namespace {

class MatrixPoolTest : public ::testing::Test {
 protected:
  Matrix Take(size_t rows, size_t columns) {
    const absl::StatusOr<Matrix> matrix = pool_.Take(rows, columns);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_EQ(matrix->rows, rows);
    EXPECT_EQ(matrix->columns, columns);
    EXPECT_EQ(matrix->stride, columns);
    return *matrix;
  }

  CpuDevice device_;
  Workspace workspace_{device_, 1 << 20};
  MatrixPool pool_{workspace_};
};

TEST_F(MatrixPoolTest, TakenMatricesAreDistinct) {
  const Matrix a = Take(10, 10), b = Take(10, 10), none = Take(0, 7), no_columns = Take(7, 0);
  EXPECT_GE(b.data, a.data + 100);
  EXPECT_NE(none.data, no_columns.data);
}

TEST_F(MatrixPoolTest, SmallestSufficientMatrixIsReused) {
  const Matrix large = Take(100, 10), small = Take(10, 10), middle = Take(20, 10);
  for (const Matrix& matrix : {large, small, middle}) pool_.GiveBack(matrix);
  const size_t peak = workspace_.peak_bytes();
  EXPECT_EQ(Take(5, 30).data, middle.data);
  EXPECT_EQ(Take(5, 30).data, large.data);
  EXPECT_EQ(Take(1, 1).data, small.data);
  EXPECT_EQ(workspace_.peak_bytes(), peak);
  // None is left.
  EXPECT_NE(Take(1, 1).data, small.data);
  EXPECT_GT(workspace_.peak_bytes(), peak);
}

TEST_F(MatrixPoolTest, ResetWithTheWorkspaceStartsAfresh) {
  const Matrix first = Take(10, 10);
  pool_.GiveBack(first);
  pool_.Reset();
  workspace_.Reset();
  ASSERT_TRUE(workspace_.Allocate<float>(50).ok());
  EXPECT_NE(Take(10, 10).data, first.data);
  EXPECT_EQ(pool_.Take(1000, 1000).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pawl
