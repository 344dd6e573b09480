#include "scheduler/job/table_catalogue.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/table_validation.h"
#include "google/protobuf/util/message_differencer.h"

namespace pawl {

TableCatalogue::TableCatalogue(const Job& job)
    : partitions_(job.partitions()),
      dense_optimizer_(job.optimizer()),
      sparse_optimizer_(job.has_sparse_optimizer() ? job.sparse_optimizer() : job.optimizer()) {}

absl::StatusOr<TableCatalogue::Creation> TableCatalogue::Create(const TableSpec& requested) {
  TableSpec spec = requested;
  // This version cannot keep promises that it does not know.
  spec.DiscardUnknownFields();
  spec.clear_id();
  if (spec.element_type() == ELEMENT_TYPE_UNSPECIFIED) spec.set_element_type(FLOAT32);
  if (!spec.has_optimizer())
    *spec.mutable_optimizer() = spec.kind() == SPARSE ? sparse_optimizer_ : dense_optimizer_;
  PAWL_RETURN_IF_ERROR(ValidateTableSpec(spec));

  if (const auto it = by_name_.find(spec.name()); it != by_name_.end()) {
    const Entry& entry = entries_.at(it->second);
    spec.set_id(entry.spec.id());
    if (google::protobuf::util::MessageDifferencer::Equals(spec, entry.spec))
      return Creation{&entry, false};
    std::string differences;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&differences);
    differencer.Compare(entry.spec, spec);
    return absl::AlreadyExistsError(absl::StrCat(
        "table ", spec.name(), " exists and is different; choose another name. ", differences));
  }
  if (entries_.size() == kMaxTables) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table ", spec.name(), ": the limit of ", kMaxTables, " tables is reached"));
  }
  if (partitions_ * (entries_.size() + 1) > kMaxTableParts) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table ", spec.name(), ": there are ", entries_.size(), " tables of ",
                     partitions_, " partitions, and at most ", kMaxTableParts,
                     " partitions of all tables together are allowed; lower the job's partitions"));
  }
  spec.set_id(++last_id_);
  by_name_[spec.name()] = last_id_;
  Entry& entry = entries_[last_id_];
  entry.spec = std::move(spec);
  return Creation{&entry, true};
}

void TableCatalogue::MarkReady(uint32_t id) {
  const auto it = entries_.find(id);
  if (it != entries_.end()) it->second.ready = true;
}

void TableCatalogue::Remove(uint32_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  by_name_.erase(it->second.spec.name());
  entries_.erase(it);
}

const TableCatalogue::Entry* TableCatalogue::Find(uint32_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : &it->second;
}

std::vector<const TableCatalogue::Entry*> TableCatalogue::All() const {
  std::vector<const Entry*> all;
  for (const auto& [id, entry] : entries_) all.push_back(&entry);
  return all;
}

StoredTables TableCatalogue::Save() const {
  StoredTables stored;
  for (const auto& [id, entry] : entries_) {
    StoredTable& table = *stored.add_tables();
    *table.mutable_spec() = entry.spec;
    table.set_ready(entry.ready);
  }
  stored.set_last_id(last_id_);
  return stored;
}

void TableCatalogue::Restore(const StoredTables& stored) {
  for (const StoredTable& table : stored.tables()) {
    entries_[table.spec().id()] = {table.spec(), table.ready()};
    by_name_[table.spec().name()] = table.spec().id();
  }
  last_id_ = stored.last_id();
}

}  // namespace pawl
