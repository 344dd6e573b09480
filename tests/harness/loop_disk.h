// A disk for one process of a test, which can be full, hang or be lost.
#ifndef PAWL_TESTS_HARNESS_LOOP_DISK_H_
#define PAWL_TESTS_HARNESS_LOOP_DISK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"

namespace pawl {

// An ext4 file system in a file, mounted at a folder by a loop device. Needs root. For the main
// thread.
class LoopDisk {
 public:
  // Gives this process mounts of its own, which end with it and its children, however they end.
  // Called before any other thread starts, once a process. UNAVAILABLE where the machine does not
  // allow it.
  static absl::Status EnterPrivateMounts();

  // Makes `folder` and mounts an empty file system of `bytes` there; `image`, the file that holds
  // it, is replaced. UNAVAILABLE, with the reason, where the machine does not allow it. REQUIRES:
  // EnterPrivateMounts has succeeded.
  static absl::StatusOr<std::unique_ptr<LoopDisk>> Mount(const std::string& image,
                                                         const std::string& folder, uint64_t bytes);

  // Unmounts it and removes the image.
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  // Takes all free space, until Empty.
  absl::Status Fill();
  absl::Status Empty();

  // Every write and sync hangs, as on a disk that does not answer, from before this returns until
  // `duration` has passed, even if this process ends meanwhile. A process that hangs in a write
  // cannot be killed until then. REQUIRES: an earlier freeze has ended.
  absl::Status FreezeFor(MonotonicDuration duration);

  // Removes all files, as if the disk had been replaced. REQUIRES: no process uses it.
  absl::Status Replace();

 private:
  LoopDisk(std::string image, std::string folder)
      : image_(std::move(image)), folder_(std::move(folder)) {}

  const std::string image_;
  const std::string folder_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LOOP_DISK_H_
