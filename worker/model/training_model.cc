#include "worker/model/training_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/model_layers.h"
#include "server/optimizer/math/finite.h"
#include "worker/model/networks/networks.h"

namespace pawl {
namespace {

size_t TableWidth(const TableSpec& table) {
  if (table.kind() == SPARSE) return table.row_width();
  size_t elements = 1;
  for (const uint64_t dimension : table.shape()) elements *= dimension;
  return elements;
}

Factors FactorsOf(ElementType type) {
  if (type == BFLOAT16) return Factors::kBfloat16;
  return type == FLOAT16 ? Factors::kFloat16 : Factors::kFloat32;
}

// By table: whether it holds the weights of a layer that model.recompute names.
std::vector<bool> RecomputedWeights(const Model& model, uint32_t labels,
                                    const std::vector<TableSpec>& tables) {
  std::vector<bool> recomputes(tables.size());
  for (const std::string& layer : LayersOf(model, labels)) {
    const bool is_named =
        std::any_of(model.recompute().begin(), model.recompute().end(),
                    [&](const std::string& name) { return name == layer || name == "all"; });
    for (size_t t = 0; t < tables.size(); ++t) {
      if (is_named && tables[t].name() == absl::StrCat(layer, "/weight")) recomputes[t] = true;
    }
  }
  return recomputes;
}

absl::Status WrongSize(absl::string_view what, size_t expected, size_t actual) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": must have ", expected, " elements, has ", actual));
}

}  // namespace

std::string OverflowHint(const Job& job) {
  return job.precision().compute() == FLOAT16 ? absl::StrCat("; or ", kBeyondFloat16) : "";
}

float FirstLossScale(const Precision& precision) {
  constexpr float kDefault = 32768;
  return precision.loss_scale() == 0 ? kDefault : precision.loss_scale();
}

absl::StatusOr<std::unique_ptr<TrainingModel>> TrainingModel::Create(const Job& job,
                                                                     const DataShape& shape,
                                                                     Device& device,
                                                                     bool records_steps,
                                                                     bool dense_on_device) {
  if (job.optimizer().kind_case() == Optimizer::KIND_NOT_SET) {
    return absl::InvalidArgumentError("optimizer: must be set");
  }
  ModelInputs inputs{shape, {}};
  PAWL_ASSIGN_OR_RETURN(inputs.layout, FieldLayoutOf(job.data(), job.model(), shape.field_count));
  TableList tables(job.optimizer(),
                   job.has_sparse_optimizer() ? job.sparse_optimizer() : job.optimizer());
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<Network> network,
                        CreateNetwork(job.model(), inputs, tables));
  PAWL_ASSIGN_OR_RETURN(
      const LossFunction loss,
      LossFunction::Create(job.model(), shape.label_count, network->output_count()));
  PAWL_RETURN_IF_ERROR(ValidateRecompute(job.model(), shape.label_count));
  Options options;
  options.factors = FactorsOf(job.precision().compute());
  options.recomputes = RecomputedWeights(job.model(), shape.label_count, tables.specs());
  if (options.factors == Factors::kFloat16) {
    options.loss_scale = FirstLossScale(job.precision());
  }
  options.label_weights.assign(job.model().mmoe().label_weights().begin(),
                               job.model().mmoe().label_weights().end());
  options.records_steps = records_steps && !device.SharesHostMemory() &&
                          std::all_of(tables.specs().begin(), tables.specs().end(),
                                      [](const TableSpec& table) { return table.kind() == DENSE; });
  for (const TableSpec& table : tables.specs()) {
    options.stays_on_device.push_back(dense_on_device && !device.SharesHostMemory() &&
                                      table.kind() == DENSE);
  }
  Streams streams;
  PAWL_ASSIGN_OR_RETURN(streams.compute, device.CreateStream());
  if (job.matmul() == FAST) streams.compute->UseFastProducts();
  if (!device.SharesHostMemory()) {
    PAWL_ASSIGN_OR_RETURN(streams.upload, device.CreateStream());
    PAWL_ASSIGN_OR_RETURN(streams.download, device.CreateStream());
  }
  return absl::WrapUnique(new TrainingModel(std::move(inputs), loss, tables, std::move(options),
                                            std::move(network), device, std::move(streams)));
}

