#include "server/data_plane/checkpointer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/snapshot/partition_file.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How often to check that the scheduler still asks for the checkpoint under way.
constexpr std::chrono::seconds kWakeInterval{5};

// Whether a checkpoint that was requested later, or of the job's end, has replaced the requested
// one.
bool IsSuperseded(const CheckpointOnServerRequest& request, const CheckpointId& by) {
  if (request.is_final()) return by.is_final && request.step() < by.step;
  return by.is_final || request.step() < by.step;
}

// The partition's part in the complete checkpoint of the job's end. ALREADY_EXISTS: it belongs to
// another job.
absl::StatusOr<CheckpointPart> PartOfEnd(const CheckpointStore& store, const CheckpointId& id,
                                         uint32_t partition) {
  const std::string name = CheckpointStore::NameOf(id.job_name, id.step, id.is_final);
  PAWL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, store.ReadManifest(name));
  if (manifest.job_id() != id.job_id || partition >= static_cast<uint32_t>(manifest.parts_size())) {
    return absl::AlreadyExistsError(
        absl::StrCat(name, " in ", store.folder(), " belongs to another job with that name"));
  }
  return manifest.parts(static_cast<int>(partition));
}

void RunAll(std::vector<absl::AnyInvocable<void()>>& actions) {
  for (absl::AnyInvocable<void()>& action : actions) action();
}

}  // namespace

Checkpointer::Checkpointer(Env& env, DataPlane& plane, const Clock& clock, AllowedFolders folders,
                           bool has_thread)
    : env_(env), plane_(plane), clock_(clock), folders_(std::move(folders)) {
  if (has_thread) thread_ = std::thread([this] { Run(); });
}

Checkpointer::~Checkpointer() { Stop(); }

bool Checkpointer::IsStopping() {
  MutexLock lock(mu_);
  return stopping_;
}

