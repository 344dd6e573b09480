#include "client_lib/base/table_validation.h"

#include <limits>
#include <string>

#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TableSpec SparseTable() {
  TableSpec table = SparseTableSpec("embedding/origin", 16);
  table.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.05f);
  return table;
}

TableSpec DenseTable() {
  TableSpec table = SparseTable();
  table.set_kind(DENSE);
  table.clear_row_width();
  table.add_shape(784);
  table.add_shape(256);
  return table;
}

// Expects INVALID_ARGUMENT with `text` in the message.
void ExpectRefused(const TableSpec& table, const std::string& text) {
  const absl::Status status = ValidateTableSpec(table);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
}

TEST(TableValidationTest, ValidTablesAreAccepted) {
  EXPECT_EQ(ValidateTableSpec(SparseTable()), absl::OkStatus());
  EXPECT_EQ(ValidateTableSpec(DenseTable()), absl::OkStatus());
}

TEST(TableValidationTest, AssignRefusesOtherSettings) {
  TableSpec table = DenseTable();
  table.mutable_optimizer()->mutable_assign();
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  table.mutable_optimizer()->set_clip_norm(1);
  ExpectRefused(table, "optimizer.clip_norm is 1; it must be 0 with assign");
  table.mutable_optimizer()->clear_clip_norm();
  table.mutable_optimizer()->mutable_schedule()->set_warmup_steps(3);
  ExpectRefused(table, "optimizer.schedule");
}

TEST(TableValidationTest, InvalidNamesAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string(129, 'x'), std::string("a\n")}) {
    TableSpec table = SparseTable();
    table.set_name(name);
    ExpectRefused(table, "table name");
  }
}

TEST(TableValidationTest, ShapeAndRowWidthMustFitTheKind) {
  TableSpec table = SparseTable();
  table.set_kind(TABLE_KIND_UNSPECIFIED);
  ExpectRefused(table, "kind");
  table = SparseTable();
  table.set_row_width(0);
  ExpectRefused(table, "row_width is 0");
  table.set_row_width(4097);
  ExpectRefused(table, "row_width is 4097");
  table = SparseTable();
  table.add_shape(3);
  ExpectRefused(table, "shape");
  table = DenseTable();
  table.set_row_width(3);
  ExpectRefused(table, "row_width is 3");
  table = DenseTable();
  table.clear_shape();
  ExpectRefused(table, "0 dimensions");
  for (int i = 0; i < 9; ++i) table.add_shape(1);
  ExpectRefused(table, "9 dimensions");
  table = DenseTable();
  table.add_shape(0);
  ExpectRefused(table, "shape has a 0");
}

TEST(TableValidationTest, ShapeThatOverflowsSixtyFourBitsIsRefused) {
  TableSpec table = DenseTable();
  table.clear_shape();
  for (int i = 0; i < 4; ++i) table.add_shape(uint64_t{1} << 16);
  ExpectRefused(table, "elements");
}

TEST(TableValidationTest, InvalidHyperParametersAreNamed) {
  TableSpec table = SparseTable();
  table.clear_optimizer();
  ExpectRefused(table, "optimizer has no kind");
  table = SparseTable();
  table.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0);
  ExpectRefused(table, "optimizer.adagrad.learning_rate is 0");
  table.mutable_optimizer()->mutable_adagrad()->set_learning_rate(
      std::numeric_limits<float>::quiet_NaN());
  ExpectRefused(table, "learning_rate is nan");
  table = SparseTable();
  table.mutable_optimizer()->mutable_adam()->set_learning_rate(0.1f);
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  table.mutable_optimizer()->mutable_adam()->set_beta1(1);
  ExpectRefused(table, "adam.beta1 is 1");
  table = SparseTable();
  table.mutable_optimizer()->set_clip_norm(-1);
  ExpectRefused(table, "clip_norm is -1");
  table = SparseTable();
  table.mutable_optimizer()->mutable_schedule()->mutable_cosine()->set_floor(0.5f);
  ExpectRefused(table, "cosine.total_steps is 0");
}

