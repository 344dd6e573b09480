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
      const TablePart* const part = partition.FindTable(segment.table);
      if (part == nullptr)
        return absl::NotFoundError(absl::StrCat("there is no table with id ", segment.table));
      // The primary has decoded the gradient.
      if (segment.element_type != FLOAT32)
        return absl::InvalidArgumentError("the gradient of a logged change must be FLOAT32");
      absl::Status status = part->table().CheckGradient(
          segment.element_type, segment.exponent, segment.keys, segment.values, partition.index(),
          partition.options().partitions);
      if (!status.ok()) return status;
      return partition
          .Take(sender, segment.ordinal, segment.table,
                Gradient{segment.keys, segment.values, owner})
          .status();
    }
    case ChangeView::Kind::kEndStep:
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