void Checkpointer::Stop() {
  Actions actions;
  {
    MutexLock lock(mu_);
    if (std::exchange(stopping_, true)) return;
    const absl::Status status = absl::UnavailableError("the server is ending");
    if (attempt_ != nullptr) Abandon(attempt_, status, actions);
    if (load_.has_value()) {
      actions.emplace_back([done = std::move(load_->done), status]() mutable { done(status); });
      load_.reset();
    }
    wake_.NotifyAll();
  }
  RunAll(actions);
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Checkpointer::Attempt> Checkpointer::MakeAttempt(
    const CheckpointOnServerRequest& request) {
  auto attempt = std::make_shared<Attempt>();
  attempt->id = {request.job_id(), request.job_name(), request.step(), request.is_final()};
  attempt->dir = request.dir();
  attempt->cut = std::make_shared<Cut>();
  attempt->cut->step = request.step();
  // The attempt owns the cut; a cut that outlives it does nothing.
  attempt->cut->take = [this, weak = std::weak_ptr<Attempt>(attempt)](
                           const std::shared_ptr<Replica>& replica) PAWL_NO_THREAD_SAFETY_ANALYSIS {
    if (const std::shared_ptr<Attempt> taken = weak.lock(); taken != nullptr) Take(taken, replica);
  };
  return attempt;
}

void Checkpointer::Checkpoint(const CheckpointOnServerRequest& request, CheckpointDone done) {
  if (absl::Status status = folders_.CheckName(request.dir()); !status.ok())
    return done(std::move(status));
  Actions actions;
  const std::shared_ptr<Attempt> attempt = AttemptFor(request, std::move(done), actions);
  RunAll(actions);
  if (attempt == nullptr) return;
  const auto has = [&](uint32_t partition) {
    MutexLock lock(mu_);
    return attempt->parts.contains(partition);
  };
  const auto wanted = attempt->id.is_final
                          ? plane_.PrimariesAt(request.routing_epoch(), attempt->id.step)
                          : plane_.SetCut(request.routing_epoch(), attempt->cut, has);
  actions.clear();
  OnWanted(attempt, wanted, actions);
  RunAll(actions);
}

std::shared_ptr<Checkpointer::Attempt> Checkpointer::AttemptFor(
    const CheckpointOnServerRequest& request, CheckpointDone done, Actions& actions) {
  const auto answer = [&](absl::Status status) {
    actions.emplace_back([done = std::move(done), status = std::move(status)]() mutable {
      done(std::move(status));
    });
    return nullptr;
  };
  MutexLock lock(mu_);
  if (stopping_) return answer(absl::UnavailableError("the server is ending"));
  if (attempt_ != nullptr && attempt_->id.job_id == request.job_id() &&
      IsSuperseded(request, attempt_->id)) {
    return answer(absl::AbortedError(absl::StrCat(
        "a newer checkpoint was requested: ", attempt_->id.is_final ? "the job's end, " : "",
        "step ", attempt_->id.step)));
  }
  bool same = attempt_ != nullptr && attempt_->id.job_id == request.job_id() &&
              attempt_->id.step == request.step() && attempt_->id.is_final == request.is_final() &&
              attempt_->dir == request.dir();
  // There is no later step to request instead of the job's end.
  if (same && request.is_final() && (attempt_->lost || !attempt_->status.ok())) same = false;
  if (!same) {
    if (attempt_ != nullptr)
      Abandon(attempt_, absl::AbortedError("another checkpoint was requested"), actions);
    attempt_ = MakeAttempt(request);
  }
  attempt_->asked = clock_.Now();
  if (attempt_->done != nullptr) {
    actions.emplace_back([before = std::exchange(attempt_->done, nullptr)]() mutable {
      before(absl::AbortedError("superseded by a newer request"));
    });
  }
  if (!attempt_->status.ok()) return answer(attempt_->status);
  attempt_->done = std::move(done);
  attempt_->wanted.reset();
  return attempt_;
}

void Checkpointer::OnWanted(const std::shared_ptr<Attempt>& attempt,
                            const absl::StatusOr<std::vector<uint32_t>>& wanted, Actions& actions) {
  MutexLock lock(mu_);
  if (absl::IsUnavailable(wanted.status())) {
    // It can be retried later.
    if (attempt->done != nullptr) {
      actions.push_back([done = std::exchange(attempt->done, nullptr),
                         status = wanted.status()]() mutable { done(status); });
    }
  } else if (!wanted.ok()) {
    Abandon(attempt, wanted.status(), actions);
  } else if (attempt->status.ok()) {
    attempt->wanted = *wanted;
    if (attempt->id.is_final && attempt == attempt_) {
      to_write_.clear();
      for (const uint32_t partition : *wanted) {
        const auto found = attempt->parts.find(partition);
        const bool is_there = found != attempt->parts.end() && found->second.written.has_value() &&
                              !found->second.reported;
        if (!is_there) to_write_.push_back(partition);
      }
      wake_.NotifyAll();
    }
    MaybeAnswer(attempt, actions);
  }
}

void Checkpointer::Take(const std::shared_ptr<Attempt>& attempt,
                        const std::shared_ptr<Replica>& replica) {
  {
    MutexLock lock(mu_);
    if (!attempt->status.ok()) return;
  }
  Part part;
  part.mark = {replica, replica->partition->log_index(), replica->primary_since};
  part.held = HoldSnapshot(*replica->partition);
  MutexLock lock(mu_);
  if (!attempt->status.ok()) return;
  attempt->parts[replica->index] = std::move(part);
  to_write_.push_back(replica->index);
  wake_.NotifyAll();
}

void Checkpointer::Abandon(const std::shared_ptr<Attempt>& attempt, absl::Status status,
                           Actions& actions) {
  if (!attempt->status.ok()) return;
  attempt->status = std::move(status);
  attempt->parts.clear();
  if (attempt == attempt_) to_write_.clear();
  actions.emplace_back([this, attempt, done = std::exchange(attempt->done, nullptr),
                        status = attempt->status]() mutable {
    plane_.DropCut(attempt->cut);
    if (done != nullptr) done(status);
  });
}

void Checkpointer::MaybeAnswer(const std::shared_ptr<Attempt>& attempt, Actions& actions) {
  if (attempt->done == nullptr || !attempt->wanted.has_value() || !to_write_.empty()) return;
  CheckpointOnServerResponse response;
  std::vector<ChangeMark> marks;
  for (const uint32_t partition : *attempt->wanted) {
    const auto found = attempt->parts.find(partition);
    if (found == attempt->parts.end() || !found->second.written.has_value()) return;
    *response.add_parts() = *found->second.written;
    marks.push_back(found->second.mark);
  }
  for (const uint32_t partition : *attempt->wanted) attempt->parts[partition].reported = true;
  // An uncommitted part can still be lost with this server, as if it had never been written.
  actions.emplace_back([this, attempt, marks = std::move(marks), response = std::move(response),
                        done = std::exchange(attempt->done, nullptr)]() mutable {
    plane_.AwaitCommit(marks, [attempt, response = std::move(response),
                               done = std::move(done)](absl::Status status) mutable {
      if (status.ok()) return done(std::move(response));
      if (absl::IsAborted(status)) attempt->lost = true;
      done(std::move(status));
    });
  });
}

void Checkpointer::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      if (!stopping_ && to_write_.empty() && !load_.has_value())
        wake_.WaitUntil(mu_, std::chrono::steady_clock::now() + kWakeInterval);
      if (stopping_) return;
    }
    Work();
  }
}

