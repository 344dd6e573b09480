#include "scheduler/curve/curve_recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "spdlog/spdlog.h"

namespace pawl {

CurveRecorder::CurveRecorder(std::vector<Output> outputs, ReadStatus status,
                             MonotonicDuration interval, bool continues,
                             std::optional<uint64_t> last_evaluation_step)
    : status_(std::move(status)),
      interval_(interval),
      outputs_(std::move(outputs)),
      curve_(status_(), continues, last_evaluation_step) {
  thread_.Start([this] { Run(); });
}

void CurveRecorder::Run() {
  for (bool goes_on = true; goes_on && !outputs_.empty();) {
    goes_on = thread_.Sleep(interval_);
    Record();
  }
}

void CurveRecorder::Record() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  for (const CurvePoint& point : curve_.Next(status_())) {
    const auto failed = [&](const Output& output) {
      const absl::Status status = output.sink->Add(now.count(), point);
      if (!status.ok()) {
        spdlog::error("{}: {}; the learning curve ends here", output.flag,
                      std::string(status.message()));
      }
      return !status.ok();
    };
    outputs_.erase(std::remove_if(outputs_.begin(), outputs_.end(), failed), outputs_.end());
  }
}

}  // namespace pawl
