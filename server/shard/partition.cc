#include "server/shard/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

absl::Status CheckLearningRates(const Sender& sender, absl::Span<const TableRate> rates,
                                absl::FunctionRef<const TableSchema*(uint32_t table)> find) {
  if (sender.kind != Sender::Kind::kLogicalWorker || sender.number != 0)
    return absl::InvalidArgumentError("only logical worker 0 sets learning rates");
  if (rates.empty()) return absl::InvalidArgumentError("no learning rates are given");
  std::vector<uint32_t> tables;
  for (const TableRate& rate : rates) {
    const TableSchema* const table = find(rate.table);
    if (table == nullptr)
      return absl::NotFoundError(absl::StrCat("there is no table with id ", rate.table));
    if (table->spec().optimizer().has_assign() || !std::isfinite(rate.rate) || rate.rate <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", table->spec().name(), "': learning rate ", rate.rate,
                       "; it must be finite and above 0, and the optimizer must have one"));
    }
    tables.push_back(rate.table);
  }
  std::sort(tables.begin(), tables.end());
  if (std::adjacent_find(tables.begin(), tables.end()) == tables.end()) return absl::OkStatus();
  return absl::InvalidArgumentError("a table has two learning rates");
}

Partition::Partition(uint32_t index, const PartitionOptions& options)
    : index_(index),
      options_(options),
      workers_(options.logical_workers),
      step_sum_(options.logical_workers, options.consistency.backup_workers() > 0) {
  CountAll();
}

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

absl::Status Partition::SetTerm(uint64_t term) {
  if (terms_.Begin(log_index_ + 1, term)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("partition ", index_, ": change ", log_index_ + 1,
                                          ", of term ", term, ", follows one of term ",
                                          terms_.last_term()));
}

absl::Status Partition::CreateTable(std::shared_ptr<const TableSchema> table) {
  const uint32_t id = table->id();
  if (const TablePart* part = FindTable(id); part != nullptr) {
    if (part->shared_table() == table ||
        part->table().spec().SerializeAsString() == table->spec().SerializeAsString()) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(absl::StrCat(
        "table ", id, " exists as '", part->table().spec().name(), "' with another spec"));
  }
  if (tables_.size() >= kMaxTablesOfPartition) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a job has at most ", kMaxTablesOfPartition, " tables"));
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

absl::Status Partition::CheckIncarnation(uint32_t rank, uint64_t incarnation) const {
  if (rank >= workers_.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("logical worker ", rank, ": the job has ", workers_.size()));
  }
  const Worker& worker = workers_[rank];
  if (incarnation < worker.incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", incarnation, " of logical worker ", rank,
                                           " is superseded by incarnation ", worker.incarnation));
  }
  if (worker.released && incarnation == worker.incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", incarnation, " of logical worker ", rank,
                                           " has ended: the logical worker was released"));
  }
  return absl::OkStatus();
}

absl::Status Partition::CheckSender(const Sender& sender) const {
  if (sender.kind == Sender::Kind::kLogicalWorker) {
    PAWL_RETURN_IF_ERROR(CheckIncarnation(sender.number, sender.incarnation));
    const Worker& worker = workers_[sender.number];
    if (!worker.released) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "logical worker ", sender.number, " was released after incarnation ", worker.incarnation,
        "; incarnation ", sender.incarnation, " must take over first"));
  }
  if (sender.number >= kMaxClients) {
    return absl::OutOfRangeError(
        absl::StrCat("client ", sender.number, ": the largest number is ", kMaxClients - 1));
  }
  const auto found = clients_.find(sender.number);
  if (found != clients_.end() && sender.incarnation < found->second.incarnation) {
    return absl::AbortedError(absl::StrCat("incarnation ", sender.incarnation, " of client ",
                                           sender.number, " is superseded by incarnation ",
                                           found->second.incarnation));
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
      return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number,
                                                        " pushes for step ", sender.step,
                                                        " but has not ended step ", worker.clock));
    }
    answer = WindowOf(worker).Look(ordinal);
  } else if (const auto found = clients_.find(sender.number);
             found != clients_.end() && found->second.incarnation == sender.incarnation) {
    answer = found->second.window.Look(ordinal);
  } else {
    answer = PushWindow().Look(ordinal);
  }
  if (answer == PushWindow::Answer::kBeyondWindow) {
    return absl::OutOfRangeError(absl::StrCat("ordinal ", ordinal, " is ", kPushWindow,
                                              " or more ahead of the first missing one"));
  }
  return answer;
}

