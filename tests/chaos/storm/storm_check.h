// Compares a cluster with the ledger and with itself after a storm.
#ifndef PAWL_TESTS_CHAOS_STORM_STORM_CHECK_H_
#define PAWL_TESTS_CHAOS_STORM_STORM_CHECK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/client.h"
#include "proto/server_control.pb.h"
#include "tests/chaos/storm/storm.h"
#include "tests/chaos/storm/storm_report.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/process_cluster.h"

namespace pawl {

// Adds the figures of the checks to the report, and calls `violation` for each broken promise. An
// error of a check means that the cluster could not be read. Call the checks in this order, once
// pushes have stopped.
class StormCheck {
 public:
  // The arguments outlive this. `ballast_rows`: the rows that senders have pushed as ballast.
  StormCheck(const StormOptions& options, ProcessCluster& cluster,
             const std::vector<std::string>& servers, uint64_t ballast_rows, StormReport& report,
             std::function<void(const std::string& what)> violation)
      : options_(options),
        cluster_(cluster),
        servers_(servers),
        ballast_rows_(ballast_rows),
        report_(report),
        violation_(std::move(violation)) {}

  // Compares the rows with the ledger, and the servers' digests and counters with the rows.
  absl::Status CheckRows(Client& client, const Ledger& ledger);
  // Compares every replica with its primary.
  absl::Status CheckReplicas();

 private:
  // Returns how often rows of ballast were applied.
  absl::StatusOr<uint64_t> CountBallast(Client& client);
  // By server, all by one routing, if it stays unchanged for long enough.
  absl::StatusOr<std::map<std::string, InspectResponse>> InspectServers();
  // `applied`: the applications that the rows of all tables show.
  absl::Status CompareDigests(const LedgerDigest& digest, uint32_t table, uint64_t applied);

  const StormOptions& options_;
  ProcessCluster& cluster_;
  const std::vector<std::string>& servers_;
  const uint64_t ballast_rows_;
  StormReport& report_;
  const std::function<void(const std::string&)> violation_;
  uint64_t job_id_ = 0;
};

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_STORM_CHECK_H_
