// A model of the job file: its tables, gradients and predictions.
//
//   PAWL_ASSIGN_OR_RETURN(auto model, TrainingModel::Create(job, shape, device));
//   for (const TableSpec& table : model->tables()) ...  // create it
//   ...  // pull: sparse rows at KeysOf, whole dense tensors
//   model->ComputeGradients(batch, parameters, scale, gradients);
//   ...  // push
#ifndef PAWL_WORKER_MODEL_TRAINING_MODEL_H_
#define PAWL_WORKER_MODEL_TRAINING_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/job/field_layout.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/device/matrix_pool.h"
#include "worker/device/workspace.h"
#include "worker/model/device_batch.h"
#include "worker/model/loss_function.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/predictions.h"
#include "worker/model/recorded_steps.h"
#include "worker/model/table_list.h"

namespace pawl {

// The loss over a batch, before gradient_scale.
struct LossSum {
  double loss_sum = 0;
  uint64_t samples = 0;
  // The factor of the loss in the last attempt, which is the first one with finite gradients if any
  // was; 1 without loss scaling.
  float loss_scale = 1;
};

// A hint for messages about numbers that are not finite, for jobs with precision.compute FLOAT16.
inline constexpr char kBeyondFloat16[] =
    "a feature, weight, activation or gradient may be beyond 65504, the largest number of FLOAT16; "
    "scale the data or set precision.compute to BFLOAT16";

// The hint as a suffix of a message; empty for other jobs.
std::string OverflowHint(const Job& job);

// precision.loss_scale, or its default.
float FirstLossScale(const Precision& precision);

// Called with the index of a table when its gradient is final, once for each table, on the
// computing thread. The last layer comes first, so that its gradient can travel while the others
// are computed.
using GradientSink = std::function<void(size_t table)>;

// Called with the index of a table before its parameters are first read in a step, on the computing
// thread, in the order of the forward pass. Waits until the parameters have arrived. An error ends
// the computation.
using ParameterGate = std::function<absl::Status(size_t table)>;

// Called before a step is repeated with a smaller loss scale. An error ends the computation.
using TryGate = std::function<absl::Status()>;

// Optional callbacks of a computation of gradients.
struct GradientHooks {
  GradientSink sink = nullptr;
  ParameterGate gate = nullptr;
  TryGate try_gate = nullptr;
  // Copied to the device during the computation, for the next call. REQUIRES: the batch does not
  // change until that call.
  const Batch* next = nullptr;
};

// Holds no parameters: every call gets one span for each table, in the order of tables(). A dense
// table's span is the whole tensor. A sparse one's holds the rows of KeysOf in that order,
// [keys, row_width]. Spans refer to host memory, except that a model created with dense_on_device
// takes the dense parameters and gradients of ComputeGradients in device memory, where they stay.
//
// Labels that the loss does not accept (LossFunction::CheckLabels) are refused.
//
// With job.precision.compute FLOAT16 the loss is multiplied by precision.loss_scale; if its
// gradients are not finite, by a quarter of that, and so on, finally by 1. The gradients are
// divided by the scale, and go to the sink together. All other values are float32, apart from the
// rounding of Stream::Gemm.
//
// The same inputs give the same bits, also on another TrainingModel of the same spec, and for any
// model.recompute. Not thread-safe: each thread needs its own model; models may share the device.
class TrainingModel {
 public:
  // INVALID_ARGUMENT, naming the field, for a model that is impossible or does not fit the data.
  // REQUIRES: the job's precision is valid (ValidateJob). `device` must outlive the model.
  //
  // records_steps: if the device has memory of its own, steps whose tables are all dense are
  // recorded once per batch size and replayed. That is less work for the host, but all gradients
  // are ready only at the end of a step, and all parameters are needed at its start. The bits are
  // the same.
  //
  // dense_on_device: spans of dense tables are in device memory, as described above.
  static absl::StatusOr<std::unique_ptr<TrainingModel>> Create(const Job& job,
                                                               const DataShape& shape,
                                                               Device& device,
                                                               bool records_steps = false,
                                                               bool dense_on_device = false);

  TrainingModel(const TrainingModel&) = delete;
  TrainingModel& operator=(const TrainingModel&) = delete;

  // In the order in which the forward pass needs them. The optimizer is job.optimizer; for sparse
  // tables job.sparse_optimizer, if set. Ids are not set.
  const std::vector<TableSpec>& tables() const { return tables_; }
  // The job's loss, or the model's default.
  Loss loss() const { return loss_.kind(); }
  // Elements of a table's span for the batch.
  size_t SpanSize(size_t table, const Batch& batch) const;
  // The keys of a sparse table's rows.
  const std::vector<uint64_t>& KeysOf(size_t table, const Batch& batch) const {
    return batch.keys[key_sets_[table]];
  }
  // The key set of a sparse table.
  size_t key_set(size_t table) const { return key_sets_[table]; }
  // How batches look up their fields.
  const FieldLayout& layout() const { return layout_; }