absl::Status Partition::CheckStaging(const Sender& sender, uint64_t ordinal,
                                     const Gradient& gradient) const {
  if (sender.kind == Sender::Kind::kLogicalWorker && options_.consistency.mode() == SYNC &&
      sender.step == version_ &&
      step_sum_.staged_bytes() + StepSum::StagedBytes(gradient) > options_.max_staged_bytes &&
      !step_sum_.MustTake(sender.number, ordinal, NeededWorkers())) {
    return absl::UnavailableError(
        absl::StrCat("partition ", index_, " keeps ", step_sum_.staged_bytes(),
                     " bytes of gradients that wait for earlier ones; the limit is ",
                     options_.max_staged_bytes));
  }
  return absl::OkStatus();
}

absl::Status Partition::CheckRows(uint32_t table, const ByteView& keys) const {
  // Counting the existing rows is only needed near the limit.
  const uint64_t coming = step_sum_.key_count();
  if (row_count() + coming + keys.size() / sizeof(uint64_t) > options_.max_rows) {
    const uint64_t missing = FindTable(table)->CountMissing(keys);
    if (missing > 0 && row_count() + coming + missing > options_.max_rows) {
      return absl::ResourceExhaustedError(absl::StrCat("partition ", index_, " holds ", row_count(),
                                                       " rows; the limit is ", options_.max_rows));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PushOutcome> Partition::Push(const Sender& sender, uint64_t ordinal, uint32_t table,
                                            Gradient gradient) {
  PAWL_ASSIGN_OR_RETURN(const PushWindow::Answer answer, LookUp(sender, ordinal));
  if (answer == PushWindow::Answer::kDuplicate) return PushOutcome::kDuplicate;
  if (sender.kind == Sender::Kind::kLogicalWorker && options_.consistency.mode() == SYNC &&
      !CanPull(sender.step)) {
    return PushOutcome::kEarly;
  }
  PAWL_RETURN_IF_ERROR(CheckStaging(sender, ordinal, gradient));
  PAWL_RETURN_IF_ERROR(CheckRows(table, gradient.keys));
  return Accept(sender, ordinal, table, std::move(gradient));
}

absl::StatusOr<PushOutcome> Partition::PushReplicated(const Sender& sender, uint64_t ordinal,
                                                      uint32_t table, Gradient gradient) {
  PAWL_ASSIGN_OR_RETURN(const PushWindow::Answer answer, LookUp(sender, ordinal));
  if (answer == PushWindow::Answer::kDuplicate) return PushOutcome::kDuplicate;
  return Accept(sender, ordinal, table, std::move(gradient));
}

absl::Status Partition::CheckMayAssign(const Sender& sender) const {
  if (sender.kind == Sender::Kind::kClient) return absl::OkStatus();
  // SYNC: the gradients of other ranks may have been computed without the assignment, and after the
  // step has closed (without this rank, if there are backup workers) pulls have read the rows.
  const bool has_gradients = step_sum_.key_count() > 0;
  const bool is_closed = options_.consistency.mode() == SYNC && version_ > 0;
  if (sender.step == 0 && !is_closed && !has_gradients) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "logical worker ", sender.number, " assigns at step ", sender.step, " in partition ", index_,
      has_gradients ? ", which has gradients of that step" : "",
      "; a logical worker may assign only in the job's first step, and in SYNC mode only before "
      "any gradient: let the others wait for it, or assign as a free-running client"));
}

absl::StatusOr<PushOutcome> Partition::Assign(const Sender& sender, uint64_t ordinal,
                                              uint32_t table, const Assignment& assignment) {
  PAWL_ASSIGN_OR_RETURN(const PushWindow::Answer answer, LookUp(sender, ordinal));
  if (answer == PushWindow::Answer::kDuplicate) return PushOutcome::kDuplicate;
  PAWL_RETURN_IF_ERROR(CheckMayAssign(sender));
  PAWL_RETURN_IF_ERROR(CheckRows(table, assignment.keys));
  return AcceptAssigned(sender, ordinal, table, assignment);
}

absl::StatusOr<PushOutcome> Partition::AssignReplicated(const Sender& sender, uint64_t ordinal,
                                                        uint32_t table,
                                                        const Assignment& assignment) {
  PAWL_ASSIGN_OR_RETURN(const PushWindow::Answer answer, LookUp(sender, ordinal));
  if (answer == PushWindow::Answer::kDuplicate) return PushOutcome::kDuplicate;
  return AcceptAssigned(sender, ordinal, table, assignment);
}

PushOutcome Partition::AcceptAssigned(const Sender& sender, uint64_t ordinal, uint32_t table,
                                      const Assignment& assignment) {
  TakeOrdinal(sender, ordinal);
  TablePart& part = tables_.find(table)->second;
  part.Assign(assignment);
  if (sender.kind == Sender::Kind::kLogicalWorker && options_.consistency.mode() == SYNC &&
      sender.step == version_) {
    SkipInSum(sender, ordinal, part);
  }
  counters_.keys_pushed += assignment.keys.size() / sizeof(uint64_t);
  ++counters_.pushes_applied;
  return PushOutcome::kAccepted;
}

void Partition::SkipInSum(const Sender& sender, uint64_t ordinal, const TablePart& part) {
  step_sum_.Add(sender.number, ordinal, part.shared_table(), Gradient(),
                [this](uint32_t rank) { return HasEnded(rank); });
}

absl::StatusOr<PushOutcome> Partition::SetLearningRates(const Sender& sender, uint64_t ordinal,
                                                        absl::Span<const TableRate> rates) {
  PAWL_ASSIGN_OR_RETURN(const PushWindow::Answer answer, LookUp(sender, ordinal));
  if (answer == PushWindow::Answer::kDuplicate) return PushOutcome::kDuplicate;
  const bool is_sync = options_.consistency.mode() == SYNC;
  if (is_sync && !CanPull(sender.step)) return PushOutcome::kEarly;
  TakeOrdinal(sender, ordinal);
  if (is_sync && sender.step < version_) {
    ++counters_.pushes_late;
    return PushOutcome::kLate;
  }
  ++counters_.pushes_applied;
  for (const TableRate& rate : rates) {
    if (!is_sync) {
      tables_.find(rate.table)->second.set_base_rate(rate.rate);
      continue;
    }
    // The last one of the step counts, whatever the order of arrival.
    PendingRate& pending = pending_rates_[rate.table];
    if (pending.rate == 0 || pending.ordinal < ordinal) pending = {ordinal, rate.rate};
  }
  if (is_sync) SkipInSum(sender, ordinal, tables_.find(rates[0].table)->second);
  return PushOutcome::kAccepted;
}

void Partition::TakeOrdinal(const Sender& sender, uint64_t ordinal) {
  ++log_index_;
  if (sender.kind == Sender::Kind::kLogicalWorker) {
    Worker& worker = workers_[sender.number];
    if (worker.window == nullptr) worker.window = std::make_unique<PushWindow>();
    worker.window->Take(ordinal);
    worker.incarnation = sender.incarnation;
  } else {
    Client& client = clients_[sender.number];
    if (client.incarnation != sender.incarnation) client = Client{sender.incarnation, PushWindow()};
    client.window.Take(ordinal);
  }
}

PushOutcome Partition::Accept(const Sender& sender, uint64_t ordinal, uint32_t table,
                              Gradient gradient) {
  TakeOrdinal(sender, ordinal);
  const bool is_worker = sender.kind == Sender::Kind::kLogicalWorker;
  TablePart& part = tables_.find(table)->second;
  if (is_worker && options_.consistency.mode() == SYNC) {
    if (sender.step < version_) {
      ++counters_.pushes_late;
      return PushOutcome::kLate;
    }
    counters_.keys_pushed += gradient.keys.size() / sizeof(uint64_t);
    // The table outlives the sum: tables are never dropped.
    step_sum_.Add(sender.number, ordinal, part.shared_table(), std::move(gradient),
                  [this](uint32_t rank) { return HasEnded(rank); });
  } else {
    counters_.keys_pushed += gradient.keys.size() / sizeof(uint64_t);
    part.Apply(is_worker ? sender.step : min_clock_,
               is_worker ? StalenessFactor(sender.step) : 1.0f, gradient);
  }
  ++counters_.pushes_applied;
  return PushOutcome::kAccepted;
}

float Partition::StalenessFactor(uint64_t step) const {
  if (!options_.consistency.staleness_aware() || clocks_.empty()) return 1.0f;
  const uint64_t fastest = clocks_.rbegin()->first;
  return fastest > step ? 1.0f / static_cast<float>(fastest - step) : 1.0f;
}

absl::Status Partition::CheckEndStep(const Sender& sender, std::optional<uint64_t> segments) const {
  // Client numbers can exceed the number of ranks.
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return absl::InvalidArgumentError(
        absl::StrCat("client ", sender.number, " ends a step, but only logical workers can"));
  }
  PAWL_RETURN_IF_ERROR(CheckSender(sender));
  const Worker& worker = workers_[sender.number];
  if (sender.step < worker.clock) return absl::OkStatus();
  if (sender.step > worker.clock) {
    return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number,
                                                      " ends step ", sender.step,
                                                      " but has not ended step ", worker.clock));
  }
  if (ClipsGlobalNorm() && sender.step > version_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "logical worker ", sender.number, " ends step ", sender.step, ", but step ", version_,
        " has not closed in partition ", index_, "; close it first (EndStepRequest.CLOSE)"));
  }
  const bool is_sync = options_.consistency.mode() == SYNC;
  const PushWindow& window = WindowOf(worker);
  if (segments.has_value() &&
      (window.contiguous() < *segments || (is_sync && window.count() != *segments))) {
    return absl::FailedPreconditionError(
        absl::StrCat("logical worker ", sender.number, " ends step ", sender.step, " after ",
                     *segments, " segments for partition ", index_, ", which has received ",
                     window.count(), ", the first missing ordinal being ", window.contiguous()));
  }
  if ((is_sync || !segments.has_value()) && window.has_gap()) {
    return absl::FailedPreconditionError(
        absl::StrCat("logical worker ", sender.number, " ends step ", sender.step,
                     " but its push with ordinal ", window.contiguous(), " has not arrived"));
  }
  return absl::OkStatus();
}

