// Writes the learning curve of a job while it runs.
#ifndef PAWL_SCHEDULER_CURVE_CURVE_RECORDER_H_
#define PAWL_SCHEDULER_CURVE_CURVE_RECORDER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/daemon/background_thread.h"
#include "scheduler/curve/curve.h"

namespace pawl {

inline constexpr std::chrono::seconds kCurveInterval{2};

// Reads the status repeatedly on its own thread, and appends what is new to the files. A failed
// write is logged, and ends the recording in that file: the job continues. Thread-safe.
class CurveRecorder {
 public:
  // A file, and the flag that names it.
  struct Output {
    std::string flag;
    std::unique_ptr<CurveSink> sink;
  };
  // Called by the constructor, then by the recorder's thread, without locks.
  using ReadStatus = std::function<GetStatusResponse()>;

  // `continues` and `last_evaluation_step`: as for Curve.
  CurveRecorder(std::vector<Output> outputs, ReadStatus status,
                MonotonicDuration interval = kCurveInterval, bool continues = false,
                std::optional<uint64_t> last_evaluation_step = std::nullopt);
  // The destructor waits for the write in progress without a deadline: see Stop.
  CurveRecorder(const CurveRecorder&) = delete;
  CurveRecorder& operator=(const CurveRecorder&) = delete;

  // Writes the last points and stops. False: a write has not returned by `deadline`; if the file
  // system hangs, only the end of the process stops it.
  bool Stop(MonotonicTime deadline) { return thread_.Stop(deadline); }

 private:
  void Run();
  void Record();

  const ReadStatus status_;
  const MonotonicDuration interval_;
  // Used by the thread alone, once it runs.
  std::vector<Output> outputs_;
  Curve curve_;

  // Last: its destructor waits for a thread that uses the other members.
  BackgroundThread thread_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CURVE_CURVE_RECORDER_H_