  // Sets `gradients`, spans like those of `parameters`, to the gradients of the sum of the samples'
  // losses, times gradient_scale. Non-finite values propagate to the gradients. But with compute
  // FLOAT16, if the loss is finite and the gradients are not finite with any scale, returns
  // INVALID_ARGUMENT before any table goes to the sink. Also INVALID_ARGUMENT, with nothing
  // written, for a batch of another shape, bad labels or spans of a wrong size. After an error of a
  // gate no table has gone to the sink.
  absl::StatusOr<LossSum> ComputeGradients(const Batch& batch,
                                           absl::Span<const absl::Span<const float>> parameters,
                                           float gradient_scale,
                                           absl::Span<const absl::Span<float>> gradients,
                                           const GradientHooks& hooks = {});

  // Replaces *predictions. Errors as above.
  absl::Status Predict(const Batch& batch, absl::Span<const absl::Span<const float>> parameters,
                       Predictions* predictions);

  // The maximum device memory of a step so far.
  size_t peak_bytes() const { return workspace_.peak_bytes() + batches_.peak_bytes(); }

  bool records_steps() const { return options_.records_steps; }
  // Steps that were replayed.
  uint64_t played_steps() const { return played_steps_; }

 private:
  // The numeric and memory options of a job.
  struct Options {
    Factors factors = Factors::kFloat32;
    // The first loss scale to try; unset: no loss scaling.
    std::optional<float> loss_scale;
    // By table; see ModelStep.
    std::vector<bool> recomputes;
    bool records_steps = false;
    // By label; empty: all are 1.
    std::vector<float> label_weights;
    // By table: whether ComputeGradients takes its spans in device memory that is not the host's.
    std::vector<bool> stays_on_device;
  };
  // A stream for each concurrent activity of a device: while it computes, the next data is copied
  // there and results are copied back.
  struct Streams {
    std::unique_ptr<Stream> compute;
    // Null if copies are not needed.
    std::unique_ptr<Stream> upload;
    std::unique_ptr<Stream> download;
  };
  // A table whose gradient is being copied; the copy is complete when the stream has reached the
  // mark.
  struct InFlight {
    size_t table;
    Stream* stream;
    Stream::Mark mark;
  };

  TrainingModel(ModelInputs inputs, LossFunction loss, const TableList& tables, Options options,
                std::unique_ptr<Network> network, Device& device, Streams streams);

  absl::Status CheckInputs(const Batch& batch,
                           absl::Span<const absl::Span<const float>> parameters) const;
  // Starts a step with the batch in device memory and the parameters available after the gate;
  // *gate_status is the gate's first error. `stays`: by table, whether the parameters are there
  // already; empty: none are.
  absl::StatusOr<ModelStep> BeginStep(const Batch& batch,
                                      absl::Span<const absl::Span<const float>> parameters,
                                      const std::vector<bool>& stays, const ParameterGate& gate,
                                      absl::Status* gate_status);
  // Copies to the device what only later operations read.
  void Upload(const void* host, size_t bytes, void* to);
  // Waits for all streams, even after an error, because they may still use the caller's memory.
  // Returns the first error.
  absl::Status Synchronize();
  // ComputeGradients for checked inputs and one scale.
  absl::StatusOr<LossSum> ComputeOnce(const Batch& batch,
                                      absl::Span<const absl::Span<const float>> parameters,
                                      float gradient_scale,
                                      absl::Span<const absl::Span<float>> gradients,
                                      const GradientHooks& hooks);
  // The first table whose gradient is not finite, or the number of tables.
  absl::StatusOr<size_t> FirstNotFinite(absl::Span<const absl::Span<float>> gradients);
  // Multiplies a table's gradient, wherever it is.
  absl::Status ScaleGradient(size_t table, float factor, absl::Span<float> gradient);
  // Enqueues all of the work; the caller synchronizes. in_flight: the tables whose sink is called
  // when their mark is reached, in the order of finishing.
  absl::Status EnqueueGradients(const Batch& batch,
                                absl::Span<const absl::Span<const float>> parameters,
                                float gradient_scale, absl::Span<const absl::Span<float>> gradients,
                                const GradientHooks& hooks, LossSum* result,
                                std::vector<InFlight>* in_flight);
  // The part of EnqueueGradients that only computes.
  absl::Status EnqueueComputation(ModelStep& step, float gradient_scale,
                                  const absl::Status& gate_status, double** loss_sum);
  // Returns the recording of the step, creating it if necessary; all parameters are on their way to
  // the device then. Null: enqueue the step directly and, if that succeeds, remember it.
  absl::StatusOr<const RecordedSteps::Step*> Record(ModelStep& step, float gradient_scale,
                                                    const absl::Status& gate_status);
  // The key of the current step, with the workspace in its current state.
  StepKey KeyOfStep(size_t samples, float gradient_scale) const;
  absl::Status EnqueueOutputs(const Batch& batch,
                              absl::Span<const absl::Span<const float>> parameters,
                              absl::Span<float> host_outputs);

  const DataShape shape_;
  const FieldLayout layout_;
  const LossFunction loss_;
  const std::vector<TableSpec> tables_;
  // By table; of a dense one 0.
  const std::vector<size_t> key_sets_;
  const Options options_;
  const std::unique_ptr<Network> network_;
  Device& device_;
  const Streams streams_;
  DeviceBatches batches_;
  Workspace workspace_;
  MatrixPool pool_;
  RecordedSteps recorded_steps_;
  uint64_t played_steps_ = 0;
  // For the current step: the workspace's layout at its start, and the spans that stay on the
  // device.
  uint64_t layout_of_step_ = 0;
  std::vector<const float*> staying_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TRAINING_MODEL_H_