TEST(TableValidationTest, DivisionByZeroIsRefused) {
  TableSpec table = SparseTable();
  table.mutable_optimizer()->mutable_adagrad()->set_epsilon(0);
  ExpectRefused(table, "adagrad.epsilon is 0");
  table.mutable_optimizer()->mutable_rowwise_adagrad()->set_learning_rate(0.1f);
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  table.mutable_optimizer()->mutable_rowwise_adagrad()->set_epsilon(0);
  ExpectRefused(table, "rowwise_adagrad.epsilon is 0");
  Optimizer::Ftrl* ftrl = table.mutable_optimizer()->mutable_ftrl();
  ftrl->set_learning_rate(0.1f);
  ftrl->set_beta(0);
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  ftrl->set_initial_accumulator(0);
  ExpectRefused(table, "nothing to divide by");
  ftrl->set_l2(0.1f);
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
}

TEST(TableValidationTest, GrowingLearningRatesAreRefused) {
  TableSpec table = SparseTable();
  LearningRateSchedule::Step* step = table.mutable_optimizer()->mutable_schedule()->mutable_step();
  step->set_every_steps(10);
  step->set_gamma(1);
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  step->set_gamma(1.5f);
  ExpectRefused(table, "schedule.step.gamma is 1.5");
}

TEST(TableValidationTest, ImpossibleSchedulesAreRefused) {
  TableSpec table = SparseTable();
  LearningRateSchedule& schedule = *table.mutable_optimizer()->mutable_schedule();
  schedule.mutable_polynomial();
  ExpectRefused(table, "schedule.polynomial.total_steps is 0");
  schedule.mutable_polynomial()->set_total_steps(10);
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  schedule.mutable_polynomial()->set_power(-1);
  ExpectRefused(table, "schedule.polynomial.power is -1");
  schedule.mutable_cosine_restarts();
  ExpectRefused(table, "schedule.cosine_restarts.first_period_steps is 0");
  schedule.mutable_cosine_restarts()->set_first_period_steps(10);
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  schedule.mutable_cosine_restarts()->set_floor(2);
  ExpectRefused(table, "schedule.cosine_restarts.floor is 2");
}

TEST(TableValidationTest, FtrlRefusesTheGeneralPenalties) {
  TableSpec table = SparseTable();
  table.mutable_optimizer()->mutable_ftrl()->set_learning_rate(0.1f);
  table.mutable_optimizer()->set_l1(0.5f);
  ExpectRefused(table, "set ftrl.l1");
}

TEST(TableValidationTest, InvalidInitializersAreNamed) {
  TableSpec table = SparseTable();
  table.mutable_initializer()->set_zero_from(table.row_width());
  ExpectRefused(table, "initializer.zero_from");
  table = DenseTable();
  table.mutable_initializer()->set_zero_from(1);
  ExpectRefused(table, "initializer.zero_from");
  table = SparseTable();
  table.mutable_initializer()->mutable_uniform()->set_low(1);
  ExpectRefused(table, "uniform.high is 0");
  table.mutable_initializer()->mutable_uniform()->set_high(1);
  ExpectRefused(table, "uniform.high is 1; it must be above low, which is 1");
  table.mutable_initializer()->mutable_normal()->set_stddev(-1);
  ExpectRefused(table, "normal.stddev is -1");
  table.mutable_initializer()->mutable_normal()->set_stddev(1e38f);
  ExpectRefused(table, "mean + 7 stddev");
  table.mutable_initializer()->mutable_xavier()->set_gain(1e-40f);
  ExpectRefused(table, "xavier.gain");
  table = DenseTable();
  table.mutable_initializer()->mutable_xavier();
  EXPECT_EQ(ValidateTableSpec(table), absl::OkStatus());
  table.add_shape(3);
  ExpectRefused(table, "xavier.fan_in is 0");
}

}  // namespace
}  // namespace pawl
