// A learning curve in a file of JSON lines, for programs and notebooks.
#ifndef PAWL_SCHEDULER_CURVE_CURVE_FILE_H_
#define PAWL_SCHEDULER_CURVE_CURVE_FILE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "scheduler/curve/curve_sink.h"

namespace pawl {

// A line without its end: an object with kind ("train", "eval" or "metrics"), time (Unix seconds),
// train_s, step, samples, and the point's values under the last parts of their tags. Those of kind
// "metrics" are in an object "metrics" under the program's names, which may be any. A value that is
// not finite is null. `unix_s`: when the point was recorded.
std::string CurveLine(double unix_s, const CurvePoint& point);

// Writes a line for each point. A line that does not parse was cut off by the end of a process;
// readers skip it.
class CurveFile : public CurveSink {
 public:
  // `continues`: appends to the file of an earlier process of the job, if there is one; otherwise
  // replaces the file. Errors: those of FileError.
  static absl::StatusOr<std::unique_ptr<CurveFile>> Open(Env& env, const std::string& path,
                                                         bool continues);

  absl::Status Add(double unix_s, const CurvePoint& point) override;

 private:
  explicit CurveFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<WritableFile> file_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CURVE_CURVE_FILE_H_
