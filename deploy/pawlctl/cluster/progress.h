// The progress of a job in one line.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_PROGRESS_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// The contents of the line. Unset parts are omitted.
struct Progress {
  JobState state = JOB_STATE_UNSPECIFIED;
  // The nodes that are present, shown while STARTING.
  uint32_t servers = 0;
  uint32_t workers = 0;
  // Counted from 1.
  std::optional<uint32_t> epoch;
  uint32_t epochs = 0;
  uint64_t step = 0;
  // 0: unknown.
  uint64_t steps_total = 0;
  std::optional<double> samples_per_s;
  std::optional<double> loss;
  // The latest evaluation by the job's metric: "auc", 0.7216.
  std::string metric;
  std::optional<double> metric_value;
  uint64_t staleness_max = 0;
  std::optional<double> seconds_left;
};

// Computes Progress from the scheduler's successive answers. Speeds are means over the last
// kSpeedWindow. Not thread-safe.
class ProgressMeter {
 public:
  Progress Update(const GetStatusResponse& status, MonotonicTime now);

 private:
  struct Observation {
    MonotonicTime time;
    uint64_t steps;
    uint64_t samples;
  };
  std::deque<Observation> observations_;
};

// Long enough to hide the pause of an evaluation.
inline constexpr std::chrono::seconds kSpeedWindow{15};

// "epoch 2/2  step 610/1220  50%  412,345 samples/s  loss 0.4603  auc 0.7216  staleness 0  1m 12s
// left". Parts that do not fit into `width` characters are dropped, the least important first.
std::string FormatProgress(const Progress& progress, size_t width);

// 1234567 -> "1,234,567"
std::string FormatCount(uint64_t count);
// 45.2 -> "45s", 125 -> "2m 5s", 7320 -> "2h 2m"
std::string FormatSeconds(double seconds);
// Four decimals; four significant digits below 0.01.
std::string FormatValue(double value);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_PROGRESS_H_