void Checkpointer::Work() {
  Actions actions;
  std::shared_ptr<Attempt> attempt;
  std::optional<LoadAttempt> load;
  uint32_t partition = 0;
  Part part;
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    if (attempt_ != nullptr && clock_.Now() - attempt_->asked > kCheckpointAskInterval) {
      Abandon(attempt_, absl::AbortedError("the scheduler no longer asks for the checkpoint"),
              actions);
    }
    if (load_.has_value()) {
      load = std::exchange(load_, std::nullopt);
    } else if (!to_write_.empty()) {
      attempt = attempt_;
      partition = to_write_.front();
      to_write_.pop_front();
      part = std::exchange(attempt->parts[partition], Part());
    }
  }
  RunAll(actions);
  if (load.has_value()) load->done(LoadAll(load->request));
  if (attempt == nullptr) return;
  absl::Status why = Write(*attempt, partition, part);
  actions.clear();
  {
    MutexLock lock(mu_);
    if (attempt->id.is_final && absl::IsAborted(why)) {
      // The written parts stay: the next request is about the partitions present then.
      attempt->parts.erase(partition);
      const bool is_wanted =
          attempt->wanted.has_value() && std::find(attempt->wanted->begin(), attempt->wanted->end(),
                                                   partition) != attempt->wanted->end();
      if (is_wanted) {
        attempt->wanted.reset();
        if (attempt->done != nullptr) {
          actions.emplace_back(
              [done = std::exchange(attempt->done, nullptr), why]() mutable { done(why); });
        }
      }
    } else if (!why.ok()) {
      spdlog::warn("checkpoint of step {}: {}", attempt->id.step, why.ToString());
      // UNAVAILABLE would make the scheduler retry as if this server were away. It is not, and it
      // does not write the part again.
      if (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why))
        why = absl::InternalError(why.message());
      Abandon(attempt, std::move(why), actions);
    } else if (attempt->status.ok()) {
      attempt->parts[partition] = std::move(part);
      MaybeAnswer(attempt, actions);
    }
  }
  RunAll(actions);
}

