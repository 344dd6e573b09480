// A model's predictions, and the sums over samples from which the scores of an evaluation follow.
#ifndef PAWL_WORKER_MODEL_PREDICTIONS_H_
#define PAWL_WORKER_MODEL_PREDICTIONS_H_

#include <cstdint>
#include <vector>

namespace pawl {

// Sums over samples; those that do not apply to the loss stay 0.
struct EvaluationSums {
  uint64_t samples = 0;
  // LOGISTIC and SOFTMAX_CROSS_ENTROPY: the negative natural logarithm of the label's probability.
  double logloss_sum = 0;
  // Samples whose most probable class, the first one of equals, is the label.
  uint64_t correct = 0;
  // SQUARED: (prediction - label)^2, not halved.
  double squared_error_sum = 0;
  // SQUARED: |prediction - label|.
  double absolute_error_sum = 0;

  EvaluationSums& operator+=(const EvaluationSums& other) {
    samples += other.samples;
    logloss_sum += other.logloss_sum;
    correct += other.correct;
    squared_error_sum += other.squared_error_sum;
    absolute_error_sum += other.absolute_error_sum;
    return *this;
  }
};

struct Predictions {
  EvaluationSums sums;
  // LOGISTIC: the logit, which orders samples as the probability does but does not saturate at 1 as
  // soon. SQUARED: the prediction. SOFTMAX_CROSS_ENTROPY: the most probable class.
  std::vector<float> scores;  // [samples]
  // LOGISTIC: the probability of label 1, [samples]. SOFTMAX_CROSS_ENTROPY: [samples, classes].
  // SQUARED: empty.
  std::vector<float> probabilities;
  // Data with several labels: the same for the second label and the further ones.
  std::vector<Predictions> other_labels;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_PREDICTIONS_H_