TrainingModel::TrainingModel(ModelInputs inputs, LossFunction loss, const TableList& tables,
                             Options options, std::unique_ptr<Network> network, Device& device,
                             Streams streams)
    : shape_(inputs.shape),
      layout_(std::move(inputs.layout)),
      loss_(loss),
      tables_(tables.specs()),
      key_sets_(tables.key_sets()),
      options_(std::move(options)),
      network_(std::move(network)),
      device_(device),
      streams_(std::move(streams)),
      batches_(device, layout_, options_.label_weights, *streams_.compute, streams_.upload.get()),
      workspace_(device),
      pool_(workspace_) {}

size_t TrainingModel::SpanSize(size_t table, const Batch& batch) const {
  const size_t rows = tables_[table].kind() == SPARSE ? KeysOf(table, batch).size() : 1;
  return TableWidth(tables_[table]) * rows;
}

absl::Status TrainingModel::CheckInputs(
    const Batch& batch, absl::Span<const absl::Span<const float>> parameters) const {
  PAWL_RETURN_IF_ERROR(CheckBatch(batch, shape_, layout_));
  PAWL_RETURN_IF_ERROR(loss_.CheckLabels(batch));

  if (parameters.size() != tables_.size())
    return WrongSize("parameters", tables_.size(), parameters.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (parameters[t].size() != SpanSize(t, batch)) {
      return WrongSize(absl::StrCat("parameters of ", tables_[t].name()), SpanSize(t, batch),
                       parameters[t].size());
    }
  }
  return absl::OkStatus();
}

void TrainingModel::Upload(const void* host, size_t bytes, void* to) {
  streams_.upload->CopyToDevice(host, bytes, to);
  streams_.compute->WaitFor(*streams_.upload);
}

absl::Status TrainingModel::Synchronize() {
  absl::Status status = streams_.compute->Synchronize();
  for (Stream* const stream : {streams_.upload.get(), streams_.download.get()}) {
    if (stream != nullptr) status.Update(stream->Synchronize());
  }
  return status;
}

absl::StatusOr<ModelStep> TrainingModel::BeginStep(
    const Batch& batch, absl::Span<const absl::Span<const float>> parameters,
    const std::vector<bool>& stays, const ParameterGate& gate, absl::Status* gate_status) {
  workspace_.Reset();
  layout_of_step_ = workspace_.layout();
  pool_.Reset();
  ModelStep step(*streams_.compute, workspace_, pool_, options_.recomputes);
  step.factors = options_.factors;
  PAWL_ASSIGN_OR_RETURN(const DeviceBatch* const there, batches_.Load(batch));
  step.samples = batch.samples;
  step.field_sets = there->field_sets();
  step.entry_lists = there->entry_lists();
  step.numerics = there->numerics();
  if (device_.SharesHostMemory()) {
    for (const absl::Span<const float> values : parameters)
      step.parameters.push_back(values.data());
    step.await = [gate, gate_status](size_t table) {
      if (gate != nullptr && gate_status->ok()) *gate_status = gate(table);
    };
    return step;
  }
  // Null for tables that stay on the device.
  std::vector<float*> places(parameters.size());
  for (size_t t = 0; t < parameters.size(); ++t) {
    if (!stays.empty() && stays[t]) {
      step.parameters.push_back(parameters[t].data());
      continue;
    }
    PAWL_ASSIGN_OR_RETURN(places[t], workspace_.Allocate<float>(parameters[t].size()));
    step.parameters.push_back(places[t]);
  }
  // Each table is awaited when it is needed; earlier layers are computed meanwhile.
  step.await = [this, gate, gate_status, parameters, places = std::move(places)](size_t table) {
    if (gate != nullptr && gate_status->ok()) *gate_status = gate(table);
    if (!gate_status->ok() || places[table] == nullptr) return;
    Upload(parameters[table].data(), parameters[table].size() * sizeof(float), places[table]);
  };
  return step;
}

