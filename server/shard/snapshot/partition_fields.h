// The fields that snapshots of both formats have.
#ifndef PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FIELDS_H_
#define PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FIELDS_H_

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "server/shard/snapshot/partition_loader.h"

namespace pawl {

// Reads fields from bytes into a partition.
class PartitionLoader::Fields {
 protected:
  Fields(uint32_t index, const PartitionOptions& options, absl::string_view body, uint64_t position)
      : partition_(index, options), body_(body), position_(position) {}

  const PartitionOptions& options() const { return partition_.options_; }
  bool is_sync() const { return options().consistency.mode() == SYNC; }

  absl::Status Damaged(absl::string_view problem) const {
    return absl::DataLossError(absl::StrCat("snapshot of partition ", partition_.index_, ", byte ",
                                            position_, ": ", problem));
  }

  void Skip(size_t bytes) {
    body_.remove_prefix(bytes);
    position_ += bytes;
  }

  template <typename T>
  absl::Status Number(T& number, absl::string_view what) {
    number = T();
    if (body_.size() < sizeof(T)) return Damaged(absl::StrCat("the bytes end before ", what));
    std::memcpy(&number, body_.data(), sizeof(T));
    Skip(sizeof(T));
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status SameAsJob(T expected, absl::string_view what) {
    T number;
    PAWL_RETURN_IF_ERROR(Number(number, what));
    if (number == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("snapshot of partition ", partition_.index_,
                                                   ": its ", what, " is ", number, ", not ",
                                                   expected));
  }

  absl::Status Job() {
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(partition_.index_, "partition"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().partitions, "number of partitions"));
    PAWL_RETURN_IF_ERROR(
        SameAsJob<uint32_t>(options().logical_workers, "number of logical workers"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().consistency.mode(), "consistency.mode"));
    // A restored job may have another bound: nothing in a partition depends on it.
    uint32_t staleness = 0;
    PAWL_RETURN_IF_ERROR(Number(staleness, "consistency.staleness"));
    PAWL_RETURN_IF_ERROR(
        SameAsJob<uint32_t>(options().consistency.backup_workers(), "consistency.backup_workers"));
    return SameAsJob<uint64_t>(options().job_seed, "seed");
  }

  absl::Status State() {
    PAWL_RETURN_IF_ERROR(Number(partition_.log_index_, "log_index"));
    PAWL_RETURN_IF_ERROR(Number(partition_.restored_at_, "restored_at"));
    if (partition_.restored_at_ > partition_.log_index_)
      return Damaged("restored_at is beyond log_index");
    PAWL_RETURN_IF_ERROR(Number(partition_.best_step_, "best_step"));
    PAWL_RETURN_IF_ERROR(Number(partition_.version_, "version"));
    PAWL_RETURN_IF_ERROR(Number(partition_.min_clock_, "min_clock"));
    PAWL_RETURN_IF_ERROR(Number(partition_.counters_.pushes_applied, "pushes_applied"));
    PAWL_RETURN_IF_ERROR(Number(partition_.counters_.pushes_late, "pushes_late"));
    return Number(partition_.counters_.keys_pushed, "keys_pushed");
  }

  absl::Status Window(PushWindow& window) {
    constexpr uint64_t kMaxContiguous = uint64_t{1} << 63;
    uint64_t contiguous;
    uint16_t ahead;
    PAWL_RETURN_IF_ERROR(Number(contiguous, "contiguous"));
    PAWL_RETURN_IF_ERROR(Number(ahead, "ahead"));
    if (contiguous > kMaxContiguous) return Damaged("more ordinals than a sender can have pushed");
    window = PushWindow(contiguous);
    uint16_t previous = 0;
    for (; ahead > 0; --ahead) {
      uint16_t distance;
      PAWL_RETURN_IF_ERROR(Number(distance, "distance"));
      if (distance <= previous || distance >= kPushWindow)
        return Damaged("ordinals out of order or beyond the window");
      window.Take(contiguous + distance);
      previous = distance;
    }
    return absl::OkStatus();
  }

