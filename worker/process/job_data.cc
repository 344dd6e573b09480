#include "worker/process/job_data.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/data_files.h"
#include "client_lib/job/format_validation.h"
#include "client_lib/job/group_field.h"
#include "client_lib/job/model_layers.h"
#include "spdlog/spdlog.h"
#include "worker/data/readers/libsvm_reader.h"
#include "worker/model/loss_function.h"
#include "worker/train/ndcg.h"

namespace pawl {
namespace {

// The files of a field, for messages.
std::string Describe(const std::vector<std::string>& files) {
  if (files.size() == 1) return files.front();
  return absl::StrCat(files.front(), " and ", files.size() - 1, " more");
}

// Refuses labels that the loss does not accept, before training starts. `field` is the field of the
// job file.
absl::Status CheckLabels(const Job& job, const DataShape& shape, const LabelSummary& labels,
                         absl::string_view field, const std::vector<std::string>& files) {
  const uint32_t outputs =
      job.model().has_mmoe() ? shape.label_count : std::max(job.model().mlp().classes(), 1u);
  PAWL_ASSIGN_OR_RETURN(const LossFunction loss,
                        LossFunction::Create(job.model(), shape.label_count, outputs));
  return loss.CheckLabels(labels, absl::StrCat(field, ": the labels of ", Describe(files)));
}

// Refuses an evaluation.group_by that the data does not have.
absl::Status CheckGroups(const Job& job, const Dataset& eval) {
  const std::string& group_by = job.evaluation().group_by();
  if (group_by.empty()) return absl::OkStatus();
  PAWL_ASSIGN_OR_RETURN(const GroupKey key, FindGroupKey(job.data(), group_by));
  if (key.is_query_id && eval.store().query_ids.empty()) {
    return absl::InvalidArgumentError(
        "evaluation.group_by is \"qid\", but no line of data.eval has a qid other than 0");
  }
  if (!key.is_query_id && key.field >= eval.shape().field_count) {
    return absl::InvalidArgumentError(absl::StrCat("evaluation.group_by is \"", group_by,
                                                   "\", but data.eval has ",
                                                   eval.shape().field_count, " fields"));
  }
  return absl::OkStatus();
}

// With squared loss the first labels of samples in groups are relevances.
absl::Status CheckRelevances(const Job& job, const Dataset& eval,
                             const std::vector<std::string>& files) {
  if (job.evaluation().group_by().empty() || LossOf(job.model()) != SQUARED)
    return absl::OkStatus();
  const LabelSummary labels = eval.labels(/*first_only=*/true);
  if (labels.min >= 0 && labels.max <= kMaxRelevance) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "evaluation.group_by: the labels of ", Describe(files), " are ", labels.min, " to ",
      labels.max, "; as relevances for NDCG they must be 0 to ", kMaxRelevance));
}

// With evaluation.only: the data that is evaluated stands in for the training data.
class EvaluatedData final : public TrainingData {
 public:
  explicit EvaluatedData(const TrainingData& eval) : eval_(eval) {}

  uint64_t size() const override { return eval_.size(); }
  const DataShape& shape() const override { return eval_.shape(); }
  uint64_t fingerprint() const override { return eval_.fingerprint(); }
  std::unique_ptr<RankBatches> OpenRank(const Sampler& sampler, uint32_t rank, uint64_t end_step,
                                        const FieldLookup& lookup) const override {
    return eval_.OpenRank(sampler, rank, end_step, lookup);
  }

 private:
  const TrainingData& eval_;
};

void LogBadSamples(const BadSamples& bad) {
  if (bad.count() == 0) return;
  spdlog::warn("skipped {} malformed training samples (data.max_bad_samples), such as:",
               bad.count());
  for (const std::string& example : bad.shown()) spdlog::warn("  {}", example);
}

// How evaluation data is streamed. `train_fields`: of the training data; 0: unknown.
Data StreamedEvaluation(const Data& job_data, uint32_t train_fields) {
  Data spec = job_data;
  spec.clear_data_id();
  spec.clear_max_bad_samples();
  if (spec.format() == LIBSVM && spec.libsvm_fields() == 0) spec.set_libsvm_fields(train_fields);
  return spec;
}

