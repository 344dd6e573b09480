#include "server/shard/partition.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

Partition::Partition(uint32_t index, const PartitionOptions& options)
    : index_(index),
      options_(options),
      workers_(options.logical_workers),
      step_sum_(options.logical_workers, options.consistency.backup_workers() > 0) {}

uint64_t Partition::row_count() const {
  uint64_t rows = 0;
  for (const auto& [id, part] : tables_) rows += part.row_count();
  return rows;
}

uint64_t Partition::parameter_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, part] : tables_) bytes += part.parameter_bytes();
  return bytes;
}

absl::Status Partition::CreateTable(std::shared_ptr<const TableSchema> table) {
  const uint32_t id = table->id();
  if (const TablePart* part = FindTable(id); part != nullptr) {
    if (part->shared_table() == table || part->table().spec().SerializeAsString() == table->spec().SerializeAsString()) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(
        absl::StrCat("table ", id, " exists as '", part->table().spec().name(), "' with another spec"));
  }
  if (tables_.size() >= kMaxTablesOfPartition) {
    return absl::ResourceExhaustedError(absl::StrCat("a job has at most ", kMaxTablesOfPartition, " tables"));
  }
  tables_.try_emplace(id, std::move(table));
  ++log_index_;
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const TableSchema>> Partition::tables() const {
  std::vector<std::shared_ptr<const TableSchema>> schemas;
  for (const auto& [id, part] : tables_) schemas.push_back(part.shared_table());
  return schemas;
}

const TablePart* Partition::FindTable(uint32_t table) const {
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : &found->second;
}

TablePart& Partition::MutableTable(uint32_t table) { return tables_.find(table)->second; }

absl::Status Partition::CheckLife(uint32_t rank, uint64_t incarnation) const {
  if (rank >= workers_.size()) {
    return absl::OutOfRangeError(absl::StrCat("logical worker ", rank, ": the job has ", workers_.size()));
  }
  const Worker& worker = workers_[rank];
  if (incarnation < worker.incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", incarnation, " of logical worker ", rank,
                                           " is superseded by incarnation ", worker.incarnation));
  }
  if (worker.released && incarnation == worker.incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", incarnation, " of logical worker ", rank,
                                           " is over: the logical worker has been released"));
  }
  return absl::OkStatus();
}

absl::Status Partition::CheckSender(const Sender& sender) const {
  if (sender.kind == Sender::Kind::kLogicalWorker) {
    PAWL_RETURN_IF_ERROR(CheckLife(sender.number, sender.incarnation));
    const Worker& worker = workers_[sender.number];
    if (!worker.released) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number, " is released since incarnation ",
                                                      worker.incarnation, "; incarnation ", sender.incarnation,
                                                      " must take over first"));
  }
  if (sender.number >= kMaxClients) {
    return absl::OutOfRangeError(absl::StrCat("client ", sender.number, ": numbers go up to ", kMaxClients - 1));
  }
  const auto found = clients_.find(sender.number);
  if (found != clients_.end() && sender.incarnation < found->second.incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", sender.incarnation, " of client ", sender.number,
                                           " is superseded by incarnation ", found->second.incarnation));
  }
  return absl::OkStatus();
}

absl::StatusOr<PushWindow::Answer> Partition::LookUp(const Sender& sender, uint64_t ordinal) const {
  PAWL_RETURN_IF_ERROR(CheckSender(sender));
  PushWindow::Answer answer = PushWindow::Answer::kNew;
  if (sender.kind == Sender::Kind::kLogicalWorker) {
    const Worker& worker = workers_[sender.number];
    if (sender.step < worker.clock) return PushWindow::Answer::kDuplicate;
    if (sender.step > worker.clock) {
      return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number, " pushes for step ", sender.step,
                                                        " but has not ended step ", worker.clock));
    }
    answer = worker.window.Look(ordinal);
  } else if (const auto found = clients_.find(sender.number);
             found != clients_.end() && found->second.incarnation == sender.incarnation) {
    answer = found->second.window.Look(ordinal);
  } else {
    answer = PushWindow().Look(ordinal);
  }
  if (answer == PushWindow::Answer::kBeyondWindow) {
    return absl::OutOfRangeError(
        absl::StrCat("ordinal ", ordinal, " is ", kPushWindow, " or more ahead of the first one that is missing"));
  }
  return answer;
}

absl::Status Partition::CheckRoom(const Sender& sender, uint32_t table, const ByteView& keys, size_t value_bytes,
                                  const PushesAhead& ahead) const {
  if (sender.kind == Sender::Kind::kLogicalWorker && options_.consistency.mode() == SYNC && sender.step == version_ &&
      !step_sum_.MustTake(sender.number, NeededWorkers()) &&
      step_sum_.staged_bytes() + ahead.bytes + keys.size() + value_bytes > options_.max_staged_bytes) {
    return absl::UnavailableError(absl::StrCat("partition ", index_, " keeps ", step_sum_.staged_bytes(),
                                               " bytes of gradients that came before those of lower ranks; the limit is ",
                                               options_.max_staged_bytes));
  }
  // Counting what is there is only needed near the limit.
  const uint64_t coming = step_sum_.key_count() + ahead.keys;
  if (row_count() + coming + keys.size() / sizeof(uint64_t) > options_.max_rows) {
    const uint64_t missing = FindTable(table)->CountMissing(keys);
    if (missing > 0 && row_count() + coming + missing > options_.max_rows) {
      return absl::ResourceExhaustedError(
          absl::StrCat("partition ", index_, " holds ", row_count(), " rows of at most ", options_.max_rows));
    }
  }
  return absl::OkStatus();
}

