#include "client_lib/job/job_validation.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/table_validation.h"
#include "client_lib/job/data_validation.h"
#include "client_lib/job/group_field.h"
#include "client_lib/job/model_layers.h"
#include "client_lib/job/model_validation.h"

namespace pawl {

bool IsServeOnly(const Job& job) { return !job.has_data() && !job.has_model(); }

namespace {

absl::Status ValidateName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxJobNameBytes;
  for (const char c : name)
    good = good && (absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-');
  if (good) return absl::OkStatus();
  return Invalid("name is '", absl::CEscape(name.substr(0, 2 * kMaxJobNameBytes)),
                 "'; it must be 1 to ", kMaxJobNameBytes, " letters, digits or characters of _.-");
}

absl::Status ValidateEvaluation(const Job& job) {
  const Evaluation& evaluation = job.evaluation();
  if (job.data().eval().empty()) {
    if (evaluation.every_steps() != 0) {
      return Invalid("evaluation.every_steps is ", evaluation.every_steps(),
                     ", but data.eval is empty");
    }
    if (evaluation.has_early_stopping()) {
      return Invalid(
          "evaluation.early_stopping is set, but data.eval is empty; name a file to evaluate on");
    }
  }
  if (evaluation.only()) {
    if (job.data().eval().empty())
      return Invalid("evaluation.only is set, but data.eval is empty; name the files to evaluate");
    if (evaluation.has_early_stopping())
      return Invalid("evaluation.only is set, and evaluation.early_stopping too; leave one out");
    if (!job.checkpoint().dir().empty())
      return Invalid("evaluation.only is set, and checkpoint.dir too; leave one out");
  }
  const Loss loss = LossOf(job.model());
  if (!evaluation.group_by().empty()) {
    if (loss == SOFTMAX_CROSS_ENTROPY) {
      return Invalid("evaluation.group_by is set, but the loss is ", Loss_Name(loss),
                     "; only LOGISTIC and SQUARED have scores of groups");
    }
    if (job.data().eval().empty())
      return Invalid("evaluation.group_by is set, but data.eval is empty");
    if (job.data().stream_eval()) {
      return Invalid(
          "evaluation.group_by and data.stream_eval are both set, but the samples of a group may "
          "be anywhere in the files; leave one out");
    }
    PAWL_RETURN_IF_ERROR(FindGroupKey(job.data(), evaluation.group_by()).status());
  }
  if (evaluation.ndcg_at() != 0 && evaluation.group_by().empty()) {
    return Invalid("evaluation.ndcg_at is ", evaluation.ndcg_at(),
                   ", but evaluation.group_by is empty");
  }
  if (!evaluation.has_early_stopping()) return absl::OkStatus();
  const EarlyStopping& early_stopping = evaluation.early_stopping();
  if (!std::isfinite(early_stopping.min_delta()) || early_stopping.min_delta() < 0) {
    return Invalid("evaluation.early_stopping.min_delta is ", early_stopping.min_delta(),
                   "; it must be at least 0");
  }
  bool applies = false;
  switch (early_stopping.metric()) {
    case METRIC_UNSPECIFIED:
      applies = true;
      break;
    case NDCG:
      applies = loss != SOFTMAX_CROSS_ENTROPY;
      break;
    case GAUC:
    case AUC:
    case NORMALIZED_ENTROPY:
      applies = loss == LOGISTIC;
      break;
    case LOGLOSS:
    case ACCURACY:
      applies = loss != SQUARED;
      break;
    case RMSE:
    case MAE:
      applies = loss == SQUARED;
      break;
    default:
      return Invalid("evaluation.early_stopping.metric is ",
                     static_cast<int>(early_stopping.metric()), ", which is unknown");
  }
  if (!applies) {
    return Invalid("evaluation.early_stopping.metric is ", Metric_Name(early_stopping.metric()),
                   ", which does not apply to the loss ", Loss_Name(loss),
                   "; LOGISTIC has AUC, GAUC, NDCG, LOGLOSS, NORMALIZED_ENTROPY, ACCURACY, "
                   "SOFTMAX_CROSS_ENTROPY has LOGLOSS, ACCURACY, SQUARED has RMSE, MAE, NDCG");
  }
  const Metric metric = early_stopping.metric();
  if ((metric == GAUC || metric == NDCG) && evaluation.group_by().empty()) {
    return Invalid("evaluation.early_stopping.metric is ", Metric_Name(metric),
                   ", but evaluation.group_by is empty");
  }
  return absl::OkStatus();
}

absl::Status ValidateConsistency(const Job& job, uint32_t logical_workers) {
  const Consistency& consistency = job.consistency();
  const ConsistencyMode mode =
      consistency.mode() == CONSISTENCY_MODE_UNSPECIFIED ? SYNC : consistency.mode();
  if (!ConsistencyMode_IsValid(mode)) {
    return Invalid("consistency.mode is ", static_cast<int>(mode),
                   "; it must be SYNC, BOUNDED or ASYNC");
  }
  if (consistency.staleness() != 0 && mode != BOUNDED) {
    return Invalid("consistency.staleness is ", consistency.staleness(),
                   ", but consistency.mode is ", ConsistencyMode_Name(mode),
                   "; leave it out or use mode: BOUNDED");
  }
  for (const auto& [name, is_set] : {std::pair("read_my_writes", consistency.read_my_writes()),
                                     std::pair("staleness_aware", consistency.staleness_aware())}) {
    if (!is_set || mode != SYNC) continue;
    return Invalid("consistency.", name, " is set, but consistency.mode is SYNC, in which a pull ",
                   "reads exactly the version of its step; leave it out or use BOUNDED or ASYNC");
  }
  if (consistency.staleness_aware() && job.dense_path() == ALLREDUCE) {
    return Invalid(
        "consistency.staleness_aware is set, but with dense_path: ALLREDUCE the workers apply the "
        "dense gradients, all with those of the same step; leave one of both out");
  }
  if (consistency.staleness() > kMaxStaleness) {
    return Invalid("consistency.staleness is ", consistency.staleness(), "; at most ",
                   kMaxStaleness, " is possible, or use mode: ASYNC");
  }
  if (consistency.backup_workers() == 0) return absl::OkStatus();
  if (mode != SYNC) {
    return Invalid("consistency.backup_workers is ", consistency.backup_workers(),
                   ", but consistency.mode is ", ConsistencyMode_Name(mode),
                   "; only SYNC has backup workers");
  }
  // If the number of ranks is unknown, the check is repeated once it is known.
  if (logical_workers != 0 && consistency.backup_workers() >= logical_workers) {
    return Invalid("consistency.backup_workers is ", consistency.backup_workers(), " of ",
                   logical_workers, " logical_workers; at least one must count");
  }
  return absl::OkStatus();
}

absl::Status ValidateAllReduce(const Job& job) {
  const AllReduce& all_reduce = job.all_reduce();
  if (job.dense_path() != ALLREDUCE) {
    if (job.has_all_reduce()) return Invalid("all_reduce is set, but dense_path is not ALLREDUCE");
    return absl::OkStatus();
  }
  if (IsServeOnly(job)) {
    return Invalid(
        "dense_path is ALLREDUCE, but the job has no model whose dense part the workers could "
        "train");
  }
  if (job.consistency().backup_workers() > 0) {
    return Invalid("consistency.backup_workers is ", job.consistency().backup_workers(),
                   ", but with dense_path: ALLREDUCE every logical worker takes part in every "
                   "step; use SERVER");
  }
  if (all_reduce.bucket_bytes() != 0 && (all_reduce.bucket_bytes() < kMinBucketBytes ||
                                         all_reduce.bucket_bytes() > kMaxBucketBytes)) {
    return Invalid("all_reduce.bucket_bytes is ", all_reduce.bucket_bytes(), "; it must be ",
                   kMinBucketBytes, " to ", kMaxBucketBytes, ", or 0 for the default");
  }
  if (all_reduce.write_back_steps() > kMaxWriteBackSteps) {
    return Invalid("all_reduce.write_back_steps is ", all_reduce.write_back_steps(), "; at most ",
                   kMaxWriteBackSteps, " are possible");
  }
  if (all_reduce.sharded_optimizer() && job.optimizer().has_rowwise_adagrad()) {
    return Invalid(
        "all_reduce.sharded_optimizer is set, but optimizer.rowwise_adagrad needs whole rows, "
        "which sharding splits; use optimizer.adagrad");
  }
  if (all_reduce.sharded_optimizer() && job.optimizer().clip_norm() != 0) {
    return Invalid("all_reduce.sharded_optimizer is set, but optimizer.clip_norm is ",
                   job.optimizer().clip_norm(),
                   " and needs whole rows, which sharding splits; use optimizer.clip_value");
  }
  return absl::OkStatus();
}

absl::Status ValidateDelayCompensation(const Job& job) {
  const float lambda = job.delay_compensation();
  if (!std::isfinite(lambda) || lambda < 0)
    return Invalid("delay_compensation is ", lambda, "; it must be finite and at least 0");
  if (lambda == 0) return absl::OkStatus();
  if (job.consistency().mode() != BOUNDED && job.consistency().mode() != ASYNC) {
    return Invalid("delay_compensation is ", lambda,
                   ", but SYNC gradients have no delay; set consistency.mode to BOUNDED or ASYNC");
  }
  if (job.dense_path() == ALLREDUCE) {
    return Invalid("delay_compensation is ", lambda,
                   ", but with dense_path: ALLREDUCE the workers apply the dense gradients "
                   "together; leave one out");
  }
  return absl::OkStatus();
}

absl::Status ValidateBatchSizeChanges(const Job& job, uint32_t logical_workers) {
  if (job.batch_size_changes_size() > kMaxBatchSizeChanges) {
    return Invalid("batch_size_changes has ", job.batch_size_changes_size(), " entries; at most ",
                   kMaxBatchSizeChanges, " are possible");
  }
  uint32_t epoch_before = 0;
  for (int i = 0; i < job.batch_size_changes_size(); ++i) {
    const BatchSizeChange& change = job.batch_size_changes(i);
    const std::string field = absl::StrCat("batch_size_changes[", i, "]");
    if (change.epoch() <= epoch_before) {
      return Invalid(field, ".epoch is ", change.epoch(), "; epochs count from 0, and each change ",
                     "must have a later one than the change before it, the first at least 1");
    }
    if (change.epoch() >= std::max(job.epochs(), 1u)) {
      return Invalid(field, ".epoch is ", change.epoch(), ", but the job has ",
                     std::max(job.epochs(), 1u), " epochs; set epochs or leave the change out");
    }
    if (change.batch_size() < std::max(logical_workers, 1u) ||
        change.batch_size() > kMaxBatchSize) {
      return Invalid(field, ".batch_size is ", change.batch_size(), "; it must be ",
                     std::max(logical_workers, 1u), ", one sample for each logical worker, to ",
                     kMaxBatchSize);
    }
    epoch_before = change.epoch();
  }
  return absl::OkStatus();
}

absl::Status ValidateClipGlobalNorm(const Job& job) {
  const float clip = job.clip_global_norm();
  if (clip == 0) return absl::OkStatus();
  if (!(clip > 0) || !std::isfinite(clip)) {
    return Invalid("clip_global_norm is ", clip,
                   "; it must be a finite number above 0, or 0 to switch it off");
  }
  const ConsistencyMode mode = job.consistency().mode();
  if (mode != CONSISTENCY_MODE_UNSPECIFIED && mode != SYNC) {
    return Invalid("clip_global_norm is ", clip, ", but consistency.mode is ",
                   ConsistencyMode_Name(mode),
                   ", in which gradients are applied on arrival; use SYNC, or optimizer.clip_norm "
                   "for each row or block");
  }
  if (job.consistency().backup_workers() > 0) {
    return Invalid("clip_global_norm is ", clip, ", but consistency.backup_workers is ",
                   job.consistency().backup_workers(),
                   ", and partitions may then sum different logical workers; leave one of both "
                   "out");
  }
  if (job.dense_path() == ALLREDUCE) {
    return Invalid("clip_global_norm is ", clip,
                   ", but with dense_path: ALLREDUCE the servers do not get the dense gradients; "
                   "use SERVER");
  }
  return absl::OkStatus();
}

absl::Status ValidateElementType(const std::string& field, ElementType type) {
  if (ElementType_IsValid(type)) return absl::OkStatus();
  return Invalid(field, " is ", static_cast<int>(type),
                 "; it must be FLOAT32, BFLOAT16 or FLOAT16");
}

absl::Status ValidatePrecision(const Precision& precision) {
  PAWL_RETURN_IF_ERROR(ValidateElementType("precision.compute", precision.compute()));
  PAWL_RETURN_IF_ERROR(ValidateElementType("precision.gradients", precision.gradients()));
  const float scale = precision.loss_scale();
  if (scale != 0 && precision.compute() != FLOAT16) {
    return Invalid("precision.loss_scale is ", scale,
                   ", but it requires precision.compute FLOAT16, which is ",
                   ElementType_Name(precision.compute()),
                   "; leave it out (pushed FLOAT16 gradients have their own scale)");
  }
  int exponent = 0;
  // Also true for NaN.
  if (scale == 0 || (scale >= 1 && scale <= kMaxLossScale && std::frexp(scale, &exponent) == 0.5f))
    return absl::OkStatus();
  return Invalid("precision.loss_scale is ", scale, "; it must be a power of two from 1 to ",
                 kMaxLossScale, ", or 0 for the default");
}

absl::Status ValidateReplication(const Job& job, uint32_t servers) {
  if (job.replicas() > kMaxReplicas) {
    return Invalid("replicas is ", job.replicas(), "; at most ", kMaxReplicas, " are possible");
  }
  if (job.min_in_sync() > std::max(job.replicas(), 1u)) {
    return Invalid(
        "min_in_sync is ", job.min_in_sync(), ", but replicas is ", std::max(job.replicas(), 1u),
        ": no push could ever be acknowledged; lower it to at most that, or raise replicas");
  }
  if (servers != 0 && job.replicas() > servers) {
    return Invalid("replicas is ", job.replicas(), ", but there are ", servers,
                   " servers, and each replica of a partition needs its own; start more "
                   "servers or lower it");
  }
  if (!Durability_IsValid(job.durability())) {
    return Invalid("durability is ", static_cast<int>(job.durability()),
                   "; it must be MEMORY, LOG or FSYNC");
  }
  const CheckpointPolicy& checkpoint = job.checkpoint();
  if (checkpoint.keep() > kMaxCheckpointsKept) {
    return Invalid("checkpoint.keep is ", checkpoint.keep(), "; at most ", kMaxCheckpointsKept,
                   " are possible");
  }
  if (checkpoint.every_seconds() > kMaxCheckpointIntervalS) {
    return Invalid("checkpoint.every_seconds is ", checkpoint.every_seconds(), "; at most ",
                   kMaxCheckpointIntervalS, " are possible");
  }
  if (checkpoint.dir().empty() &&
      (checkpoint.every_steps() != 0 || checkpoint.every_seconds() != 0)) {
    return Invalid(
        "checkpoint.dir is empty; it must name a folder if "
        "checkpoint.every_steps or every_seconds is set");
  }
  return absl::OkStatus();
}

// Refuses fields that would have no effect.
absl::Status ValidateServeOnly(const Job& job) {
  for (const auto& [field, is_set] :
       {std::pair("evaluation", job.has_evaluation()), std::pair("epochs", job.epochs() != 0),
        std::pair("max_steps", job.max_steps() != 0),
        std::pair("micro_batches", job.micro_batches() > 1),
        std::pair("precision", job.has_precision()),
        std::pair("matmul", job.matmul() != MATRIX_PRODUCTS_UNSPECIFIED),
        std::pair("batch_size_changes", job.batch_size_changes_size() > 0),
        std::pair("delay_compensation", job.delay_compensation() != 0)}) {
    if (!is_set) continue;
    return Invalid(field, " is set, but the job has neither data nor model, and only pawl-worker ",
                   "reads the field; leave it out, and let the program decide");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateJob(const Job& job, const JobValidationOptions& options) {
  PAWL_RETURN_IF_ERROR(ValidateName(job.name()));
  if (job.has_model() && !job.has_data())
    return Invalid("data is missing; a job with a model needs data to train on");
  if (job.has_data() && !job.has_model())
    return Invalid("model is missing; a job with data needs a model to train");

  const uint32_t logical_workers =
      job.logical_workers() != 0 ? job.logical_workers() : options.workers;
  if (job.logical_workers() > kMaxLogicalWorkers) {
    return Invalid("logical_workers is ", job.logical_workers(), "; at most ", kMaxLogicalWorkers,
                   " are possible");
  }
  if (!IsServeOnly(job) && logical_workers != 0 && options.workers > logical_workers) {
    return Invalid(
        "logical_workers is ", logical_workers, ", fewer than the ", options.workers,
        " workers; start fewer workers or raise it (it changes the order of the samples)");
  }
  if (job.partitions() > kMaxPartitions) {
    return Invalid("partitions is ", job.partitions(), "; at most ", kMaxPartitions,
                   " are possible");
  }
  if (!DensePath_IsValid(job.dense_path())) {
    return Invalid("dense_path is ", static_cast<int>(job.dense_path()),
                   "; it must be SERVER or ALLREDUCE");
  }
  PAWL_RETURN_IF_ERROR(ValidateAllReduce(job));
  if (job.micro_batches() > kMaxMicroBatches) {
    return Invalid("micro_batches is ", job.micro_batches(), "; at most ", kMaxMicroBatches,
                   " are possible");
  }
  PAWL_RETURN_IF_ERROR(ValidatePrecision(job.precision()));
  PAWL_RETURN_IF_ERROR(ValidateReplication(job, options.servers));
  PAWL_RETURN_IF_ERROR(ValidateConsistency(job, logical_workers));
  PAWL_RETURN_IF_ERROR(ValidateClipGlobalNorm(job));
  if (job.optimizer().has_assign())
    return Invalid("optimizer.assign is set, which trains nothing; set another optimizer");
  if (job.sparse_optimizer().has_assign()) {
    return Invalid("sparse_optimizer.assign is set, which trains nothing; set another optimizer");
  }
  if (job.has_optimizer()) PAWL_RETURN_IF_ERROR(ValidateOptimizer(job.optimizer(), "optimizer"));
  if (job.has_sparse_optimizer())
    PAWL_RETURN_IF_ERROR(ValidateOptimizer(job.sparse_optimizer(), "sparse_optimizer"));
  if (IsServeOnly(job)) return ValidateServeOnly(job);

  if (!job.has_optimizer()) {
    return Invalid(
        "optimizer is missing; write one, as in optimizer { adagrad { learning_rate: 0.05 } }");
  }
  if (job.batch_size() == 0 || job.batch_size() > kMaxBatchSize) {
    return Invalid("batch_size is ", job.batch_size(), "; it must be 1 to ", kMaxBatchSize,
                   ", the samples of one step over all logical workers");
  }
  if (job.batch_size() < logical_workers) {
    return Invalid("batch_size is ", job.batch_size(), ", fewer than the ", logical_workers,
                   " logical_workers; each needs at least one sample per step");
  }
  PAWL_RETURN_IF_ERROR(ValidateBatchSizeChanges(job, logical_workers));
  PAWL_RETURN_IF_ERROR(ValidateDelayCompensation(job));
  if (job.epochs() > kMaxEpochs)
    return Invalid("epochs is ", job.epochs(), "; at most ", kMaxEpochs, " are possible");
  // Values before files: a mistake in the job file is reported even if the data is on another
  // machine.
  PAWL_ASSIGN_OR_RETURN(const DataFeatures features, ValidateData(job.data()));
  PAWL_RETURN_IF_ERROR(ValidateModel(job.data(), job.model(), features));
  PAWL_RETURN_IF_ERROR(ValidateEvaluation(job));
  if (options.check_files)
    PAWL_RETURN_IF_ERROR(ValidateDataFiles(job.data(), job.evaluation().only()));
  return absl::OkStatus();
}

}  // namespace pawl