  // Reads the window of a rank, if it pushed anything.
  absl::Status Window(Partition::Worker& worker) {
    PushWindow window;
    PAWL_RETURN_IF_ERROR(Window(window));
    if (window.count() > 0) worker.window = std::make_unique<PushWindow>(window);
    return absl::OkStatus();
  }

  // The checks of all ranks together.
  // `clips`: the snapshot is of a job with clip_global_norm, in which a step that all have ended
  // stays open and no rank is two steps ahead. REQUIRES: Partition::CountAll since the last change.
  absl::Status CheckClocks(bool clips) const {
    size_t ahead = 0;
    bool is_too_far_ahead = false;
    for (const Partition::Worker& worker : partition_.workers_) {
      ahead += worker.clock > partition_.version_;
      is_too_far_ahead |= worker.clock > partition_.version_ + 1;
    }
    // The rest of the partition relies on both.
    const bool is_possible = !is_sync() ? partition_.version_ == 0
                             : clips    ? !is_too_far_ahead
                                        : ahead < partition_.NeededWorkers();
    if (!is_possible) return Damaged("the version contradicts the clocks");
    if (partition_.LowestClock().value_or(partition_.min_clock_) != partition_.min_clock_) {
      return Damaged("min_clock contradicts the clocks");
    }
    return absl::OkStatus();
  }

  // Makes the clocks of a job with clip_global_norm those of one without, or the reverse. Only a
  // checkpoint is of another job, and its steps start again anyway. REQUIRES: the rest of the
  // partition is loaded.
  absl::Status FitClocks(bool clips) {
    if (!is_sync() || clips == partition_.ClipsGlobalNorm()) return absl::OkStatus();
    const absl::Status status = partition_.ReopenStep();
    return status.ok() ? status : Damaged(status.message());
  }

  // The first rank whose gradients the step may still sum.
  void FindFirstOpenRank() {
    StepSum& sum = partition_.step_sum_;
    if (sum.sum_at_close_) return;
    while (sum.first_open_rank_ < sum.ranks_ && partition_.HasEnded(sum.first_open_rank_))
      ++sum.first_open_rank_;
  }

  absl::Status Client() {
    uint32_t number;
    Partition::Client client;
    PAWL_RETURN_IF_ERROR(Number(number, "client"));
    auto& clients = partition_.clients_;
    if (number >= kMaxClients || (!clients.empty() && number <= clients.rbegin()->first))
      return Damaged("clients out of order or beyond their limit");
    PAWL_RETURN_IF_ERROR(Number(client.incarnation, "incarnation"));
    PAWL_RETURN_IF_ERROR(Window(client.window));
    clients.emplace_hint(clients.end(), number, client);
    return absl::OkStatus();
  }

  // Adds the table with the spec in the next `bytes` bytes. REQUIRES: there are that many.
  absl::Status TableOfSpec(size_t bytes) {
    const absl::string_view text = body_.substr(0, bytes);
    TableSpec spec;
    if (!spec.ParseFromArray(text.data(), static_cast<int>(text.size())) ||
        spec.SerializeAsString() != text) {
      return Damaged("a spec that is not in protobuf's canonical form");
    }
    if (!partition_.tables_.empty() && spec.id() <= partition_.tables_.rbegin()->first)
      return Damaged("tables out of order");
    const auto schema = TableSchema::Create(spec, options().job_seed);
    if (!schema.ok()) return Damaged(schema.status().message());
    Skip(bytes);
    partition_.tables_.emplace(spec.id(), TablePart(*schema));
    return absl::OkStatus();
  }

  absl::Status CheckKey(const TableSchema& table, uint64_t key) const {
    if (table.is_dense() && key >= table.BlockCount())
      return Damaged(absl::StrCat("no block ", key));
    if (PartitionOf(table.id(), key, options().partitions) == partition_.index_)
      return absl::OkStatus();
    return Damaged(absl::StrCat("key ", key, " belongs to another partition"));
  }

  Partition partition_;
  // The unread rest of the snapshot, or of the present section, and its offset in the snapshot.
  absl::string_view body_;
  uint64_t position_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FIELDS_H_
