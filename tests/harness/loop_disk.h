// A disk for one test process that can fill up, hang or be lost.
#ifndef PAWL_TESTS_HARNESS_LOOP_DISK_H_
#define PAWL_TESTS_HARNESS_LOOP_DISK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"

namespace pawl {

// An ext4 file system in a file, mounted on a folder through a loop device. Needs root. Use it on
// the main thread.
class LoopDisk {
 public:
  // Gives this process a private mount namespace. Its mounts disappear with the process and its
  // children. Call it once per process, before any other thread starts. UNAVAILABLE if the machine
  // does not permit it.
  static absl::Status EnterPrivateMounts();

  // Creates `folder` and mounts an empty file system of `bytes` there. Replaces `image`, the file
  // behind it. UNAVAILABLE with the reason if the machine does not permit it. REQUIRES:
  // EnterPrivateMounts has succeeded.
  static absl::StatusOr<std::unique_ptr<LoopDisk>> Mount(const std::string& image,
                                                         const std::string& folder, uint64_t bytes);

  // Unmounts the disk and removes the image.
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  // Allocates all free space until Empty.
  absl::Status Fill();
  absl::Status Empty();

  // Makes every write and sync hang for `duration`, as on a disk that does not respond; the disk is
  // frozen when this returns. The freeze ends on time even if this process dies. A process that
  // hangs in a write cannot be killed until then. REQUIRES: an earlier freeze has ended.
  absl::Status FreezeFor(MonotonicDuration duration);

  // Removes all files, as if the disk were replaced. REQUIRES: no process uses it.
  absl::Status Replace();

 private:
  LoopDisk(std::string image, std::string folder)
      : image_(std::move(image)), folder_(std::move(folder)) {}

  const std::string image_;
  const std::string folder_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LOOP_DISK_H_