bool Partition::WouldCompleteStep(const Sender& sender) const {
  return sender.kind == Sender::Kind::kLogicalWorker && sender.step == version_ &&
         sender.number < workers_.size() && workers_[sender.number].clock == version_ &&
         WouldCompleteStep(1);
}

bool Partition::WouldCompleteStep(size_t ends) const {
  return options_.consistency.mode() == SYNC && ended_ + ends >= NeededWorkers();
}

absl::Status Partition::EndStep(const Sender& sender, std::optional<uint64_t> segments) {
  PAWL_RETURN_IF_ERROR(CheckEndStep(sender, segments));
  Worker& worker = workers_[sender.number];
  if (sender.step < worker.clock) return absl::OkStatus();
  ++log_index_;
  restored_at_ = 0;
  worker.incarnation = sender.incarnation;
  Uncount(worker);
  worker.clock = sender.step + 1;
  worker.window = nullptr;
  Count(worker);
  UpdateMinClock();
  if (options_.consistency.mode() == SYNC && sender.step == version_) {
    ++ended_;
    step_sum_.OnRanksEnded([this](uint32_t rank) { return HasEnded(rank); });
    if (!ClipsGlobalNorm()) {
      CloseSteps();
    } else if (ended_ == workers_.size()) {
      open_squares_ = step_sum_.Squares(1.0f / static_cast<float>(ended_));
    }
  }
  return absl::OkStatus();
}

