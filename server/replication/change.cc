#include "server/replication/change.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

absl::Status Apply(const ChangeView& change, const std::shared_ptr<const void>& owner,
                   std::shared_ptr<const TableSchema> table, Partition& partition) {
  const Sender& sender = change.sender;
  switch (change.kind) {
    case ChangeView::Kind::kPush: {
      const SegmentView& segment = change.segment;
      if (segment.effect == SET_LEARNING_RATES) {
        const absl::StatusOr<std::vector<TableRate>> rates = LearningRatesOf(segment);
        if (!rates.ok()) return rates.status();
        absl::Status status = CheckLearningRates(sender, *rates, [&](uint32_t id) {
          const TablePart* const part = partition.FindTable(id);
          return part == nullptr ? nullptr : &part->table();
        });
        if (!status.ok()) return status;
        return partition.SetLearningRates(sender, segment.ordinal, *rates).status();
      }
      const TablePart* const part = partition.FindTable(segment.table);
      if (part == nullptr)
        return absl::NotFoundError(absl::StrCat("there is no table with id ", segment.table));
      // The primary has decoded the gradient.
      if (segment.element_type != FLOAT32)
        return absl::InvalidArgumentError("the gradient of a logged change must be FLOAT32");
      if (IsAssignment(segment)) {
        const absl::StatusOr<Assignment> assignment = AssignmentOf(segment);
        if (!assignment.ok()) return assignment.status();
        absl::Status status =
            part->table().CheckAssignment(segment.element_type, segment.exponent, *assignment,
                                          partition.index(), partition.options().partitions);
        if (!status.ok()) return status;
        return partition.AssignReplicated(sender, segment.ordinal, segment.table, *assignment)
            .status();
      }
      absl::Status status = part->table().CheckGradient(
          segment.element_type, segment.exponent, segment.keys, segment.values, partition.index(),
          partition.options().partitions);
      if (!status.ok()) return status;
      return partition
          .PushReplicated(sender, segment.ordinal, segment.table,
                          Gradient{segment.keys, segment.values, owner})
          .status();
    }
    case ChangeView::Kind::kEndStep:
      if (change.close_scale.has_value()) return partition.CloseStep(sender, *change.close_scale);
      return partition.EndStep(sender, change.segments);
    case ChangeView::Kind::kTakeOver:
      return partition.TakeOver(sender.number, sender.incarnation).status();
    case ChangeView::Kind::kTableCreated:
      return partition.CreateTable(std::move(table));
    case ChangeView::Kind::kBestKept:
      partition.KeepBest(change.step);
      return absl::OkStatus();
    case ChangeView::Kind::kBestRestored:
      partition.RestoreBest();
      return absl::OkStatus();
    case ChangeView::Kind::kReleased:
      return partition.Release(sender.number, sender.incarnation);
  }
  return absl::InternalError("the change has an unknown kind");
}

}  // namespace

bool IsAssignment(const SegmentView& segment) {
  return segment.effect != APPLY_GRADIENT && segment.effect != SET_LEARNING_RATES;
}

absl::StatusOr<std::vector<TableRate>> LearningRatesOf(const SegmentView& segment) {
  const size_t count = segment.keys.size() / sizeof(uint64_t);
  const bool is_float =
      segment.element_type == FLOAT32 || segment.element_type == ELEMENT_TYPE_UNSPECIFIED;
  if (segment.table != 0 || !is_float || segment.exponent != 0 ||
      segment.keys.size() % sizeof(uint64_t) != 0 || count > kMaxTablesOfPartition ||
      segment.values.size() != count * sizeof(float) || !segment.slots.empty()) {
    return absl::InvalidArgumentError("learning rates need one FLOAT32 value per key, and table 0");
  }
  ByteCursor keys(segment.keys);
  ByteCursor values(segment.values);
  std::vector<TableRate> rates(count);
  for (TableRate& rate : rates) {
    uint64_t key;
    keys.Read(&key, sizeof(key));
    values.Read(&rate.rate, sizeof(rate.rate));
    if (key > UINT32_MAX) return absl::NotFoundError(absl::StrCat("there is no table ", key));
    rate.table = static_cast<uint32_t>(key);
  }
  return rates;
}

absl::StatusOr<Assignment> AssignmentOf(const SegmentView& segment) {
  Assignment assignment{.keys = segment.keys, .values = segment.values, .slots = segment.slots};
  switch (segment.effect) {
    case ASSIGN_RESET_SLOTS:
      assignment.effect = Assignment::Slots::kReset;
      return assignment;
    case ASSIGN_WITH_SLOTS:
      assignment.effect = Assignment::Slots::kGiven;
      return assignment;
    case ASSIGN_KEEP_SLOTS:
      assignment.effect = Assignment::Slots::kKeep;
      return assignment;
    default:
      return absl::InvalidArgumentError(absl::StrCat("effect ", static_cast<int>(segment.effect),
                                                     " of a segment is not an assignment"));
  }
}

absl::Status ApplyChange(const ChangeView& change, const std::shared_ptr<const void>& owner,
                         std::shared_ptr<const TableSchema> table, Partition& partition) {
  const uint64_t before = partition.log_index();
  // Entries written before terms were recorded have none.
  const bool has_term = change.term != 0 || partition.terms().last_term() != 0;
  absl::Status status = has_term ? partition.SetTerm(change.term) : absl::OkStatus();
  if (status.ok()) status = Apply(change, owner, std::move(table), partition);
  if (status.ok() && partition.log_index() == before + 1) return status;
  return absl::DataLossError(absl::StrCat("change ", change.index, " of partition ",
                                          change.partition, " does not apply to the replica at ",
                                          before, ": ",
                                          status.ok() ? "it has no effect" : status.ToString()));
}

}  // namespace pawl
