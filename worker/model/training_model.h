// A model of the job file: which tables it has, its gradients and its predictions.
//
//   PAWL_ASSIGN_OR_RETURN(auto model, TrainingModel::Create(job, shape, device));
//   for (const TableSpec& table : model->tables()) ...  // create it
//   ...                                                 // pull: sparse rows at batch.keys, dense
//   tensors whole model->ComputeGradients(batch, parameters, scale, gradients);
//   ...                                                 // push
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
  // By what the loss was multiplied when its gradients came out finite, or last; 1 without loss
  // scaling.
  float loss_scale = 1;
};

// What is to be told, where numbers are not finite, of a job with precision.compute FLOAT16.
inline constexpr char kBeyondFloat16[] =
    "a feature, weight, activation or gradient may be beyond 65504, the largest number of FLOAT16; "
    "scale the data or set "
    "precision.compute to BFLOAT16";

// The same, to be added to what is told; empty for another job.
std::string OverflowHint(const Job& job);

// precision.loss_scale, or what it is where the job has none.
float FirstLossScale(const Precision& precision);

// Called with the index of a table when its gradient is final, once for each
// table, by the thread that computes. Of layers the last one comes first, so that
// its gradient may travel while the others are computed.
using GradientSink = std::function<void(size_t table)>;

// Called with the index of a table before its parameters are read for the first time in a step, by
// the thread that computes, in the order in which the forward pass needs them: it waits until they
// are there. An error ends the computation.
using ParameterGate = std::function<absl::Status(size_t table)>;

// Called before a step is computed again with a smaller loss scale: an error ends the computation.
using TryGate = std::function<absl::Status()>;

// What may go along with a computation of gradients; each may be missing.
struct GradientHooks {
  GradientSink sink = nullptr;
  ParameterGate gate = nullptr;
  TryGate try_gate = nullptr;
  // Copied to the device while the batch before it is computed with, for the next call if that is
  // for the same object, which REQUIRES that it does not change until then.
  const Batch* next = nullptr;
};

// Holds no parameters: they come with every call, one span for each table in the
// order of tables(). A dense table's span is the whole tensor, a sparse one's
// holds the rows of batch.keys in that order, [keys, row_width]. Spans are of the host's memory;
// but of dense tables those that ComputeGradients takes are of the device's, parameters and
// gradients, if the model was made so: they stay there then.
//
// Labels that the loss does not take (LossFunction::CheckLabels) are refused.
//
// With job.precision.compute FLOAT16 the loss is multiplied by precision.loss_scale, and by a
// quarter of that, and so on, at last by 1, until its gradients are finite; they are divided by it
// again, and go to the sink together then. All other values are float32's, but for what
// Stream::Gemm does.
//
// The same inputs give the same bits, also on another TrainingModel of the same
// spec, and whatever model.recompute says. Not thread-safe: one for each thread; they may share the
// device.
class TrainingModel {
 public:
  // INVALID_ARGUMENT, naming the field, for a model that is impossible or does not fit the data.
  // The job's precision is possible (ValidateJob). `device` must outlive the model.
  //
  // records_steps: steps whose tables are all dense, and whose batches are of one size, are
  // recorded once and played then, where the device has a memory of its own: less to do for the
  // host, but gradients come together at the end of a step, and all parameters must be there at its
  // beginning. The same bits.
  //
  // dense_on_device: what is said above of dense tables' spans.
  static absl::StatusOr<std::unique_ptr<TrainingModel>> Create(const Job& job,
                                                               const DataShape& shape,
                                                               Device& device,
                                                               bool records_steps = false,
                                                               bool dense_on_device = false);

  TrainingModel(const TrainingModel&) = delete;
  TrainingModel& operator=(const TrainingModel&) = delete;

  // In the order in which the forward pass needs them. The optimizer is job.optimizer,
  // for sparse tables job.sparse_optimizer if set. Ids are not set.
  const std::vector<TableSpec>& tables() const { return tables_; }
  // The job's, or the model's own where the job has none.
  Loss loss() const { return loss_.kind(); }
  // Elements of a table's span for a batch with so many keys.
  size_t SpanSize(size_t table, size_t keys) const;

  // Sets `gradients`, spans like those of `parameters`, to those of the sum of the
  // losses of the samples, times gradient_scale. Values that are not finite go
  // through to the gradients; but with compute FLOAT16, gradients that are not finite with any
  // scale, of a loss that is, are an INVALID_ARGUMENT, and none has gone to the sink.
  // INVALID_ARGUMENT also for a batch that is not of the shape, bad labels or spans of a wrong
  // size: nothing has been written then. The gates' errors: none has gone to the sink.
  absl::StatusOr<LossSum> ComputeGradients(const Batch& batch,
                                           absl::Span<const absl::Span<const float>> parameters,
                                           float gradient_scale,
                                           absl::Span<const absl::Span<float>> gradients,
                                           const GradientHooks& hooks = {});

