#include "scheduler/checkpoint/checkpoint_writer.h"

#include <utility>

#include "client_lib/base/status_macros.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kWakeInterval{60};

}  // namespace

absl::StatusOr<std::string> CompleteCheckpoint(Env& env, const std::string& dir,
                                               const CheckpointManifest& manifest) {
  CheckpointStore store(env, dir);
  const std::string name = CheckpointStore::NameOf(manifest);
  absl::Status status = store.WriteManifest(manifest);
  if (manifest.is_final() && absl::IsAlreadyExists(status)) {
    // If it is this job's, a former scheduler completed it and died before it saved that; perhaps
    // before it had checked the checkpoint.
    const absl::StatusOr<CheckpointManifest> there = store.ReadManifest(name);
    if (there.ok() && there->job_id() == manifest.job_id()) status = store.CheckComplete(*there);
  }
  PAWL_RETURN_IF_ERROR(status);
  return JoinPath(dir, name);
}

CheckpointWriter::CheckpointWriter(Env& env, AllowedFolders folders)
    : env_(env), folders_(std::move(folders)) {
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    MutexLock lock(mu_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

void CheckpointWriter::Write(std::string dir, CheckpointManifest manifest, uint32_t keep,
                             Done done) {
  {
    MutexLock lock(mu_);
    if (!next_.has_value() && !stop_) {
      next_ = Work{std::move(dir), std::move(manifest), keep, std::move(done)};
      wake_.NotifyAll();
      return;
    }
  }
  done(absl::UnavailableError("another checkpoint is being written"));
}

bool CheckpointWriter::WaitUntilIdle(MonotonicTime deadline) {
  MutexLock lock(mu_);
  while (next_.has_value() || busy_) {
    if (!idle_.WaitUntil(mu_, deadline)) break;
  }
  return !next_.has_value() && !busy_;
}

void CheckpointWriter::Run() {
  while (true) {
    std::optional<Work> work;
    {
      MutexLock lock(mu_);
      busy_ = false;
      idle_.NotifyAll();
      while (!stop_ && !next_.has_value())
        wake_.WaitUntil(mu_, std::chrono::steady_clock::now() + kWakeInterval);
      if (!next_.has_value()) return;
      work = std::exchange(next_, std::nullopt);
      busy_ = true;
    }
    absl::StatusOr<std::string> folder = Complete(*work);
    const bool is_complete = folder.ok();
    // Not after the deletion: the time limit of the final checkpoint runs.
    work->done(std::move(folder));
    if (is_complete) DeleteOld(*work);
  }
}

absl::StatusOr<std::string> CheckpointWriter::Complete(const Work& work) {
  PAWL_RETURN_IF_ERROR(folders_.Check(work.dir));
  return CompleteCheckpoint(env_, work.dir, work.manifest);
}

void CheckpointWriter::DeleteOld(const Work& work) {
  if (work.keep == 0) return;
  const absl::Status deleted =
      CheckpointStore(env_, work.dir).DeleteOld(work.manifest.job_name(), work.keep);
  if (!deleted.ok())
    spdlog::warn("old checkpoints in {} cannot be deleted: {}", work.dir, deleted.ToString());
}

}  // namespace pawl