absl::Status Checkpointer::Write(const Attempt& attempt, uint32_t partition, Part& part) {
  PAWL_RETURN_IF_ERROR(folders_.Check(attempt.dir));
  CheckpointStore store(env_, attempt.dir);
  const bool was_reported = std::exchange(part.reported, false);
  if (part.written.has_value() &&
      (!was_reported || store.CheckPart(attempt.id, *part.written).ok())) {
    return absl::OkStatus();
  }
  if (attempt.id.is_final) {
    PAWL_ASSIGN_OR_RETURN(TakenCut cut, plane_.TakeCutNow(partition, attempt.id.step));
    part.mark = std::move(cut.mark);
    part.held = std::move(cut.snapshot);
  }
  absl::StatusOr<CheckpointPart> written =
      WritePart(store, attempt.id, partition, *std::move(part.held));
  part.held.reset();
  // An earlier scheduler completed it and died before it could record that.
  if (attempt.id.is_final && absl::IsAlreadyExists(written.status()))
    written = PartOfEnd(store, attempt.id, partition);
  PAWL_RETURN_IF_ERROR(written.status());
  part.written = *std::move(written);
  return absl::OkStatus();
}

absl::StatusOr<CheckpointPart> Checkpointer::WritePart(CheckpointStore& store,
                                                       const CheckpointId& id, uint32_t partition,
                                                       HeldSnapshot held) {
  PAWL_ASSIGN_OR_RETURN(const auto writer, store.BeginPart(id, partition, held.log_index()));
  PAWL_RETURN_IF_ERROR(WritePartition(std::move(held), *writer, [this] { return !IsStopping(); }));
  return writer->Commit();
}

void Checkpointer::Load(const LoadCheckpointRequest& request, LoadDone done) {
  if (absl::Status status = folders_.CheckName(request.dir()); !status.ok())
    return done(std::move(status));
  absl::AnyInvocable<void()> refused;
  {
    MutexLock lock(mu_);
    if (stopping_) {
      refused = [done = std::move(done)]() mutable {
        done(absl::UnavailableError("the server is ending"));
      };
    } else {
      if (load_.has_value()) {
        refused = [before = std::move(load_->done)]() mutable {
          before(absl::AbortedError("superseded by a newer request"));
        };
      }
      load_ = LoadAttempt{request, std::move(done)};
      wake_.NotifyAll();
    }
  }
  if (refused != nullptr) refused();
}

absl::Status Checkpointer::LoadAll(const LoadCheckpointRequest& request) {
  PAWL_RETURN_IF_ERROR(folders_.Check(request.dir()));
  const CheckpointStore store(env_, request.dir());
  PAWL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, store.ReadManifest(request.name()));
  PAWL_ASSIGN_OR_RETURN(const std::vector<RecoveredReplica> primaries,
                        plane_.Primaries(request.routing_epoch()));
  size_t loaded = 0;
  for (const RecoveredReplica& primary : primaries) {
    if (primary.partition() >= static_cast<uint32_t>(manifest.parts_size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint ", request.name(), " has ", manifest.parts_size(),
                       " partitions, but the job has partition ", primary.partition()));
    }
    if (IsStopping()) return absl::UnavailableError("the server is ending");
    // Partitions stay unchanged until all are loaded.
    const uint64_t log_index = manifest.parts(static_cast<int>(primary.partition())).log_index();
    if (log_index == 0) continue;
    if (primary.log_index() >= log_index) {
      // An earlier attempt may have installed it without seeing it become durable.
      PAWL_RETURN_IF_ERROR(plane_.AwaitDurable(primary.partition(), log_index));
      continue;
    }
    PAWL_RETURN_IF_ERROR(LoadOne(store, manifest, primary.partition()));
    ++loaded;
  }
  spdlog::info("loaded {} of {} partitions from the checkpoint {}", loaded, primaries.size(),
               request.name());
  return absl::OkStatus();
}

absl::Status Checkpointer::LoadOne(const CheckpointStore& store, const CheckpointManifest& manifest,
                                   uint32_t partition) {
  PAWL_ASSIGN_OR_RETURN(const auto file, store.OpenPart(manifest, partition));
  auto loaded = plane_.LoadSaved(*file, partition, [this] { return !IsStopping(); });
  if (!loaded.ok()) return Annotate(loaded.status(), store.PartPath(manifest, partition));
  return plane_.Install(*std::move(loaded));
}

}  // namespace pawl
