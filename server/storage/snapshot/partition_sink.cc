#include "server/storage/snapshot/partition_sink.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/replication/change.h"
#include "server/replication/log_entry.h"
#include "server/storage/snapshot/partition_file.h"

namespace pawl {

absl::Status PartitionSink::LoadSnapshot(uint32_t partition, uint64_t index,
                                         BlockFileReader& snapshot) {
  PAWL_ASSIGN_OR_RETURN(
      Partition loaded,
      LoadPartitionFile(snapshot, PartitionLoader(partition, options_), should_continue_));
  if (loaded.log_index() != index) {
    return absl::DataLossError(absl::StrCat("the state of partition ", partition, " is at ",
                                            loaded.log_index(), ", not at ", index));
  }
  partitions_[partition] = std::make_unique<Partition>(std::move(loaded));
  return absl::OkStatus();
}

absl::Status PartitionSink::Replay(uint32_t partition, uint64_t index, const ByteView& payload,
                                   const std::shared_ptr<const void>& owner) {
  const absl::StatusOr<ChangeView> change = DecodeLogEntry(payload);
  if (!change.ok())
    return absl::DataLossError(
        absl::StrCat("the record is not a change: ", change.status().message()));
  if (change->partition != partition || change->index != index) {
    return absl::DataLossError(
        absl::StrCat("the record is change ", change->index, " of partition ", change->partition));
  }
  if (partition >= options_.partitions) {
    return absl::DataLossError(absl::StrCat("the job has ", options_.partitions, " partitions"));
  }
  std::shared_ptr<const TableSchema> table;
  if (change->kind == ChangeView::Kind::kTableCreated) {
    PAWL_ASSIGN_OR_RETURN(table, SchemaOf(change->table));
  }
  std::unique_ptr<Partition>& replica = partitions_[partition];
  if (replica == nullptr) replica = std::make_unique<Partition>(partition, options_);
  return ApplyChange(*change, owner, std::move(table), *replica);
}

absl::StatusOr<std::shared_ptr<const TableSchema>> PartitionSink::SchemaOf(const TableSpec& spec) {
  std::shared_ptr<const TableSchema>& known = tables_[spec.id()];
  if (known == nullptr || known->spec().SerializeAsString() != spec.SerializeAsString()) {
    PAWL_ASSIGN_OR_RETURN(known, TableSchema::Create(spec, options_.job_seed));
  }
  return known;
}

std::vector<std::unique_ptr<Partition>> PartitionSink::TakePartitions() {
  std::vector<std::unique_ptr<Partition>> partitions;
  for (auto& [index, partition] : partitions_) partitions.push_back(std::move(partition));
  partitions_.clear();
  return partitions;
}

}  // namespace pawl
