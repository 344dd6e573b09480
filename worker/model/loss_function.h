// The loss of a model: which labels it takes, its gradients, and what it says of predictions.
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

// A value. Another loss is another case of each of its functions.
class LossFunction {
 public:
  // The model's loss, or the one that goes with it where it names none. INVALID_ARGUMENT, naming
  // the field, for one that does not go with so many outputs for a sample.
  static absl::StatusOr<LossFunction> Create(const Model& spec, uint32_t output_count);

  Loss kind() const { return kind_; }

  // LOGISTIC takes 1 for yes and 0 or -1 for no, SOFTMAX_CROSS_ENTROPY the class, from 0 to one
  // less than there are outputs, SQUARED any finite number. INVALID_ARGUMENT naming the sample.
  absl::Status CheckLabels(const Batch& batch) const;
  // The same of a whole file; `whose` begins the error's words.
  absl::Status CheckLabels(const LabelSummary& labels, absl::string_view whose) const;

  // Gives the stream the sum of the samples' losses and, times gradient_scale, its gradients.
  void Enqueue(Stream& stream, Matrix outputs, const float* labels, float gradient_scale,
               Matrix output_gradients, double* loss_sum) const;

  // What outputs in the host's memory, [samples, outputs], say and how good that is. REQUIRES:
  // CheckLabels(batch) is OK.
  Predictions Judge(const Batch& batch, absl::Span<const float> outputs) const;

 private:
  LossFunction(Loss kind, uint32_t output_count) : kind_(kind), output_count_(output_count) {}

  Loss kind_;
  uint32_t output_count_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_LOSS_FUNCTION_H_
