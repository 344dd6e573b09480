// How long senders had to wait for acknowledgements.
#ifndef PAWL_TESTS_HARNESS_LEDGER_WRITE_PAUSES_H_
#define PAWL_TESTS_HARNESS_LEDGER_WRITE_PAUSES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client_lib/base/clock.h"

namespace pawl {

// By worker: when its pushes were acknowledged, ascending (Ledger::AcknowledgementTimes).
using AcknowledgementTimes = std::map<uint32_t, std::vector<MonotonicTime>>;

struct TimeSpan {
  MonotonicTime from;
  MonotonicTime until;
};

// For every worker that had an acknowledgement before `span` ends: its longest stretch without one
// that overlaps the span. A stretch begins and ends with an acknowledgement or ends with `end`,
// when the worker was still sending. Every push touches every partition, so it is also the longest
// of the partitions'.
std::map<uint32_t, MonotonicDuration> LongestPauses(const AcknowledgementTimes& times,
                                                    const TimeSpan& span, MonotonicTime end);

struct PauseSummary {
  uint64_t count = 0;
  double p50_s = 0;
  double p99_s = 0;
  double max_s = 0;
};

// Percentiles by nearest rank; all 0 without pauses.
PauseSummary SummarizePauses(std::vector<MonotonicDuration> pauses);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_WRITE_PAUSES_H_