absl::Status Partition::CheckPush(const Sender& sender, uint64_t ordinal, uint32_t table, const ByteView& keys,
                                  size_t value_bytes, const PushesAhead& ahead) const {
  PAWL_ASSIGN_OR_RETURN(const PushWindow::Answer answer, LookUp(sender, ordinal));
  return answer == PushWindow::Answer::kNew ? CheckRoom(sender, table, keys, value_bytes, ahead) : absl::OkStatus();
}

absl::StatusOr<PushOutcome> Partition::Push(const Sender& sender, uint64_t ordinal, uint32_t table, Gradient gradient) {
  PAWL_RETURN_IF_ERROR(CheckPush(sender, ordinal, table, gradient.keys, gradient.values.size()));
  return Take(sender, ordinal, table, std::move(gradient));
}

absl::StatusOr<PushOutcome> Partition::Take(const Sender& sender, uint64_t ordinal, uint32_t table, Gradient gradient) {
  PAWL_RETURN_IF_ERROR(LookUp(sender, ordinal).status());
  const bool is_worker = sender.kind == Sender::Kind::kLogicalWorker;
  PushWindow::Answer answer = PushWindow::Answer::kDuplicate;
  if (is_worker) {
    Worker& worker = workers_[sender.number];
    if (sender.step == worker.clock) answer = worker.window.Take(ordinal);
    if (answer == PushWindow::Answer::kNew) worker.incarnation = sender.incarnation;
  } else {
    Client& client = clients_[sender.number];
    if (client.incarnation != sender.incarnation) client = Client{sender.incarnation, PushWindow()};
    answer = client.window.Take(ordinal);
  }
  if (answer == PushWindow::Answer::kDuplicate) return PushOutcome::kDuplicate;
  ++log_index_;
  TablePart& part = MutableTable(table);
  if (is_worker && options_.consistency.mode() == SYNC) {
    if (sender.step < version_) {
      ++counters_.pushes_late;
      return PushOutcome::kLate;
    }
    counters_.keys_pushed += gradient.keys.size() / sizeof(uint64_t);
    // The table outlives the sum: tables are never dropped.
    step_sum_.Add(sender.number, ordinal, part.shared_table(), std::move(gradient));
  } else {
    counters_.keys_pushed += gradient.keys.size() / sizeof(uint64_t);
    part.Apply(is_worker ? sender.step : min_clock_, 1.0f, gradient);
  }
  ++counters_.pushes_applied;
  return PushOutcome::kAccepted;
}

absl::Status Partition::CheckEndStep(const Sender& sender, std::optional<uint64_t> segments) const {
  // Client numbers go further than ranks do.
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return absl::InvalidArgumentError(
        absl::StrCat("client ", sender.number, " ends a step: only a logical worker ends steps"));
  }
  PAWL_RETURN_IF_ERROR(CheckSender(sender));
  const Worker& worker = workers_[sender.number];
  if (sender.step < worker.clock) return absl::OkStatus();
  if (sender.step > worker.clock) {
    return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number, " ends step ", sender.step,
                                                      " but has not ended step ", worker.clock));
  }
  const bool is_sync = options_.consistency.mode() == SYNC;
  if (segments.has_value() && (worker.window.contiguous() < *segments || (is_sync && worker.window.count() != *segments))) {
    return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number, " ends step ", sender.step,
                                                      " after ", *segments, " segments for partition ", index_,
                                                      ", which has taken ", worker.window.count(), ", those below ordinal ",
                                                      worker.window.contiguous(), " without a gap"));
  }
  if ((is_sync || !segments.has_value()) && worker.window.has_gap()) {
    return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number, " ends step ", sender.step,
                                                      " but its push with ordinal ", worker.window.contiguous(),
                                                      " has not arrived"));
  }
  return absl::OkStatus();
}

size_t Partition::EndedWorkers() const {
  return std::count_if(workers_.begin(), workers_.end(), [&](const Worker& worker) { return worker.clock > version_; });
}

bool Partition::EndClosesStep(const Sender& sender) const {
  return sender.kind == Sender::Kind::kLogicalWorker && sender.step == version_ && sender.number < workers_.size() &&
         workers_[sender.number].clock == version_ && EndsCloseStep(1);
}

bool Partition::EndsCloseStep(size_t ends) const {
  return options_.consistency.mode() == SYNC && EndedWorkers() + ends >= NeededWorkers();
}