absl::StatusOr<LossSum> TrainingModel::ComputeGradients(
    const Batch& batch, absl::Span<const absl::Span<const float>> parameters, float gradient_scale,
    absl::Span<const absl::Span<float>> gradients, const GradientHooks& hooks) {
  bool is_refused = true;
  // The caller may change the batch after this returns. After a refused call the next batch is
  // unknown.
  const absl::Cleanup forget = [this, &batch, &is_refused] {
    is_refused ? batches_.ForgetAll() : batches_.Forget(batch);
  };
  PAWL_RETURN_IF_ERROR(CheckInputs(batch, parameters));
  if (gradients.size() != tables_.size())
    return WrongSize("gradients", tables_.size(), gradients.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (gradients[t].size() != parameters[t].size()) {
      return WrongSize(absl::StrCat("gradients of ", tables_[t].name()), parameters[t].size(),
                       gradients[t].size());
    }
  }

  is_refused = false;
  if (!options_.loss_scale.has_value())
    return ComputeOnce(batch, parameters, gradient_scale, gradients, hooks);

  LossSum result;
  // The order in which the tables' gradients become final.
  std::vector<size_t> order;
  GradientHooks of_try{.sink = [&order](size_t table) { order.push_back(table); },
                       .gate = hooks.gate,
                       .try_gate = nullptr,
                       .next = hooks.next};
  float scale = *options_.loss_scale;
  while (true) {
    order.clear();
    PAWL_ASSIGN_OR_RETURN(
        result, ComputeOnce(batch, parameters, gradient_scale * scale, gradients, of_try));
    // The parameters that the gate let in stay available.
    of_try.gate = nullptr;
    PAWL_ASSIGN_OR_RETURN(const size_t bad, FirstNotFinite(gradients));
    // The forward pass does not depend on the scale.
    if (bad == gradients.size() || !std::isfinite(result.loss_sum)) break;
    if (scale == 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the gradient of table `", tables_[bad].name(),
          "` is not finite although the loss is, even with a loss scale of 1: ", kBeyondFloat16));
    }
    if (hooks.try_gate != nullptr) PAWL_RETURN_IF_ERROR(hooks.try_gate());
    scale = std::max(scale / 4, 1.0f);
  }
  result.loss_scale = scale;
  for (const size_t table : order) {
    // Both are powers of two, so nothing is rounded, except results that become subnormal.
    PAWL_RETURN_IF_ERROR(ScaleGradient(table, 1 / scale, gradients[table]));
    if (hooks.sink) hooks.sink(table);
  }
  return result;
}

absl::StatusOr<size_t> TrainingModel::FirstNotFinite(
    absl::Span<const absl::Span<float>> gradients) {
  const size_t staying =
      std::count(options_.stays_on_device.begin(), options_.stays_on_device.end(), true);
  std::vector<float> found(staying);
  if (staying > 0) {
    // Allocations that may fail come first: no copy to `found` may be pending on return.
    PAWL_ASSIGN_OR_RETURN(float* const there, workspace_.Allocate<float>(staying));
    size_t next = 0;
    for (size_t t = 0; t < gradients.size(); ++t) {
      if (options_.stays_on_device[t])
        streams_.compute->FindNotFinite(gradients[t].size(), gradients[t].data(), there + next++);
    }
    streams_.compute->CopyToHost(there, staying * sizeof(float), found.data());
    PAWL_RETURN_IF_ERROR(streams_.compute->Synchronize());
  }
  size_t next = 0;
  for (size_t t = 0; t < gradients.size(); ++t) {
    const bool is_finite = options_.stays_on_device[t]
                               ? found[next++] == 0
                               : AllFinite(gradients[t].data(), gradients[t].size());
    if (!is_finite) return t;
  }
  return gradients.size();
}

