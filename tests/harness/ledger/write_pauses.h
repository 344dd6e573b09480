// How long senders wait for acknowledgements.
#ifndef PAWL_TESTS_HARNESS_LEDGER_WRITE_PAUSES_H_
#define PAWL_TESTS_HARNESS_LEDGER_WRITE_PAUSES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "client_lib/base/clock.h"

namespace pawl {

// By worker: the ascending times of its acknowledgements (Ledger::AcknowledgementTimes).
using AcknowledgementTimes = std::map<uint32_t, std::vector<MonotonicTime>>;

struct TimeSpan {
  MonotonicTime from;
  MonotonicTime until;
};

// For every worker with an acknowledgement before the end of `span`: its longest interval between
// acknowledgements that overlaps the span. The last interval ends at `end`, when the worker was
// still sending. Every push touches every partition, so this is also the longest pause of any
// partition.
std::map<uint32_t, MonotonicDuration> LongestPauses(const AcknowledgementTimes& times,
                                                    const TimeSpan& span, MonotonicTime end);

struct PauseSummary {
  uint64_t count = 0;
  double p50_s = 0;
  double p99_s = 0;
  double max_s = 0;
};

// Nearest-rank percentiles; all 0 if there are no pauses.
PauseSummary SummarizePauses(std::vector<MonotonicDuration> pauses);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_WRITE_PAUSES_H_
