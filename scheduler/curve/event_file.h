// A file of events that TensorBoard shows.
#ifndef PAWL_SCHEDULER_CURVE_EVENT_FILE_H_
#define PAWL_SCHEDULER_CURVE_EVENT_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "scheduler/curve/curve.h"

namespace pawl {

// Each event is a record of TensorFlow's TFRecord format: its length as uint64, the masked CRC32C
// of that, the event, and the masked CRC32C of it, integers little-endian
// (https://www.tensorflow.org/tutorials/load_data/tfrecord). Not thread-safe.
class EventFile : public CurveSink {
 public:
  // Creates `folder` if its parent exists, and in it the file
  // events.out.tfevents.SECONDS.`suffix`. Errors: those of FileError.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(Env& env, const std::string& folder,
                                                           double unix_s,
                                                           const std::string& suffix);

  absl::Status Add(double unix_s, const CurvePoint& point) override;

 private:
  explicit EventFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}

  absl::Status Append(const std::string& event);

  const std::unique_ptr<WritableFile> file_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CURVE_EVENT_FILE_H_
