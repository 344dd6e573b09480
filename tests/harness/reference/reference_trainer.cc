#include "tests/harness/reference/reference_trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "client_lib/base/half.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/data_files.h"
#include "client_lib/job/job_file.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/data/stream/streamed_data.h"
#include "worker/data/training_data.h"
#include "worker/device/open_device.h"
#include "worker/model/training_model.h"

namespace pawl {

namespace {

// Rounds gradients that travel in one segment: rows of a table, or blocks of a tensor, in one
// partition.
void RoundSegment(ElementType type, const std::vector<absl::Span<float>>& segment) {
  float largest = 0;
  for (const absl::Span<float> gradients : segment) {
    for (const float gradient : gradients) largest = std::max(largest, std::abs(gradient));
  }
  // Scales the largest FLOAT16 value to [2^14, 2^15) (PushSegment.exponent).
  const int exponent =
      type == FLOAT16 && largest > 0 ? std::clamp(std::ilogb(largest) - 14, -125, 112) : 0;
  for (const absl::Span<float> gradients : segment) {
    for (float& gradient : gradients) {
      gradient =
          type == FLOAT16
              ? std::ldexp(FloatOfFloat16(Float16Of(std::ldexp(gradient, -exponent))), exponent)
              : FloatOfBfloat16(Bfloat16Of(gradient));
    }
  }
}

// Rounds a rank's gradients of a table as on the wire. `keys` are the rows of a sparse table.
void RoundAsTheyTravel(const Job& job, const ReferenceTable& table,
                       const std::vector<uint64_t>& keys, std::vector<float>& gradients) {
  const ElementType type = job.precision().gradients();
  if (type != BFLOAT16 && type != FLOAT16) return;
  std::map<uint32_t, std::vector<absl::Span<float>>> segments;
  const absl::Span<float> all = absl::MakeSpan(gradients);
  const bool is_dense = table.spec().kind() == DENSE;
  const size_t width = is_dense ? kBlockElements : table.width();
  for (size_t begin = 0; begin < all.size(); begin += width) {
    const uint64_t key = is_dense ? begin / width : keys[begin / width];
    segments[PartitionOf(table.spec().id(), key, job.partitions())].push_back(
        all.subspan(begin, width));
  }
  for (const auto& [partition, segment] : segments) RoundSegment(type, segment);
}

}  // namespace

absl::StatusOr<ReferenceResult> TrainReference(const Job& job) {
  if (job.consistency().backup_workers() != 0)
    return absl::UnimplementedError("the reference has no backup workers");
  if (job.evaluation().has_early_stopping())
    return absl::UnimplementedError("the reference does not stop early");
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                        ExpandDataFiles("data.train", job.data().train(), job.data().format()));
  std::unique_ptr<TrainingData> data;
  if (job.data().window_samples() > 0) {
    PAWL_ASSIGN_OR_RETURN(data, StreamedData::Open(job.data(), files, {}));
  } else {
    PAWL_ASSIGN_OR_RETURN(data, Dataset::Load(job.data(), files));
  }
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice("cpu"));
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingModel> model,
                        TrainingModel::Create(job, data->shape(), *device));
  PAWL_ASSIGN_OR_RETURN(const Sampler sampler, Sampler::Create(Sampler::OptionsOf(
                                                   job, data->size(), job.logical_workers())));
  ReferenceResult result;
  for (const TableSpec& unnumbered : model->tables()) {
    TableSpec spec = unnumbered;
    spec.set_id(static_cast<uint32_t>(result.tables.size() + 1));
    PAWL_ASSIGN_OR_RETURN(ReferenceTable table, ReferenceTable::Create(spec, job.seed()));
    result.tables.push_back(std::move(table));
  }

  result.steps = sampler.epochs().FirstStepOf(std::max<uint64_t>(job.epochs(), 1));
  if (job.max_steps() != 0) result.steps = std::min<uint64_t>(result.steps, job.max_steps());
  std::vector<std::unique_ptr<RankBatches>> batches;
  for (uint32_t rank = 0; rank < job.logical_workers(); ++rank)
    batches.push_back(data->OpenRank(sampler, rank, result.steps, {model->layout(), {}}));
  Batch batch;
  for (uint64_t step = 0; step < result.steps; ++step) {
    const SamplePosition position = sampler.epochs().PositionOf(step);
    // The servers divide the sum over the ranks by the number of ranks; training needs the mean
    // over the samples.
    const float gradient_scale =
        static_cast<float>(static_cast<double>(job.logical_workers()) /
                           static_cast<double>(sampler.GlobalSize(position)));
    LossSum loss;
    for (uint32_t rank = 0; rank < job.logical_workers(); ++rank) {
      PAWL_RETURN_IF_ERROR(batches[rank]->Assemble(step, &batch));
      if (batch.samples == 0) continue;
      const size_t count = result.tables.size();
      std::vector<std::vector<float>> parameters(count), gradients(count);
      for (size_t t = 0; t < count; ++t) {
        const ReferenceTable& table = result.tables[t];
        if (table.spec().kind() == DENSE) {
          table.Read(0, parameters[t]);
        } else {
          for (const uint64_t key : model->KeysOf(t, batch)) table.Read(key, parameters[t]);
        }
        gradients[t].resize(parameters[t].size());
      }
      const std::vector<absl::Span<const float>> parameter_spans(parameters.begin(),
                                                                 parameters.end());
      std::vector<absl::Span<float>> gradient_spans;
      for (std::vector<float>& gradient : gradients)
        gradient_spans.push_back(absl::MakeSpan(gradient));
      PAWL_ASSIGN_OR_RETURN(
          const LossSum part,
          model->ComputeGradients(batch, parameter_spans, gradient_scale, gradient_spans));
      loss.loss_sum += part.loss_sum;
      loss.samples += part.samples;
      for (size_t t = 0; t < count; ++t) {
        ReferenceTable& table = result.tables[t];
        RoundAsTheyTravel(job, table, model->KeysOf(t, batch), gradients[t]);
        if (table.spec().kind() == DENSE) {
          table.Add(0, gradients[t].data());
        } else {
          const std::vector<uint64_t>& keys = model->KeysOf(t, batch);
          for (size_t k = 0; k < keys.size(); ++k)
            table.Add(keys[k], &gradients[t][k * table.width()]);
        }
      }
    }
    const float clip_scale = ReferenceClipScale(result.tables, job.logical_workers(),
                                                job.partitions(), job.clip_global_norm());
    result.clipped_steps += clip_scale < 1.0f;
    for (ReferenceTable& table : result.tables)
      table.CloseStep(step, job.logical_workers(), clip_scale);
    result.samples += loss.samples;
    result.last_loss = loss.loss_sum / static_cast<double>(std::max<uint64_t>(loss.samples, 1));
    if (step == 0) result.first_loss = result.last_loss;
  }
  result.digest = ReferenceDigest(result.tables, job.partitions());
  return result;
}

absl::StatusOr<ReferenceResult> TrainReference(const std::string& job_text) {
  PAWL_ASSIGN_OR_RETURN(Job job, ParseJob(job_text, "the job"));
  FillDefaults(job, /*workers=*/1);
  return TrainReference(job);
}

}  // namespace pawl
