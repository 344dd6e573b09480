#include "worker/model/loss_function.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

LossFunction Make(Loss loss, uint32_t output_count = 1) {
  Model model;
  model.set_loss(loss);
  return LossFunction::Create(model, /*label_count=*/1, output_count).value();
}

bool Takes(const LossFunction& loss, float label) {
  Batch batch;
  batch.samples = 1;
  batch.labels = {label};
  return loss.CheckLabels(batch).ok();
}

TEST(LossFunctionTest, DefaultFollowsTheModel) {
  Model model;
  EXPECT_EQ(LossFunction::Create(model, /*label_count=*/1, 1)->kind(), LOGISTIC);
  EXPECT_EQ(LossFunction::Create(model, /*label_count=*/1, 3)->kind(), SOFTMAX_CROSS_ENTROPY);
  model.mutable_matrix_factorization();
  EXPECT_EQ(LossFunction::Create(model, /*label_count=*/1, 1)->kind(), SQUARED);
}

TEST(LossFunctionTest, LossThatDoesNotFitTheOutputsIsRefused) {
  Model model;
  for (const Loss loss : {LOGISTIC, SQUARED}) {
    model.set_loss(loss);
    EXPECT_FALSE(LossFunction::Create(model, /*label_count=*/1, 3).ok());
  }
  model.set_loss(SOFTMAX_CROSS_ENTROPY);
  EXPECT_FALSE(LossFunction::Create(model, /*label_count=*/1, 1).ok());
}

TEST(LossFunctionTest, SeveralLabelsNeedAnOutputEach) {
  Model model;
  EXPECT_EQ(LossFunction::Create(model, /*label_count=*/3, 3)->kind(), LOGISTIC);
  EXPECT_FALSE(LossFunction::Create(model, /*label_count=*/3, 1).ok());
  EXPECT_FALSE(LossFunction::Create(model, /*label_count=*/3, 4).ok());
  // Every label is checked.
  Batch batch;
  batch.samples = 2;
  batch.label_count = 3;
  batch.labels = {0, 1, 0, 1, 0, 2};
  const absl::Status status = LossFunction::Create(model, /*label_count=*/3, 3)->CheckLabels(batch);
  EXPECT_TRUE(absl::StartsWith(status.message(), "label of sample 1:")) << status;
}

TEST(LossFunctionTest, EachLabelIsJudgedByItsOwnOutput) {
  Batch batch;
  batch.samples = 2;
  batch.label_count = 2;
  batch.labels = {1, 0, 0, 0};
  const Predictions both =
      LossFunction::Create(Model(), /*label_count=*/2, 2)->Judge(batch, {2.0f, -1.0f, 0.5f, 3.0f});
  ASSERT_EQ(both.other_labels.size(), 1u);
  Batch second;
  second.samples = 2;
  second.labels = {0, 0};
  const Predictions alone = Make(LOGISTIC).Judge(second, {-1.0f, 3.0f});
  EXPECT_EQ(both.scores, (std::vector<float>{2.0f, 0.5f}));
  EXPECT_EQ(both.other_labels[0].scores, alone.scores);
  EXPECT_EQ(both.other_labels[0].probabilities, alone.probabilities);
  EXPECT_EQ(both.other_labels[0].sums.logloss_sum, alone.sums.logloss_sum);
  EXPECT_EQ(both.sums.correct, 1u);
  EXPECT_EQ(both.other_labels[0].sums.correct, 1u);
}

TEST(LossFunctionTest, EachLossAcceptsItsLabels) {
  for (const float label :
       {-1.0f, 0.0f, 1.0f, 2.0f, 3.0f, 0.5f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(Takes(Make(LOGISTIC), label), std::abs(label) == 1 || label == 0) << label;
    EXPECT_EQ(Takes(Make(SOFTMAX_CROSS_ENTROPY, 3), label), label == 0 || label == 1 || label == 2)
        << label;
    EXPECT_EQ(Takes(Make(SQUARED), label), std::isfinite(label)) << label;
  }
}

TEST(LossFunctionTest, SquaredErrorsAreAlsoSummedAbsolutely) {
  Batch batch;
  batch.samples = 3;
  batch.labels = {1, -2, 0.5f};
  const Predictions predictions = Make(SQUARED).Judge(batch, {3, -2.5f, 0.25f});
  EXPECT_EQ(predictions.sums.absolute_error_sum, 2 + 0.5 + 0.25);
  EXPECT_EQ(predictions.sums.squared_error_sum, 4 + 0.25 + 0.0625);
  EvaluationSums sums;
  sums += predictions.sums;
  sums += predictions.sums;
  EXPECT_EQ(sums.absolute_error_sum, 5.5);
}

TEST(LossFunctionTest, ErrorNamesTheFileWithTheLabels) {
  const LabelSummary labels = {.min = 0, .max = 2, .integers = true};
  EXPECT_TRUE(Make(SQUARED).CheckLabels(labels, "a file's labels").ok());
  EXPECT_TRUE(Make(SOFTMAX_CROSS_ENTROPY, 3).CheckLabels(labels, "a file's labels").ok());
  for (const LossFunction& loss : {Make(LOGISTIC), Make(SOFTMAX_CROSS_ENTROPY, 2)}) {
    const absl::Status status = loss.CheckLabels(labels, "a file's labels");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StartsWith(status.message(), "a file's labels go from 0 to 2; ")) << status;
  }
}

}  // namespace
}  // namespace pawl