absl::Status Partition::CheckMayClose(const Sender& sender) const {
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return absl::InvalidArgumentError(
        absl::StrCat("client ", sender.number, " closes a step, but only logical workers can"));
  }
  PAWL_RETURN_IF_ERROR(CheckSender(sender));
  if (ClipsGlobalNorm()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the job has no clip_global_norm: a step closes when the last logical worker ends it");
}

absl::Status Partition::CheckCloseStep(const Sender& sender, float scale) const {
  PAWL_RETURN_IF_ERROR(CheckMayClose(sender));
  if (!(scale > 0 && scale <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scale is ", scale, "; it must be above 0 and at most 1"));
  }
  if (sender.step + 1 == version_ && closed_scale_.value_or(scale) != scale) {
    return absl::FailedPreconditionError(absl::StrCat(
        "logical worker ", sender.number, " closes step ", sender.step, " with the scale ", scale,
        " but in partition ", index_, " it has closed with the scale ", *closed_scale_,
        "; all logical workers must compute the same one"));
  }
  if (sender.step < version_ || HaveAllEnded(sender.step)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("logical worker ", sender.number, " closes step ", sender.step,
                   " but in partition ", index_, " not all have ended it; step ", version_,
                   " is open, and ", ended_, " of ", workers_.size(), " have ended it"));
}

absl::Status Partition::CloseStep(const Sender& sender, float scale) {
  PAWL_RETURN_IF_ERROR(CheckCloseStep(sender, scale));
  if (sender.step < version_) return absl::OkStatus();
  ++log_index_;
  closed_squares_ = std::exchange(open_squares_, 0.0);
  closed_scale_ = scale;
  CloseOpenStep(scale);
  return absl::OkStatus();
}

absl::Status Partition::CheckStepSquares(const Sender& sender) const {
  PAWL_RETURN_IF_ERROR(CheckMayClose(sender));
  if (sender.step >= workers_[sender.number].clock) {
    return absl::FailedPreconditionError(absl::StrCat("logical worker ", sender.number,
                                                      " waits for the ends of step ", sender.step,
                                                      ", which it has not ended itself"));
  }
  return absl::OkStatus();
}

double Partition::StepSquares(uint64_t step) const {
  if (step == version_) return open_squares_;
  return step + 1 == version_ ? closed_squares_ : 0;
}

void Partition::CloseSteps() {
  while (ended_ >= NeededWorkers()) CloseOpenStep(/*clip_scale=*/1.0f);
}

void Partition::CloseOpenStep(float clip_scale) {
  const auto has_ended = [this](uint32_t rank) { return HasEnded(rank); };
  // A step that closes without rank 0 drops its rates as well as its gradients.
  if (!pending_rates_.empty() && HasEnded(0)) {
    for (const auto& [table, pending] : pending_rates_)
      tables_.find(table)->second.set_base_rate(pending.rate);
  }
  pending_rates_.clear();
  // One factor, so that clipping takes no pass of its own. The rule `assign` ignores it.
  const float scale = 1.0f / static_cast<float>(ended_) * clip_scale;
  const uint64_t dropped = step_sum_.Close(has_ended, [&](const GradientSum& sum) {
    tables_.find(sum.table()->id())->second.Apply(version_, scale, sum);
  });
  counters_.pushes_applied -= dropped;
  counters_.pushes_late += dropped;
  ++version_;
  // Ranks that have also ended the next step stay counted.
  if (const auto at = clocks_.find(version_); at != clocks_.end()) ended_ -= at->second;
  // A rank that pushes nothing here may be ahead.
  step_sum_.OnRanksEnded(has_ended);
}

absl::StatusOr<uint64_t> Partition::TakeOver(uint32_t rank, uint64_t incarnation) {
  PAWL_RETURN_IF_ERROR(CheckIncarnation(rank, incarnation));
  Worker& worker = workers_[rank];
  if (incarnation == worker.incarnation) return worker.clock;
  ++log_index_;
  worker.incarnation = incarnation;
  if (worker.released) {
    worker.released = false;
    worker.counts_from = min_clock_;
    Count(worker);
    // While all ranks were released, min_clock stayed behind this rank's clock.
    UpdateMinClock();
  }
  return worker.clock;
}

absl::Status Partition::Release(uint32_t rank, uint64_t incarnation) {
  if (rank >= workers_.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("logical worker ", rank, ": the job has ", workers_.size()));
  }
  if (options_.consistency.mode() == SYNC) {
    return absl::FailedPreconditionError(
        absl::StrCat("logical worker ", rank, " cannot be released in a SYNC job"));
  }
  Worker& worker = workers_[rank];
  if (incarnation < worker.incarnation || (worker.released && incarnation == worker.incarnation)) {
    return absl::OkStatus();
  }
  ++log_index_;
  worker.incarnation = incarnation;
  if (!worker.released) Uncount(worker);
  worker.released = true;
  UpdateMinClock();
  return absl::OkStatus();
}

