#include "scheduler/checkpoint/restore.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

bool IsSame(const std::string& path, const std::string& other) {
  std::error_code error;
  return path == other || std::filesystem::equivalent(path, other, error);
}

absl::Status Differs(const std::string& field, const std::string& now, const std::string& then) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", now, ", but was ", then, " when the checkpoint was made"));
}

absl::Status SameMessage(const std::string& field, const google::protobuf::Message& now,
                         const google::protobuf::Message& then) {
  if (google::protobuf::util::MessageDifferencer::Equals(now, then)) return absl::OkStatus();
  return Differs(field, absl::StrCat("{ ", now.ShortDebugString(), " }"),
                 absl::StrCat("{ ", then.ShortDebugString(), " }"));
}

using Columns = google::protobuf::RepeatedPtrField<Column>;

// Compares column by column, so that an error is short.
absl::Status SameColumns(const std::string& field, const Columns& now, const Columns& then) {
  const auto text = [](const Columns& columns, int i) {
    return i < columns.size() ? absl::StrCat("{ ", columns[i].ShortDebugString(), " }")
                              : std::string("missing");
  };
  for (int i = 0; i < std::max(now.size(), then.size()); ++i) {
    if (i < now.size() && i < then.size() &&
        google::protobuf::util::MessageDifferencer::Equals(now[i], then[i])) {
      continue;
    }
    return Differs(absl::StrCat(field, "[", i, "]"), text(now, i), text(then, i));
  }
  return absl::OkStatus();
}

// The columns of tables, whatever the format, as far as the model depends on them.
Columns FeaturesOf(const Data& data) {
  Columns columns = data.format() == CSV ? data.csv().columns() : data.records().columns();
  for (Column& column : columns) {
    column.clear_source();
    column.clear_position();
    if (column.has_list()) column.mutable_list()->clear_separator();
  }
  return columns;
}

bool HasColumns(const Data& data) {
  return data.format() == CSV || data.format() == RECORDS || data.format() == TFRECORD;
}

// How samples are read. An evaluation may read the same features from another format.
absl::Status SameSamples(const Job& job, const Job& then) {
  const Data& now = job.data();
  const Data& before = then.data();
  if (job.evaluation().only() && HasColumns(now) && HasColumns(before))
    return SameColumns(now.format() == CSV ? "data.csv.columns" : "data.records.columns",
                       FeaturesOf(now), FeaturesOf(before));
  if (now.format() != before.format())
    return Differs("data.format", DataFormat_Name(now.format()), DataFormat_Name(before.format()));
  if (now.libsvm_fields() != before.libsvm_fields()) {
    return Differs("data.libsvm_fields", absl::StrCat(now.libsvm_fields()),
                   absl::StrCat(before.libsvm_fields()));
  }
  PAWL_RETURN_IF_ERROR(
      SameColumns("data.csv.columns", now.csv().columns(), before.csv().columns()));
  PAWL_RETURN_IF_ERROR(SameMessage("data.csv", now.csv(), before.csv()));
  return SameColumns("data.records.columns", now.records().columns(), before.records().columns());
}

// The batch sizes of the first `epochs` passes over the data, as a text.
std::string BatchSizes(const Job& job, uint32_t epochs) {
  std::string text = absl::StrCat(job.batch_size());
  for (const BatchSizeChange& change : job.batch_size_changes()) {
    if (change.epoch() < epochs)
      absl::StrAppend(&text, ", ", change.batch_size(), " from epoch ", change.epoch());
  }
  return text;
}