absl::Status TrainingModel::ScaleGradient(size_t table, float factor, absl::Span<float> gradient) {
  if (options_.stays_on_device[table]) {
    streams_.compute->Scale(gradient.size(), factor, gradient.data());
    return streams_.compute->Synchronize();
  }
  for (float& value : gradient) value *= factor;
  return absl::OkStatus();
}

absl::StatusOr<LossSum> TrainingModel::ComputeOnce(
    const Batch& batch, absl::Span<const absl::Span<const float>> parameters, float gradient_scale,
    absl::Span<const absl::Span<float>> gradients, const GradientHooks& hooks) {
  LossSum result;
  std::vector<InFlight> in_flight;
  absl::Status status =
      EnqueueGradients(batch, parameters, gradient_scale, gradients, hooks, &result, &in_flight);
  // Behind everything that this step copies to the device.
  batches_.Prefetch(status.ok() && hooks.next != &batch ? hooks.next : nullptr);
  // The last layers' gradients travel while the first ones are computed.
  for (const InFlight& gradient : in_flight) {
    if (status.ok()) status = gradient.stream->Await(gradient.mark);
    if (status.ok() && hooks.sink) hooks.sink(gradient.table);
  }
  status.Update(Synchronize());
  PAWL_RETURN_IF_ERROR(status);
  // A step that made the workspace grow used other addresses than the next one will.
  if (options_.records_steps && layout_of_step_ == workspace_.layout()) {
    recorded_steps_.Remember(KeyOfStep(batch.samples, gradient_scale));
  }
  return result;
}

absl::Status TrainingModel::EnqueueGradients(const Batch& batch,
                                             absl::Span<const absl::Span<const float>> parameters,
                                             float gradient_scale,
                                             absl::Span<const absl::Span<float>> gradients,
                                             const GradientHooks& hooks, LossSum* result,
                                             std::vector<InFlight>* in_flight) {
  absl::Status gate_status;
  PAWL_ASSIGN_OR_RETURN(ModelStep step, BeginStep(batch, parameters, options_.stays_on_device,
                                                  hooks.gate, &gate_status));
  const bool shares_host_memory = device_.SharesHostMemory();
  staying_.clear();
  for (size_t t = 0; t < gradients.size(); ++t) {
    float* data = gradients[t].data();
    if (options_.stays_on_device[t]) {
      staying_.insert(staying_.end(), {parameters[t].data(), data});
    } else if (!shares_host_memory) {
      PAWL_ASSIGN_OR_RETURN(data, workspace_.Allocate<float>(gradients[t].size()));
    }
    step.gradients.push_back(data);
  }
  const auto send = [&](size_t table) {
    if (shares_host_memory) {
      if (hooks.sink) hooks.sink(table);
      return;
    }
    if (options_.stays_on_device[table]) {
      in_flight->push_back({table, streams_.compute.get(), streams_.compute->PlaceMark()});
      return;
    }
    Stream& download = *streams_.download;
    download.WaitFor(*streams_.compute);
    download.CopyToHost(step.gradients[table], gradients[table].size() * sizeof(float),
                        gradients[table].data());
    in_flight->push_back({table, &download, download.PlaceMark()});
  };

  double* loss_sum = nullptr;
  PAWL_ASSIGN_OR_RETURN(const RecordedSteps::Step* const recorded,
                        Record(step, gradient_scale, gate_status));
  if (recorded != nullptr) {
    streams_.compute->Play(*recorded->recording);
    ++played_steps_;
    loss_sum = recorded->loss_sum;
    for (const size_t table : recorded->finished) send(table);
  } else {
    step.finish = send;
    PAWL_RETURN_IF_ERROR(EnqueueComputation(step, gradient_scale, gate_status, &loss_sum));
  }
  result->samples = batch.samples;
  streams_.compute->CopyToHost(loss_sum, sizeof(double), &result->loss_sum);
  return absl::OkStatus();
}

