// What a model says about samples, and how good it is.
#ifndef PAWL_WORKER_MODEL_PREDICTIONS_H_
#define PAWL_WORKER_MODEL_PREDICTIONS_H_

#include <cstdint>
#include <vector>

namespace pawl {

// Sums over samples; those that do not apply to the loss stay 0.
struct EvaluationSums {
  uint64_t samples = 0;
  // LOGISTIC and SOFTMAX_CROSS_ENTROPY: -log of the probability of the label, natural.
  double logloss_sum = 0;
  // Samples whose most probable class is the label; of equal ones the first.
  uint64_t correct = 0;
  // SQUARED: (prediction - label)^2, not halved.
  double squared_error_sum = 0;

  EvaluationSums& operator+=(const EvaluationSums& other) {
    samples += other.samples;
    logloss_sum += other.logloss_sum;
    correct += other.correct;
    squared_error_sum += other.squared_error_sum;
    return *this;
  }
};

struct Predictions {
  EvaluationSums sums;
  // LOGISTIC: the logit, which orders samples as the probability does but is not
  // rounded to 1 so soon. SQUARED: the prediction. SOFTMAX_CROSS_ENTROPY: the most probable class.
  std::vector<float> scores;  // [samples]
  // LOGISTIC: of the label 1, [samples]. SOFTMAX_CROSS_ENTROPY: [samples, classes]. SQUARED: empty.
  std::vector<float> probabilities;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_PREDICTIONS_H_
