// The loss of a model: the labels it accepts, its gradients, and its predictions.
#ifndef PAWL_WORKER_MODEL_LOSS_FUNCTION_H_
#define PAWL_WORKER_MODEL_LOSS_FUNCTION_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/device/operands.h"
#include "worker/model/predictions.h"

namespace pawl {

// A value type. Each of its functions has a case for each loss.
class LossFunction {
 public:
  // The model's loss, or its default if it names none. INVALID_ARGUMENT, naming the field, for a
  // loss or a number of labels that does not fit the number of outputs per sample. A model with
  // several labels has one output for each; the loss of a sample is the sum over its labels.
  static absl::StatusOr<LossFunction> Create(const Model& spec, uint32_t label_count,
                                             uint32_t output_count);

  Loss kind() const { return kind_; }

  // LOGISTIC accepts 1 for yes and 0 or -1 for no; SOFTMAX_CROSS_ENTROPY a class from 0 to one less
  // than there are outputs; SQUARED any finite number. INVALID_ARGUMENT naming the sample.
  absl::Status CheckLabels(const Batch& batch) const;
  // Does the same for a whole file; the error starts with `subject`.
  absl::Status CheckLabels(const LabelSummary& labels, absl::string_view subject) const;

  // Enqueues the sum of the samples' losses and its gradients, times gradient_scale. weights
  // [samples, labels]: factors of the losses; null: all are 1.
  void Enqueue(Stream& stream, Matrix outputs, const float* labels, const float* weights,
               float gradient_scale, Matrix output_gradients, double* loss_sum) const;

  // Computes predictions and their quality from outputs in host memory, [samples, outputs].
  // REQUIRES: CheckLabels(batch) is OK.
  Predictions Judge(const Batch& batch, absl::Span<const float> outputs) const;

 private:
  LossFunction(Loss kind, uint32_t label_count, uint32_t output_count)
      : kind_(kind), label_count_(label_count), output_count_(output_count) {}

  // The predictions of one label, without those of others.
  Predictions JudgeLabel(const Batch& batch, absl::Span<const float> outputs,
                         uint32_t label_index) const;

  Loss kind_;
  uint32_t label_count_;
  uint32_t output_count_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_LOSS_FUNCTION_H_
