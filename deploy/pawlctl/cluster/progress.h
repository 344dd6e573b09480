// How far the job is, in one line.
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

// What the line shows; what is unset is left out of it.
struct Progress {
  JobState state = JOB_STATE_UNSPECIFIED;
  // STARTING: the nodes that are there.
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

// Turns what the scheduler says from time to time into Progress: speeds are means
// over the last kSpeedWindow. For one thread.
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

// Long enough that a pause for an evaluation does not look like the end.
inline constexpr std::chrono::seconds kSpeedWindow{15};

// "epoch 2/2  step 610/1220  50%  412,345 samples/s  loss 0.4603  auc 0.7216  staleness 0  1m 12s
// left". Parts that do not fit into `width` characters are left out, the least interesting first.
std::string FormatProgress(const Progress& progress, size_t width);

// 1234567 -> "1,234,567"
std::string FormatCount(uint64_t count);
// 45.2 -> "45s", 125 -> "2m 5s", 7320 -> "2h 2m"
std::string FormatSeconds(double seconds);
// Four decimals; what is smaller than 0.01 with four significant digits.
std::string FormatValue(double value);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_PROGRESS_H_
