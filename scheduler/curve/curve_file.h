// A learning curve in a file of JSON lines, for programs and notebooks.
#ifndef PAWL_SCHEDULER_CURVE_CURVE_FILE_H_
#define PAWL_SCHEDULER_CURVE_CURVE_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "scheduler/curve/curve.h"

namespace pawl {

// A line without its end: an object with kind ("train", "eval" or "metrics"), time (Unix seconds),
// train_s, step, samples, and the point's values under the last parts of their tags. Those of kind
// "metrics" are in an object "metrics" under the program's names, which may be any. A value that is
// not finite is null. `unix_s`: when the point was recorded.
std::string CurveLine(double unix_s, const CurvePoint& point);

// Some hours of a curve.
inline constexpr uint64_t kCurveTailBytes = uint64_t{4} << 20;

// Writes a line for each point. A line that does not parse was cut off by the end of a process;
// readers skip it.
class CurveFile : public CurveSink {
 public:
  // `continues`: appends to the file of an earlier process of the job, if there is one; otherwise
  // replaces the file. Errors: those of FileError.
  static absl::StatusOr<std::unique_ptr<CurveFile>> Open(Env& env, const std::string& path,
                                                         bool continues);

  absl::Status Add(double unix_s, const CurvePoint& point) override;

  // The step of the latest evaluation in the file when it was opened; 0: there was none. Not set if
  // it lies before the last kCurveTailBytes.
  const std::optional<uint64_t>& last_evaluation_step() const { return last_evaluation_step_; }

 private:
  CurveFile(std::unique_ptr<WritableFile> file, std::optional<uint64_t> last_evaluation_step)
      : file_(std::move(file)), last_evaluation_step_(last_evaluation_step) {}

  const std::unique_ptr<WritableFile> file_;
  const std::optional<uint64_t> last_evaluation_step_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CURVE_CURVE_FILE_H_
