#include "scheduler/curve/curve_recorder.h"

#include <chrono>
#include <utility>

#include "spdlog/spdlog.h"

namespace pawl {

CurveRecorder::CurveRecorder(std::unique_ptr<EventFile> file, ReadStatus status,
                             MonotonicDuration interval)
    : file_(std::move(file)), status_(std::move(status)), interval_(interval), curve_(status_()) {
  thread_ = std::thread([this] { Run(); });
}

CurveRecorder::~CurveRecorder() {
  Stop(Clock::Real().Now());
  thread_.join();
}

bool CurveRecorder::Stop(MonotonicTime deadline) {
  MutexLock lock(mu_);
  stopping_ = true;
  changed_.NotifyAll();
  while (!stopped_) {
    if (!changed_.WaitUntil(mu_, deadline)) break;
  }
  return stopped_;
}

void CurveRecorder::Run() {
  for (bool is_last = false; !is_last;) {
    {
      const MonotonicTime until = Clock::Real().Now() + interval_;
      MutexLock lock(mu_);
      while (!stopping_ && changed_.WaitUntil(mu_, until)) {
      }
      is_last = stopping_;
    }
    if (const absl::Status status = Record(); !status.ok()) {
      spdlog::error("--tensorboard_dir: {}; the learning curve ends here",
                    std::string(status.message()));
      break;
    }
  }
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

absl::Status CurveRecorder::Record() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  for (const CurvePoint& point : curve_.Next(status_())) {
    if (absl::Status status = file_->Add(now.count(), point); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace pawl
