#include "tests/simulation/sim_ledger.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/harness/ledger/ledger.h"

namespace pawl {

std::vector<SimLedger::Cell> SimLedger::CellsOf(uint32_t sender, uint64_t number) const {
  SeededRandom random(schedule_.seed ^ (uint64_t{sender} << 40) ^ number);
  std::set<uint32_t> partitions;
  for (uint64_t i = random.Between(1, 4); i > 0; --i) {
    partitions.insert(static_cast<uint32_t>(random.Below(schedule_.partitions)));
  }
  std::vector<Cell> cells;
  for (const uint32_t partition : partitions) {
    cells.push_back({sender, number, partition,
                     LedgerKey(table_, sender, number, partition, schedule_.partitions)});
  }
  return cells;
}

std::vector<SimLedger::Cell> SimLedger::SharedCellsOf(uint32_t rank, uint64_t step) const {
  if (!schedule_.shares_rows) return {};
  // In the order of the ranks the large ones cancel out; otherwise they absorb the last.
  static constexpr float kGradients[kSharingRanks] = {1e8f, -1e8f, -1.0f};
  std::vector<Cell> cells = CellsOf(shared(), step);
  for (Cell& cell : cells) cell.gradient = kGradients[rank];
  return cells;
}

std::vector<SimLedger::Expectation> SimLedger::Expect(
    absl::FunctionRef<Fate(uint32_t sender, uint64_t number, bool acknowledged)> fate_of) const {
  std::vector<Expectation> all;
  std::vector<Expectation> shared_rows;
  for (const auto& [push, acknowledged] : sent_) {
    const auto& [sender, number] = push;
    const Fate fate = fate_of(sender, number, acknowledged);
    const float unit = fate == Fate::kNotApplied ? 0 : UnitOf(sender, number);
    const float least = fate == Fate::kApplied ? unit : 0;
    const bool may_be_assigned = fate == Fate::kUnknown && IsAssigned(sender, number);
    const char* const why = fate == Fate::kApplied      ? "it was acknowledged"
                            : fate == Fate::kNotApplied ? "it was not applied then"
                                                        : "its outcome is unknown";
    for (const Cell& cell : CellsOf(sender, number))
      all.push_back({cell, least, unit, may_be_assigned ? kAssignedValue : least, why});
    if (sender != 0 || fate == Fate::kUnknown) continue;
    for (const Cell& cell : SharedCellsOf(0, number))
      shared_rows.push_back({cell, unit, unit, unit, "the sum in the order of the ranks"});
  }
  all.insert(all.end(), shared_rows.begin(), shared_rows.end());
  for (uint32_t client = 0; client < static_cast<uint32_t>(schedule_.clients); ++client) {
    for (const Cell& cell : CellsOf(schedule_.ranks() + client, schedule_.pushes))
      all.push_back({cell, 0, 0, 0, "it was never sent"});
  }
  return all;
}

bool SimLedger::IsAssigned(uint32_t sender, uint64_t number) const {
  if (!schedule_.assigns || sender == shared()) return false;
  // Several ranks would have to wait for each other.
  return IsRank(sender) ? schedule_.ranks() == 1 && number == 0 : number % 4 == 1;
}

float SimLedger::UnitOf(uint32_t sender, uint64_t number) const {
  if (IsAssigned(sender, number)) return kAssignedValue - SlotAfterAssignment();
  if (!IsRank(sender) || schedule_.consistency.mode() != SYNC) return 1.0f;
  return 1.0f / static_cast<float>(schedule_.ranks()) * ScaleOf(number);
}

float SimLedger::ScaleOf(uint64_t step) const {
  if (schedule_.clip_global_norm == 0) return 1.0f;
  const double mean = 1.0f / static_cast<float>(schedule_.ranks());
  std::vector<double> squares(schedule_.partitions);
  for (uint32_t rank = 0; rank < schedule_.ranks(); ++rank) {
    for (const Cell& cell : CellsOf(rank, step)) squares[cell.partition] += mean * mean;
  }
  for (const Cell& cell : SharedCellsOf(0, step)) squares[cell.partition] += mean * mean;
  double sum = 0;
  for (const double of_partition : squares) sum += of_partition;
  const double norm = std::sqrt(sum);
  const double limit = schedule_.clip_global_norm;
  return norm > limit ? static_cast<float>(limit / norm) : 1.0f;
}

float SimLedger::SlotAfterAssignment() { return kMomentum * kAssignedSlot - 1.0f; }

float SimLedger::SlotOf(float value) {
  if (value == kAssignedValue) return kAssignedSlot;
  if (value == kAssignedValue - SlotAfterAssignment()) return SlotAfterAssignment();
  return -value;
}

bool SimLedger::IsAcknowledged(uint32_t sender, uint64_t number) const {
  const auto found = sent_.find({sender, number});
  return found != sent_.end() && found->second;
}

std::optional<std::pair<uint32_t, uint64_t>> SimLedger::RandomAcknowledgedPush(
    SeededRandom& random) const {
  const uint32_t sender =
      schedule_.ranks() +
      static_cast<uint32_t>(random.Below(static_cast<uint64_t>(schedule_.clients)));
  const uint64_t number = random.Below(schedule_.pushes);
  if (!IsAcknowledged(sender, number)) return std::nullopt;
  return std::pair(sender, number);
}

void RankClocks::OnReleasing(uint32_t rank, uint64_t incarnation) {
  Rank& of = ranks_[rank];
  // That incarnation has ended on every server, which ignores the request.
  if (incarnation < of.incarnation) return;
  releases_ += of.released != incarnation;
  of.released = incarnation;
  of.is_exempt = true;
  of.exempt_below.reset();
  CountFinishedRelease(of);
}

void RankClocks::OnFinished(uint32_t rank, uint64_t incarnation) {
  ranks_[rank].finished = incarnation;
  CountFinishedRelease(ranks_[rank]);
}

void RankClocks::CountFinishedRelease(Rank& rank) {
  if (rank.finished == 0 || rank.finished != rank.released) return;
  if (rank.finished == rank.finished_and_released) return;
  ++finished_releases_;
  repeated_finished_releases_ += rank.finished_and_released != 0;
  rank.finished_and_released = rank.finished;
}

void RankClocks::OnTakeover(uint32_t rank, uint64_t incarnation, uint64_t clock,
                            MonotonicDuration now) {
  Rank& of = ranks_[rank];
  ++takeovers_;
  of.incarnation = std::max(of.incarnation, incarnation);
  of.least = std::max(of.least, clock);
  of.most = std::max(of.most, clock);
  if (!of.is_exempt || incarnation <= of.released) return;
  // The clock of the ranks that are not exempt themselves.
  std::optional<uint64_t> target;
  uint64_t furthest = 0;
  for (const Rank& other : ranks_) {
    furthest = std::max(furthest, other.most);
    if (!other.is_exempt) target = std::min(target.value_or(other.most), other.most);
  }
  of.exempt_below = target.value_or(furthest);
  returns_ += of.least < *of.exempt_below;
  EndExemptionIfDue(of, now);
}

void RankClocks::OnEndingStep(uint32_t rank, uint64_t step) {
  ranks_[rank].most = std::max(ranks_[rank].most, step + 1);
}

void RankClocks::OnEndedStep(uint32_t rank, uint64_t step, MonotonicDuration now) {
  Rank& of = ranks_[rank];
  of.least = std::max(of.least, step + 1);
  if (!of.exempt_below.has_value()) return;
  EndExemptionIfDue(of, now);
  catch_ups_ += !of.is_exempt;
}

void RankClocks::EndExemptionIfDue(Rank& rank, MonotonicDuration now) {
  if (!rank.exempt_below.has_value() || rank.least < *rank.exempt_below) return;
  rank.is_exempt = false;
  rank.exempt_below.reset();
  rank.exempt_until = now;
}

bool RankClocks::WasExempt(uint32_t rank, MonotonicDuration since) const {
  const Rank& of = ranks_[rank];
  return of.is_exempt || (of.exempt_until.has_value() && *of.exempt_until >= since);
}

}  // namespace pawl
