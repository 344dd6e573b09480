#include "worker/model/loss_function.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

// Returns the loss, unless it does not fit the number of outputs.
absl::StatusOr<Loss> ChooseLoss(const Model& spec, uint32_t label_count, uint32_t output_count) {
  if (label_count > 1 && output_count != label_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data has ", label_count, " label columns, but the model has ", output_count,
        output_count == 1 ? " output" : " outputs", "; use mmoe, or keep one label column"));
  }
  const bool has_classes = output_count > label_count;
  switch (spec.loss()) {
    case LOSS_UNSPECIFIED:
      if (has_classes) return SOFTMAX_CROSS_ENTROPY;
      return spec.has_matrix_factorization() ? SQUARED : LOGISTIC;
    case LOGISTIC:
    case SQUARED:
      if (!has_classes) return spec.loss();
      return absl::InvalidArgumentError(
          absl::StrCat("model.loss: must be SOFTMAX_CROSS_ENTROPY for ", output_count,
                       " classes, is ", Loss_Name(spec.loss())));
    case SOFTMAX_CROSS_ENTROPY:
      if (has_classes) return spec.loss();
      return absl::InvalidArgumentError(
          "model.loss: SOFTMAX_CROSS_ENTROPY needs model.mlp with classes > 1");
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("model.loss: ", spec.loss(), " is not a loss"));
  }
}

}  // namespace

absl::StatusOr<LossFunction> LossFunction::Create(const Model& spec, uint32_t label_count,
                                                  uint32_t output_count) {
  PAWL_ASSIGN_OR_RETURN(const Loss kind, ChooseLoss(spec, label_count, output_count));
  return LossFunction(kind, label_count, output_count);
}

absl::Status LossFunction::CheckLabels(const Batch& batch) const {
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    const float label = batch.labels[i];
    const size_t s = i / label_count_;
    switch (kind_) {
      case LOGISTIC:
        if (label == 0 || label == 1 || label == -1) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("label of sample ", s, ": must be 0, 1 or -1 for LOGISTIC, is ", label,
                         "; use label { greater_than } of a CSV column"));
      case SOFTMAX_CROSS_ENTROPY:
        if (label >= 0 && label < output_count_ && label == std::floor(label)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("label of sample ", s, ": must be a class, a whole number from 0 to ",
                         output_count_ - 1, ", is ", label));
      default:
        if (std::isfinite(label)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("label of sample ", s, ": must be finite, is ", label));
    }
  }
  return absl::OkStatus();
}

absl::Status LossFunction::CheckLabels(const LabelSummary& labels,
                                       absl::string_view subject) const {
  const auto refuse = [&](absl::string_view wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject, " go from ", labels.min, " to ", labels.max,
                     labels.integers ? "; " : " and are not all whole numbers; ", wanted));
  };
  switch (kind_) {
    case LOGISTIC:
      if (labels.integers && labels.min >= -1 && labels.max <= 1) return absl::OkStatus();
      return refuse(
          "logistic loss takes 1 for yes and 0 or -1 for no: set label { greater_than } of the CSV "
          "column, or model.loss: SQUARED");
    case SOFTMAX_CROSS_ENTROPY:
      if (labels.integers && labels.min >= 0 && labels.max < static_cast<float>(output_count_))
        return absl::OkStatus();
      return refuse(
          absl::StrCat("model.mlp.classes allows the whole numbers from 0 to ", output_count_ - 1));
    default:
      return absl::OkStatus();
  }
}

void LossFunction::Enqueue(Stream& stream, Matrix outputs, const float* labels,
                           const float* weights, float gradient_scale, Matrix output_gradients,
                           double* loss_sum) const {
  const size_t loss_count = outputs.rows * label_count_;
  switch (kind_) {
    case SOFTMAX_CROSS_ENTROPY:
      return stream.SoftmaxLoss(outputs, labels, weights, gradient_scale, output_gradients,
                                loss_sum);
    case SQUARED:
      return stream.SquaredLoss(loss_count, outputs.data, labels, weights, gradient_scale,
                                output_gradients.data, loss_sum);
    default:
      return stream.LogisticLoss(loss_count, outputs.data, labels, weights, gradient_scale,
                                 output_gradients.data, loss_sum);
  }
}

Predictions LossFunction::Judge(const Batch& batch, absl::Span<const float> outputs) const {
  Predictions predictions = JudgeLabel(batch, outputs, 0);
  for (uint32_t label = 1; label < label_count_; ++label)
    predictions.other_labels.push_back(JudgeLabel(batch, outputs, label));
  return predictions;
}

Predictions LossFunction::JudgeLabel(const Batch& batch, absl::Span<const float> outputs,
                                     uint32_t label_index) const {
  Predictions predictions;
  EvaluationSums& sums = predictions.sums;
  sums.samples = batch.samples;
  const size_t output_count = output_count_;
  for (size_t s = 0; s < batch.samples; ++s) {
    // With several labels, each has one output.
    const float* output = outputs.data() + s * output_count + label_index;
    const float label = batch.labels[s * label_count_ + label_index];
    switch (kind_) {
      case SOFTMAX_CROSS_ENTROPY: {
        const size_t best = std::max_element(output, output + output_count) - output;
        double normalizer = 0;
        for (size_t c = 0; c < output_count; ++c)
          normalizer += DeterministicExp(static_cast<double>(output[c]) - output[best]);
        for (size_t c = 0; c < output_count; ++c) {
          predictions.probabilities.push_back(static_cast<float>(
              DeterministicExp(static_cast<double>(output[c]) - output[best]) / normalizer));
        }
        const size_t label_class = static_cast<size_t>(label);
        sums.logloss_sum += DeterministicLog(normalizer) -
                            (static_cast<double>(output[label_class]) - output[best]);
        sums.correct += best == label_class;
        predictions.scores.push_back(static_cast<float>(best));
        break;
      }
      case SQUARED: {
        const double error = static_cast<double>(output[0]) - label;
        sums.squared_error_sum += error * error;
        sums.absolute_error_sum += std::abs(error);
        predictions.scores.push_back(output[0]);
        break;
      }
      default: {
        const double logit = output[0];
        const double e = DeterministicExp(-std::abs(logit));
        sums.logloss_sum += DeterministicLog1p(e) + std::max(label > 0 ? -logit : logit, 0.0);
        sums.correct += (logit > 0) == (label > 0);
        predictions.scores.push_back(output[0]);
        predictions.probabilities.push_back(static_cast<float>((logit < 0 ? e : 1.0) / (1.0 + e)));
        break;
      }
    }
  }
  return predictions;
}

}  // namespace pawl
