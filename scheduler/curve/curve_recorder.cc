#include "scheduler/curve/curve_recorder.h"

#include <chrono>
#include <utility>

#include "spdlog/spdlog.h"

namespace pawl {

CurveRecorder::CurveRecorder(std::unique_ptr<EventFile> file, ReadStatus status,
                             MonotonicDuration interval)
    : file_(std::move(file)), status_(std::move(status)), interval_(interval), curve_(status_()) {
  thread_.Start([this] { Run(); });
}

void CurveRecorder::Run() {
  for (bool goes_on = true; goes_on;) {
    goes_on = thread_.Sleep(interval_);
    if (const absl::Status status = Record(); !status.ok()) {
      spdlog::error("--tensorboard_dir: {}; the learning curve ends here",
                    std::string(status.message()));
      return;
    }
  }
}

absl::Status CurveRecorder::Record() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  for (const CurvePoint& point : curve_.Next(status_())) {
    if (absl::Status status = file_->Add(now.count(), point); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace pawl
