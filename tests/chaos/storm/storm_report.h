// The results of a storm.
#ifndef PAWL_TESTS_CHAOS_STORM_STORM_REPORT_H_
#define PAWL_TESTS_CHAOS_STORM_STORM_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client_lib/base/clock.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/storm/storm_plan.h"

namespace pawl {

// One injected fault.
struct FaultRecord {
  FaultKind kind = FaultKind::kServerKill;
  std::string text;
  // Seconds since the start of the storm.
  double at_s = 0;
  // The time from the injection until every process was back, every partition had all replicas and
  // every sender had an acknowledgement. Negative: not within the limit.
  double recovered_s = -1;
  // Each sender's longest time without an acknowledgement meanwhile.
  std::vector<MonotonicDuration> pauses;
  // False if it met nothing: a failpoint that was not passed, a link without messages.
  bool happened = true;
};

// Describes each kind that was injected at least kInjectionsToHappen times and never happened.
std::vector<std::string> KindsThatNeverHappened(const std::vector<FaultRecord>& faults);
inline constexpr uint64_t kInjectionsToHappen = 8;

struct StormReport {
  uint64_t seed = 0;
  double duration_s = 0;
  std::string cluster;
  std::vector<FaultRecord> faults;

  uint64_t pushes_sent = 0;
  uint64_t pushes_acknowledged = 0;
  // By the name of the status code.
  std::map<std::string, uint64_t> pushes_failed;
  // Counted in rows; a push has one row in each partition.
  uint64_t rows_applied = 0;
  uint64_t rows_lost = 0;
  uint64_t rows_doubled = 0;
  uint64_t unknown_applied = 0;
  uint64_t unknown_not_applied = 0;
  // Repeated segments recognised by the servers since their last start.
  uint64_t pushes_deduplicated = 0;

  // Partitions whose digest equals that of the rows read, and replicas with their primary's
  // fingerprint.
  uint64_t digests_compared = 0;
  uint64_t replicas_compared = 0;
  // The senders' longest times without an acknowledgement before the first fault.
  std::vector<MonotonicDuration> quiet_pauses;
  uint64_t first_epoch = 0;
  uint64_t last_epoch = 0;

  // Broken promises. Empty: the storm has passed.
  std::vector<std::string> violations;

  bool ok() const { return violations.empty(); }
  nlohmann::json ToJson() const;
  std::string ToText() const;
};

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_STORM_REPORT_H_