const PushWindow& Partition::WindowOf(const Worker& worker) const {
  static const PushWindow none;
  return worker.window == nullptr ? none : *worker.window;
}

void Partition::Count(const Worker& worker) {
  ++clocks_[worker.Counted()];
  if (worker.IsExempt()) ++exempt_clocks_[worker.clock];
}

void Partition::Uncount(const Worker& worker) {
  const auto take = [](absl::btree_map<uint64_t, uint32_t>& counts, uint64_t clock) {
    const auto at = counts.find(clock);
    if (--at->second == 0) counts.erase(at);
  };
  take(clocks_, worker.Counted());
  if (worker.IsExempt()) take(exempt_clocks_, worker.clock);
}

void Partition::CountAll() {
  clocks_.clear();
  exempt_clocks_.clear();
  ended_ = 0;
  for (const Worker& worker : workers_) {
    if (!worker.released) Count(worker);
    ended_ += worker.clock > version_;
  }
}

std::optional<uint64_t> Partition::LowestClock() const {
  if (clocks_.empty()) return std::nullopt;
  return clocks_.begin()->first;
}

void Partition::UpdateMinClock() {
  // If all ranks are released, it stays as it is.
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
  // These modes promise the bound: crashing is better than breaking it. Backup workers may exceed
  // it.
  if (!CanPull(step)) std::abort();
  const bool is_sync = options_.consistency.mode() == SYNC;
  const uint64_t bound = options_.consistency.staleness();
  if (options_.consistency.mode() == BOUNDED ||
      (is_sync && options_.consistency.backup_workers() == 0)) {
    const size_t count = std::min<size_t>(kCheckedRanks, workers_.size());
    for (size_t i = 0; i < count; ++i) {
      const Worker& other = workers_[(step * kCheckedRanks + rank + i) % workers_.size()];
      if (!other.IsExempt() && other.clock + (is_sync ? 0 : bound) < step) std::abort();
    }
  }
  const uint64_t behind = is_sync ? version_ : min_clock_;
  const bool is_its_step = step <= workers_[rank].clock + 1;
  return is_its_step && step > behind ? step - behind : 0;
}

