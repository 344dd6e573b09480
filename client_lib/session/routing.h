// The placement of partitions, as far as this process knows.
#ifndef PAWL_CLIENT_LIB_SESSION_ROUTING_H_
#define PAWL_CLIENT_LIB_SESSION_ROUTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "client_lib/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// A validated routing table. Immutable. Knows only the primaries, because no other replica answers
// clients.
class Routing {
 public:
  static constexpr size_t kNoServer = SIZE_MAX;

  // INVALID_ARGUMENT for a table of another job, or one that contradicts itself.
  static absl::StatusOr<std::shared_ptr<const Routing>> FromProto(const RoutingTable& table,
                                                                  uint64_t job_id);

  uint64_t epoch() const { return epoch_; }
  uint32_t partitions() const { return static_cast<uint32_t>(primary_.size()); }
  // Servers are numbered within this table.
  size_t servers() const { return addresses_.size(); }
  const std::string& address(size_t server) const { return addresses_[server]; }
  // kNoServer while the partition has no primary; a newer table will name one. REQUIRES: partition
  // < partitions().
  size_t primary(uint32_t partition) const { return primary_[partition]; }
  // The addresses of servers that are the primary of some partition.
  const std::vector<std::string>& primary_addresses() const { return primary_addresses_; }
  // The addresses of all servers.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Whether some server has this address.
  bool Names(const std::string& address) const { return named_.contains(address); }

 private:
  Routing() = default;

  uint64_t epoch_ = 0;
  std::vector<std::string> addresses_;
  std::vector<size_t> primary_;
  std::vector<std::string> primary_addresses_;
  absl::flat_hash_set<std::string> named_;
};

// Holds the newest table seen. Thread-safe.
class Router {
 public:
  explicit Router(uint64_t job_id) : job_id_(job_id) {}

  // Null before the first Adopt.
  std::shared_ptr<const Routing> current() const {
    MutexLock lock(mu_);
    return current_;
  }

  // Returns true if the table is newer than the current one and has replaced it. Refuses a table
  // with another number of partitions, which never changes in a job.
  absl::StatusOr<bool> Adopt(const RoutingTable& table);

 private:
  const uint64_t job_id_;
  mutable Mutex mu_;
  std::shared_ptr<const Routing> current_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_ROUTING_H_