absl::Status Partition::EndStep(const Sender& sender, std::optional<uint64_t> segments) {
  PAWL_RETURN_IF_ERROR(CheckEndStep(sender, segments));
  Worker& worker = workers_[sender.number];
  if (sender.step < worker.clock) return absl::OkStatus();
  ++log_index_;
  worker.incarnation = sender.incarnation;
  worker.clock = sender.step + 1;
  worker.window = PushWindow();
  UpdateMinClock();
  if (options_.consistency.mode() == SYNC) {
    if (sender.step == version_) step_sum_.End(sender.number);
    CloseSteps();
  }
  return absl::OkStatus();
}

void Partition::CloseSteps() {
  for (;;) {
    const size_t ended = EndedWorkers();
    if (ended < NeededWorkers()) return;
    const float scale = 1.0f / static_cast<float>(ended);
    const uint64_t dropped = step_sum_.Close([&](const TableSchema& table, uint64_t key, const float* sum) {
      MutableTable(table.id()).ApplyRow(version_, scale, key, sum);
    });
    counters_.pushes_applied -= dropped;
    counters_.pushes_late += dropped;
    ++version_;
    // Who has nothing to push here may be ahead.
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      if (workers_[rank].clock > version_) step_sum_.End(rank);
    }
  }
}

absl::StatusOr<uint64_t> Partition::TakeOver(uint32_t rank, uint64_t incarnation) {
  PAWL_RETURN_IF_ERROR(CheckLife(rank, incarnation));
  Worker& worker = workers_[rank];
  if (incarnation == worker.incarnation) return worker.clock;
  ++log_index_;
  worker.incarnation = incarnation;
  if (worker.released) {
    worker.released = false;
    worker.counts_from = min_clock_;
    // With all of them released it had stayed behind this rank's clock.
    UpdateMinClock();
  }
  return worker.clock;
}

absl::Status Partition::Release(uint32_t rank, uint64_t incarnation) {
  if (rank >= workers_.size()) {
    return absl::OutOfRangeError(absl::StrCat("logical worker ", rank, ": the job has ", workers_.size()));
  }
  if (options_.consistency.mode() == SYNC) {
    return absl::FailedPreconditionError(absl::StrCat("logical worker ", rank, " cannot be released: the job is SYNC"));
  }
  Worker& worker = workers_[rank];
  if (incarnation < worker.incarnation || (worker.released && incarnation == worker.incarnation)) {
    return absl::OkStatus();
  }
  ++log_index_;
  worker.incarnation = incarnation;
  worker.released = true;
  UpdateMinClock();
  return absl::OkStatus();
}

std::optional<uint64_t> Partition::LowestClock() const {
  std::optional<uint64_t> lowest;
  for (const Worker& worker : workers_) {
    if (worker.released) continue;
    const uint64_t counted = std::max(worker.clock, worker.counts_from);
    lowest = std::min(lowest.value_or(counted), counted);
  }
  return lowest;
}

void Partition::UpdateMinClock() {
  // With all of them released, it stays where it is.
  min_clock_ = LowestClock().value_or(min_clock_);
}

bool Partition::CanPull(uint64_t step) const {
  switch (options_.consistency.mode()) {
    case SYNC:
      return version_ >= step;
    case BOUNDED:
      return min_clock_ + options_.consistency.staleness() >= step;
    default:
      return true;
  }
}

uint64_t Partition::Staleness(uint32_t rank, uint64_t step) const {
  // The bound is the promise of this mode: to break it is worse than to stop.
  if (!CanPull(step)) std::abort();
  const uint64_t behind = options_.consistency.mode() == SYNC ? version_ : min_clock_;
  const bool is_its_step = step <= workers_[rank].clock + 1;
  return is_its_step && step > behind ? step - behind : 0;
}

void Partition::Pull(uint32_t table, const ByteView& keys, char* out) const { FindTable(table)->Read(keys, out); }

void Partition::Lend(uint32_t table, const ByteView& keys, std::vector<BlockLoan>& loans) const {
  FindTable(table)->Lend(keys, loans);
}

absl::Status Partition::ReopenStep() {
  if (options_.consistency.mode() != SYNC) return absl::OkStatus();
  const bool has_gradients =
      step_sum_.key_count() > 0 || std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
        return worker.clock >= version_ && worker.window.count() > 0;
      });
  if (has_gradients) {
    return absl::FailedPreconditionError(absl::StrCat("partition ", index_, " has gradients of step ", version_,
                                                      " already: it was not saved between two steps"));
  }
  bool changed = false;
  for (Worker& worker : workers_) {
    changed |= worker.clock != version_;
    worker.clock = version_;
    worker.window = PushWindow();
  }
  if (!changed) return absl::OkStatus();
  ++log_index_;
  UpdateMinClock();
  // Nothing is in it but who had ended.
  step_sum_.Close([](const TableSchema&, uint64_t, const float*) {});
  return absl::OkStatus();
}

void Partition::KeepBest(uint64_t step) {
  if (step <= best_step_) return;
  best_step_ = step;
  ++log_index_;
  for (auto& [id, part] : tables_) part.KeepBest();
}

void Partition::RestoreBest() {
  if (best_step_ == 0 || restored_at_ == log_index_) return;
  restored_at_ = ++log_index_;
  for (auto& [id, part] : tables_) part.RestoreBest();
}

}  // namespace pawl
