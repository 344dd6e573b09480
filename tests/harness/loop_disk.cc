#include "tests/harness/loop_disk.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"
#include "tests/harness/command_output.h"

namespace pawl {
namespace {

constexpr char kFiller[] = "/filler";
constexpr off_t kLargestFillerBytes = off_t{1} << 30;
constexpr off_t kSmallestFillerBytes = 4096;

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// The child of FreezeFor. Calls only functions that are safe after a fork of a multi-threaded
// process.
[[noreturn]] void FreezeInChild(int folder, int ready, timespec duration) {
  // Closes inherited sockets, which would keep connections alive that the parent closes.
  dup2(folder, 3);
  dup2(ready, 4);
  close_range(5, ~0u, 0);
  const char frozen = ioctl(3, FIFREEZE, 0) == 0 ? 1 : 0;
  if (write(4, &frozen, 1) != 1) {
    // The parent has ended, so nothing else can thaw the disk.
  }
  close(4);
  if (frozen == 0) _exit(1);
  while (nanosleep(&duration, &duration) != 0 && errno == EINTR) {
  }
  _exit(ioctl(3, FITHAW, 0) == 0 ? 0 : 1);
}

}  // namespace

absl::Status LoopDisk::EnterPrivateMounts() {
  if (unshare(CLONE_NEWNS) != 0) return Failed("a mount namespace");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Failed("private mounts");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoopDisk>> LoopDisk::Mount(const std::string& image,
                                                          const std::string& folder,
                                                          uint64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  PAWL_RETURN_IF_ERROR(CommandOutput("/usr/bin/truncate", {"--size=0", image}).status());
  PAWL_RETURN_IF_ERROR(
      CommandOutput("/usr/bin/truncate", {absl::StrCat("--size=", bytes), image}).status());
  PAWL_RETURN_IF_ERROR(
      CommandOutput("/sbin/mkfs.ext4", {"-q", "-F", "-m", "0", "-O", "^has_journal", image})
          .status());
  PAWL_RETURN_IF_ERROR(CommandOutput("/bin/mount", {"-o", "loop", image, folder}).status());
  return std::unique_ptr<LoopDisk>(new LoopDisk(image, folder));
}

LoopDisk::~LoopDisk() {
  // Lazy, because ending processes may still use it for a moment.
  (void)CommandOutput("/bin/umount", {"--lazy", folder_});
  std::error_code error;
  std::filesystem::remove(image_, error);
}

absl::Status LoopDisk::Fill() {
  const int file = open((folder_ + kFiller).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return Failed("the filler");
  // A large piece that does not fit may take some space before it fails. Smaller pieces fill the
  // rest.
  off_t filled = 0;
  for (off_t size = kLargestFillerBytes; size >= kSmallestFillerBytes;) {
    if (fallocate(file, 0, filled, size) == 0) {
      filled += size;
    } else if (errno == ENOSPC) {
      size /= 2;
    } else {
      const absl::Status failed = Failed("the filler");
      close(file);
      return failed;
    }
  }
  close(file);
  return absl::OkStatus();
}

absl::Status LoopDisk::Empty() {
  if (unlink((folder_ + kFiller).c_str()) != 0) return Failed("the filler");
  return absl::OkStatus();
}

absl::Status LoopDisk::FreezeFor(MonotonicDuration duration) {
  const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return Failed(folder_);
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) {
    close(folder);
    return Failed("a pipe");
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  const timespec sleep = {
      .tv_sec = seconds.count(),
      .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(duration - seconds).count()};
  const pid_t child = fork();
  if (child == 0) {
    // The grandchild belongs to init, so this process need not wait for it.
    if (fork() == 0) FreezeInChild(folder, ready[1], sleep);
    _exit(0);
  }
  close(folder);
  close(ready[1]);
  if (child > 0) waitpid(child, nullptr, 0);
  char frozen = 0;
  const bool told = read(ready[0], &frozen, 1) == 1;
  close(ready[0]);
  if (!told || frozen == 0)
    return absl::UnavailableError(absl::StrCat(folder_, " cannot be frozen"));
  return absl::OkStatus();
}

absl::Status LoopDisk::Replace() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    std::filesystem::remove_all(entry.path(), error);
    if (error) break;
  }
  if (error) return absl::UnavailableError(absl::StrCat(folder_, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace pawl