// Opens data.eval. `train` is null with evaluation.only.
absl::Status OpenEvaluationData(const Job& job, const TrainingData* train, uint64_t max_bytes,
                                StreamOptions streaming, JobData& data) {
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                        ExpandDataFiles("data.eval", job.data().eval(), job.data().format()));
  if (job.data().stream_eval()) {
    const Data spec =
        StreamedEvaluation(job.data(), train == nullptr ? 0 : train->shape().field_count);
    streaming.is_training = false;
    PAWL_ASSIGN_OR_RETURN(auto streamed, StreamedData::Open(spec, files, std::move(streaming)));
    PAWL_RETURN_IF_ERROR(
        CheckLabels(job, streamed->shape(), streamed->labels(), "data.eval", files));
    data.eval = std::move(streamed);
    return absl::OkStatus();
  }
  DatasetOptions options{.max_bytes = max_bytes};
  if (train != nullptr) options.shape = train->shape();
  PAWL_ASSIGN_OR_RETURN(auto memory, Dataset::Load(job.data(), files, options));
  PAWL_RETURN_IF_ERROR(CheckLabels(job, memory->shape(), memory->labels(), "data.eval", files));
  PAWL_RETURN_IF_ERROR(CheckGroups(job, *memory));
  PAWL_RETURN_IF_ERROR(CheckRelevances(job, *memory, files));
  *streaming.used_bytes += memory->memory_bytes();
  data.eval_in_memory = memory.get();
  data.eval = std::move(memory);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobData> LoadJobData(const Job& job, const JobDataOptions& options) {
  const MonotonicTime begin = Clock::Real().Now();
  const Data& spec = job.data();
  JobData data;
  StreamOptions streaming;
  streaming.max_bytes = options.max_bytes;
  streaming.max_rank_bytes = options.max_rank_bytes;
  streaming.index.dir = options.index_dir;
  if (job.evaluation().only()) {
    PAWL_RETURN_IF_ERROR(OpenEvaluationData(job, nullptr, options.max_bytes, streaming, data));
    data.train = std::make_unique<EvaluatedData>(*data.eval);
    spdlog::info("opened {} evaluation samples; this job trains nothing (evaluation.only)",
                 data.eval->size());
    return data;
  }
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                        ExpandDataFiles("data.train", spec.train(), spec.format()));
  uint64_t used_bytes = 0, distinct_keys = 0;
  if (spec.window_samples() > 0) {
    PAWL_ASSIGN_OR_RETURN(auto streamed, StreamedData::Open(spec, files, streaming));
    PAWL_RETURN_IF_ERROR(
        CheckLabels(job, streamed->shape(), streamed->labels(), "data.train", files));
    LogBadSamples(streamed->bad_samples());
    data.streamed = streamed.get();
    data.train = std::move(streamed);
  } else {
    PAWL_ASSIGN_OR_RETURN(auto memory, Dataset::Load(spec, files,
                                                     {.max_bytes = options.max_bytes,
                                                      .max_bad_samples = spec.max_bad_samples(),
                                                      .is_training = true}));
    PAWL_RETURN_IF_ERROR(CheckLabels(job, memory->shape(), memory->labels(), "data.train", files));
    LogBadSamples(memory->bad_samples());
    used_bytes = memory->memory_bytes();
    distinct_keys = memory->distinct_keys();
    data.train = std::move(memory);
  }
  if (!spec.eval().empty()) {
    PAWL_RETURN_IF_ERROR(
        OpenEvaluationData(job, data.train.get(), options.max_bytes - used_bytes, streaming, data));
  }
  const double seconds = Seconds(Clock::Real().Now() - begin);
  const uint64_t eval_samples = data.eval == nullptr ? 0 : data.eval->size();
  if (data.streamed != nullptr) {
    spdlog::info(
        "opened {} training samples with the identity {}, which are streamed, and {} evaluation "
        "samples in {:.1f} s",
        data.train->size(), data.streamed->id(), eval_samples, seconds);
  } else {
    spdlog::info("read {} training and {} evaluation samples with {} distinct keys in {:.1f} s",
                 data.train->size(), eval_samples, distinct_keys, seconds);
  }
  return data;
}

absl::StatusOr<std::string> MakeDataIndex(const Job& job, const std::string& index_dir) {
  const Data& spec = job.data();
  if (spec.window_samples() == 0) {
    return absl::InvalidArgumentError(
        "data.window_samples is not set: the job does not stream its data, and needs no index");
  }
  PAWL_RETURN_IF_ERROR(ValidateFormat(spec).status());
  if (job.evaluation().only()) {
    // The training data may be elsewhere.
    PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          ExpandDataFiles("data.eval", spec.eval(), spec.format()));
    PAWL_ASSIGN_OR_RETURN(const std::vector<IndexedFile> indexed,
                          OpenIndexedFiles(StreamedEvaluation(spec, /*train_fields=*/0), files,
                                           {.dir = index_dir, .refresh = true}));
    return DataId(indexed);
  }
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                        ExpandDataFiles("data.train", spec.train(), spec.format()));
  PAWL_ASSIGN_OR_RETURN(const std::vector<IndexedFile> indexed,
                        OpenIndexedFiles(spec, files, {.dir = index_dir, .refresh = true}));
  if (spec.stream_eval()) {
    PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> eval_files,
                          ExpandDataFiles("data.eval", spec.eval(), spec.format()));
    uint32_t most_fields = 0;
    for (const IndexedFile& file : indexed) {
      PAWL_ASSIGN_OR_RETURN(const uint32_t fields,
                            LibsvmFields(spec.libsvm_fields(), file.index.most_entries, file.path));
      most_fields = std::max(most_fields, fields);
    }
    PAWL_RETURN_IF_ERROR(OpenIndexedFiles(StreamedEvaluation(spec, most_fields), eval_files,
                                          {.dir = index_dir, .refresh = true})
                             .status());
  }
  return DataId(indexed);
}

}  // namespace pawl