bool Partition::ExceedsBound(uint64_t step) const {
  return options_.consistency.mode() == BOUNDED && !exempt_clocks_.empty() &&
         exempt_clocks_.begin()->first + options_.consistency.staleness() < step;
}

void Partition::Pull(uint32_t table, const ByteView& keys, char* out) const {
  FindTable(table)->Read(keys, out);
}

void Partition::Lend(uint32_t table, const ByteView& keys, std::vector<BlockLoan>& loans) const {
  FindTable(table)->Lend(keys, loans);
}

void Partition::PullSlots(uint32_t table, const ByteView& keys, char* out) const {
  FindTable(table)->ReadSlots(keys, out);
}

absl::Status Partition::ReopenStep() {
  if (options_.consistency.mode() != SYNC) return absl::OkStatus();
  const bool has_gradients =
      step_sum_.key_count() > 0 || !pending_rates_.empty() ||
      std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
        return worker.clock >= version_ && WindowOf(worker).count() > 0;
      });
  if (has_gradients) {
    return absl::FailedPreconditionError(absl::StrCat("partition ", index_,
                                                      " has gradients of step ", version_,
                                                      ", so it was not saved between two steps"));
  }
  bool changed = false;
  for (Worker& worker : workers_) {
    changed |= worker.clock != version_;
    worker.clock = version_;
    worker.window = nullptr;
  }
  if (!changed) return absl::OkStatus();
  ++log_index_;
  CountAll();
  UpdateMinClock();
  open_squares_ = 0;
  // The sum contains no gradients, only the ranks that had ended.
  step_sum_.Close([](uint32_t) { return false; }, [](const GradientSum&) {});
  return absl::OkStatus();
}

void Partition::KeepBest(uint64_t step) {
  if (step <= best_step_) return;
  best_step_ = step;
  ++log_index_;
  for (auto& [id, part] : tables_) part.KeepBest();
}

void Partition::RestoreBest() {
  if (best_step_ == 0) return;
  restored_at_ = ++log_index_;
  for (auto& [id, part] : tables_) part.RestoreBest();
}

}  // namespace pawl