absl::Status CheckSame(const Job& job, const Job& then) {
  const auto same = [&](const std::string& field, auto now, auto before) -> absl::Status {
    return now == before ? absl::OkStatus()
                         : Differs(field, absl::StrCat(now), absl::StrCat(before));
  };
  PAWL_RETURN_IF_ERROR(same("seed", job.seed(), then.seed()));
  PAWL_RETURN_IF_ERROR(same("partitions", job.partitions(), then.partitions()));
  PAWL_RETURN_IF_ERROR(same("logical_workers", job.logical_workers(), then.logical_workers()));
  PAWL_RETURN_IF_ERROR(same("consistency.mode", ConsistencyMode_Name(job.consistency().mode()),
                            ConsistencyMode_Name(then.consistency().mode())));
  // The dense part has different tables.
  const auto dense_path = [](const Job& of) {
    return DensePath_Name(of.dense_path() == ALLREDUCE ? ALLREDUCE : SERVER);
  };
  PAWL_RETURN_IF_ERROR(same("dense_path", dense_path(job), dense_path(then)));
  PAWL_RETURN_IF_ERROR(same("consistency.backup_workers", job.consistency().backup_workers(),
                            then.consistency().backup_workers()));
  PAWL_RETURN_IF_ERROR(SameSamples(job, then));
  PAWL_RETURN_IF_ERROR(SameMessage("model", job.model(), then.model()));
  PAWL_RETURN_IF_ERROR(SameMessage("optimizer", job.optimizer(), then.optimizer()));
  PAWL_RETURN_IF_ERROR(
      SameMessage("sparse_optimizer", job.sparse_optimizer(), then.sparse_optimizer()));
  if (job.evaluation().only()) return absl::OkStatus();
  // A job may continue with other sizes where the former one ended.
  const uint32_t epochs = std::max(then.epochs(), 1u);
  PAWL_RETURN_IF_ERROR(same("batch_size", BatchSizes(job, epochs), BatchSizes(then, epochs)));
  PAWL_RETURN_IF_ERROR(same("clip_global_norm", job.clip_global_norm(), then.clip_global_norm()));
  PAWL_RETURN_IF_ERROR(same("data.keep_order", job.data().keep_order(), then.data().keep_order()));
  PAWL_RETURN_IF_ERROR(
      same("data.window_samples", job.data().window_samples(), then.data().window_samples()));
  PAWL_RETURN_IF_ERROR(
      same("data.block_bytes", job.data().block_bytes(), then.data().block_bytes()));
  PAWL_RETURN_IF_ERROR(
      same("data.max_bad_samples", job.data().max_bad_samples(), then.data().max_bad_samples()));
  // A job without an identity accepts any data.
  if (!job.data().data_id().empty() && !then.data().data_id().empty())
    PAWL_RETURN_IF_ERROR(same("data.data_id", job.data().data_id(), then.data().data_id()));
  // Workers number evaluations by the steps before them; the scheduler continues the checkpoint's
  // numbers.
  const auto evaluated = [](const Job& of) { return of.data().eval().empty() ? "not set" : "set"; };
  PAWL_RETURN_IF_ERROR(same("data.eval", evaluated(job), evaluated(then)));
  return same("evaluation.every_steps", job.evaluation().every_steps(),
              then.evaluation().every_steps());
}

}  // namespace

absl::StatusOr<FoundCheckpoint> FindCheckpoint(Env& env, const std::string& path,
                                               const std::string& job_name,
                                               VerifyProgress* progress) {
  PAWL_ASSIGN_OR_RETURN(const CheckpointPlace place, CheckpointStore::Locate(env, path, job_name));
  FoundCheckpoint found{place.dir, place.name};
  const CheckpointStore store(env, found.dir);
  PAWL_RETURN_IF_ERROR(store.Verify(found.name, progress));
  PAWL_ASSIGN_OR_RETURN(found.manifest, store.ReadManifest(found.name));
  if (!found.state.ParseFromString(found.manifest.scheduler_state())) {
    return absl::DataLossError(
        absl::StrCat(store.ManifestPath(found.name), " has no valid scheduler state"));
  }
  return found;
}

absl::Status CheckFits(const Job& job, const CheckpointManifest& manifest) {
  Job then;
  if (!then.ParseFromString(manifest.job()))
    return absl::DataLossError("the checkpoint's manifest holds no job");
  const absl::Status status = CheckSame(job, then);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(
      status.message(), "; it must be the same to ",
      job.evaluation().only() ? "evaluate the checkpoint"
                              : "continue from it: set it back, or start without a checkpoint"));
}

StoredRestore MakeStoredRestore(const FoundCheckpoint& found, const Job& job) {
  StoredRestore restore;
  restore.set_dir(IsSame(found.dir, job.checkpoint().dir()) ? job.checkpoint().dir() : found.dir);
  restore.set_name(found.name);
  restore.set_step(found.manifest.step());
  return restore;
}

std::string RestoreWarning(Env& env, const FoundCheckpoint& found) {
  Job then;
  if (!found.manifest.is_final() || !then.ParseFromString(found.manifest.job()) ||
      !then.evaluation().has_early_stopping()) {
    return "";
  }
  std::string text = absl::StrCat(
      found.name,
      " holds the best parameters, which early stopping had restored at the job's end, and "
      "fresh optimizers: training from it does not continue the training that was interrupted");
  const absl::StatusOr<CheckpointListing> listing =
      CheckpointStore(env, found.dir).List(found.manifest.job_name());
  if (!listing.ok()) return text;
  for (const CheckpointListing::Entry& entry : listing->complete) {
    if (entry.manifest.is_final() || entry.manifest.step() > found.manifest.step()) continue;
    absl::StrAppend(&text, "; to continue that training, name ", JoinPath(found.dir, entry.name));
    break;
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(Env& env, const Job& job,
                                                                  uint64_t job_id,
                                                                  const StoredRestore& restore) {
  const std::string& dir = job.checkpoint().dir();
  if (dir.empty()) return std::vector<std::string>();
  // A final checkpoint in another folder is not the one of the same name here.
  const bool after_the_end =
      CheckpointStore::IsEndCheckpoint(restore.name()) && IsSame(restore.dir(), dir);
  return CheckpointStore(env, dir).SetAsideAfter(
      {job_id, job.name(), restore.step(), after_the_end});
}

bool IsSource(const std::string& path, const StoredRestore& restore) {
  const std::string absolute = AbsolutePath(path);
  // The checkpoint itself may be deleted by now.
  return IsSame(absolute, restore.dir()) ||
         (std::filesystem::path(absolute).filename() == restore.name() &&
          IsSame(FolderOf(absolute), restore.dir()));
}

}  // namespace pawl