  // Replaces *predictions. Errors as above.
  absl::Status Predict(const Batch& batch, absl::Span<const absl::Span<const float>> parameters,
                       Predictions* predictions);

  // The most device memory that a step has taken so far.
  size_t peak_bytes() const { return workspace_.peak_bytes() + batches_.peak_bytes(); }

  bool records_steps() const { return options_.records_steps; }
  // Steps that were played instead of given to the device one operation after the other.
  uint64_t played_steps() const { return played_steps_; }

 private:
  // What of a job is about numbers and memory.
  struct Options {
    Factors factors = Factors::kFloat32;
    // The first to be tried; unset: the loss is not multiplied.
    std::optional<float> loss_scale;
    // See ModelStep; by table.
    std::vector<bool> recomputes;
    bool records_steps = false;
    // By table: whether ComputeGradients' spans of it are of the device's memory, and that is not
    // the host's.
    std::vector<bool> stays_on_device;
  };
  // What a device does at a time, each a stream of its own: what comes next is copied there, and
  // what is done is copied back, while it computes.
  struct Streams {
    std::unique_ptr<Stream> compute;
    // Null where copies are not needed.
    std::unique_ptr<Stream> upload;
    std::unique_ptr<Stream> download;
  };
  // A table whose gradient is on its way to where it is wanted: it is there when the stream has
  // come to the mark.
  struct InFlight {
    size_t table;
    Stream* stream;
    Stream::Mark mark;
  };

  TrainingModel(const DataShape& shape, LossFunction loss, std::vector<TableSpec> tables,
                Options options, std::unique_ptr<Network> network, Device& device, Streams streams);

  absl::Status CheckInputs(const Batch& batch,
                           absl::Span<const absl::Span<const float>> parameters) const;
  // A step with the batch in device memory, and the parameters when the gate has let them in;
  // *gate_status is its first error. `stays`: by table, whether the parameters are there already;
  // empty: none are.
  absl::StatusOr<ModelStep> BeginStep(const Batch& batch,
                                      absl::Span<const absl::Span<const float>> parameters,
                                      const std::vector<bool>& stays, const ParameterGate& gate,
                                      absl::Status* gate_status);
  // Copies to the device what the next operation is the first to read.
  void Upload(const void* host, size_t bytes, void* to);
  // Waits for all streams, also after an error: they may still use the caller's memory. The first
  // error.
  absl::Status Synchronize();
  // ComputeGradients of checked inputs with one scale.
  absl::StatusOr<LossSum> ComputeOnce(const Batch& batch,
                                      absl::Span<const absl::Span<const float>> parameters,
                                      float gradient_scale,
                                      absl::Span<const absl::Span<float>> gradients,
                                      const GradientHooks& hooks);
  // The first table whose gradient is not finite; as many as there are if there is none.
  absl::StatusOr<size_t> FirstNotFinite(absl::Span<const absl::Span<float>> gradients);
  // Multiplies a table's gradient, wherever it is.
  absl::Status ScaleGradient(size_t table, float factor, absl::Span<float> gradient);
  // Gives the streams all of the work; the caller synchronizes. in_flight: the tables whose sink is
  // to be called when their mark is reached, in the order of finishing.
  absl::Status EnqueueGradients(const Batch& batch,
                                absl::Span<const absl::Span<const float>> parameters,
                                float gradient_scale, absl::Span<const absl::Span<float>> gradients,
                                const GradientHooks& hooks, LossSum* result,
                                std::vector<InFlight>* in_flight);
  // The part of EnqueueGradients that is computation alone.
  absl::Status EnqueueComputation(ModelStep& step, float gradient_scale,
                                  const absl::Status& gate_status, double** loss_sum);
  // The recording of such a step, made if need be; all parameters are on their way to the device
  // then. Null: the step is to be given to the device as it is, and, if that has gone well,
  // remembered.
  absl::StatusOr<const RecordedSteps::Step*> Record(ModelStep& step, float gradient_scale,
                                                    const absl::Status& gate_status);
  // The step under way, with the workspace as it is by now.
  StepKey KeyOfStep(size_t samples, float gradient_scale) const;
  absl::Status EnqueueOutputs(const Batch& batch,
                              absl::Span<const absl::Span<const float>> parameters,
                              absl::Span<float> host_outputs);

  const DataShape shape_;
  const LossFunction loss_;
  const std::vector<TableSpec> tables_;
  const Options options_;
  const std::unique_ptr<Network> network_;
  Device& device_;
  const Streams streams_;
  DeviceBatches batches_;
  Workspace workspace_;
  MatrixPool pool_;
  RecordedSteps recorded_steps_;
  uint64_t played_steps_ = 0;
  // Of the step under way: the workspace's when it began, and the spans that stay on the device.
  uint64_t layout_of_step_ = 0;
  std::vector<const float*> staying_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TRAINING_MODEL_H_