StepKey TrainingModel::KeyOfStep(size_t samples, float gradient_scale) const {
  const DeviceBatch& batch = batches_.present();
  return {.numerics = batch.numerics().data,
          .labels = batch.labels(),
          .weights = batch.weights(),
          .samples = samples,
          .gradient_scale = gradient_scale,
          .layout = workspace_.layout(),
          .staying = staying_};
}

absl::StatusOr<const RecordedSteps::Step*> TrainingModel::Record(ModelStep& step,
                                                                 float gradient_scale,
                                                                 const absl::Status& gate_status) {
  if (!options_.records_steps) return nullptr;
  RecordedSteps::Step* const known = recorded_steps_.Find(KeyOfStep(step.samples, gradient_scale));
  if (known == nullptr) return nullptr;
  for (size_t table = 0; table < tables_.size(); ++table) step.await(table);
  PAWL_RETURN_IF_ERROR(gate_status);
  if (known->recording != nullptr) return known;
  step.await = [](size_t) {};
  std::vector<size_t> finished;
  step.finish = [&finished](size_t table) { finished.push_back(table); };
  double* loss_sum = nullptr;
  if (streams_.compute->BeginRecording()) {
    const absl::Status status = EnqueueComputation(step, gradient_scale, gate_status, &loss_sum);
    std::unique_ptr<Recording> recording = streams_.compute->EndRecording();
    PAWL_RETURN_IF_ERROR(status);
    if (recording != nullptr) {
      known->recording = std::move(recording);
      known->loss_sum = loss_sum;
      known->finished = std::move(finished);
      return known;
    }
  }
  PAWL_RETURN_IF_ERROR(streams_.compute->Synchronize());
  return absl::UnimplementedError("the device cannot record");
}

absl::Status TrainingModel::EnqueueComputation(ModelStep& step, float gradient_scale,
                                               const absl::Status& gate_status, double** loss_sum) {
  const float* const labels = batches_.present().labels();
  PAWL_ASSIGN_OR_RETURN(*loss_sum, workspace_.Allocate<double>(1));
  PAWL_ASSIGN_OR_RETURN(const Matrix outputs, step.Allocate(network_->output_count()));
  PAWL_ASSIGN_OR_RETURN(const Matrix output_gradients, step.Allocate(network_->output_count()));
  PAWL_RETURN_IF_ERROR(network_->Forward(step, outputs));
  PAWL_RETURN_IF_ERROR(gate_status);
  loss_.Enqueue(*streams_.compute, outputs, labels, batches_.present().weights(), gradient_scale,
                output_gradients, *loss_sum);
  return network_->Backward(step, output_gradients);
}

absl::Status TrainingModel::Predict(const Batch& batch,
                                    absl::Span<const absl::Span<const float>> parameters,
                                    Predictions* predictions) {
  PAWL_RETURN_IF_ERROR(CheckInputs(batch, parameters));
  std::vector<float> outputs(size_t{batch.samples} * network_->output_count());
  batches_.ForgetAll();
  absl::Status status = EnqueueOutputs(batch, parameters, absl::MakeSpan(outputs));
  status.Update(Synchronize());
  batches_.Forget(batch);
  PAWL_RETURN_IF_ERROR(status);
  *predictions = loss_.Judge(batch, outputs);
  return absl::OkStatus();
}

absl::Status TrainingModel::EnqueueOutputs(const Batch& batch,
                                           absl::Span<const absl::Span<const float>> parameters,
                                           absl::Span<float> host_outputs) {
  absl::Status gate_status;
  PAWL_ASSIGN_OR_RETURN(ModelStep step,
                        BeginStep(batch, parameters, /*stays=*/{}, nullptr, &gate_status));
  PAWL_ASSIGN_OR_RETURN(const Matrix outputs, step.Allocate(network_->output_count()));
  PAWL_RETURN_IF_ERROR(network_->Forward(step, outputs));
  streams_.compute->CopyToHost(outputs.data, host_outputs.size() * sizeof(float),
                               host_outputs.data());
  return absl::OkStatus();
}

}  // namespace pawl
