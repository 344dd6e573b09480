#include "client_lib/session/routing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

absl::StatusOr<std::shared_ptr<const Routing>> Routing::FromProto(const RoutingTable& table,
                                                                  uint64_t job_id) {
  if (table.job_id() != job_id) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the routing table is of job ", absl::Hex(table.job_id()), ", not of ", absl::Hex(job_id)));
  }
  if (table.since_epoch() != 0) {
    return absl::InvalidArgumentError(
        "the routing table is not whole: it only has the changes since another one");
  }
  if (table.epoch() == UINT64_MAX)
    return absl::InvalidArgumentError("the routing table has an epoch that no scheduler reaches");
  if (table.primary_size() == 0 || static_cast<uint32_t>(table.primary_size()) > kMaxPartitions) {
    return absl::InvalidArgumentError(absl::StrCat("the routing table has ", table.primary_size(),
                                                   " partitions; it must have 1 to ",
                                                   kMaxPartitions));
  }
  std::shared_ptr<Routing> routing(new Routing());
  routing->epoch_ = table.epoch();
  for (const ServerAddress& server : table.servers())
    routing->addresses_.push_back(server.address());
  routing->named_.insert(routing->addresses_.begin(), routing->addresses_.end());
  std::vector<bool> is_primary(routing->addresses_.size());
  routing->primary_.reserve(table.primary_size());
  for (const uint32_t server : table.primary()) {
    if (server == kNoPrimary) {
      routing->primary_.push_back(kNoServer);
      continue;
    }
    if (server >= is_primary.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the routing table names server ", server, " of ", is_primary.size()));
    }
    is_primary[server] = true;
    routing->primary_.push_back(server);
  }
  for (size_t server = 0; server < is_primary.size(); ++server) {
    if (is_primary[server]) routing->primary_addresses_.push_back(routing->addresses_[server]);
  }
  return std::shared_ptr<const Routing>(std::move(routing));
}

absl::StatusOr<bool> Router::Adopt(const RoutingTable& table) {
  PAWL_ASSIGN_OR_RETURN(std::shared_ptr<const Routing> routing, Routing::FromProto(table, job_id_));
  MutexLock lock(mu_);
  if (current_ != nullptr) {
    if (routing->partitions() != current_->partitions()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the routing table has ", routing->partitions(), " partitions; the job has ",
                       current_->partitions()));
    }
    if (routing->epoch() <= current_->epoch()) return false;
  }
  current_ = std::move(routing);
  return true;
}

}  // namespace pawl
