#include "client_lib/process/malloc_tuning.h"

#include <malloc.h>
#include <sys/auxv.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/process/restart.h"

namespace pawl {
namespace {

constexpr int kMaxKeptBytes = 128 << 20;
// Larger blocks are mapped individually.
constexpr int kMmapThresholdBytes = 32 << 20;
// Most of a heap of an arena, which has 64 MiB. glibc asks for huge pages only where a heap begins,
// not where it grows, so a heap that is to have them begins with nearly its full size; what is not
// used takes no memory. With the full size glibc would never return an empty heap.
constexpr int kHeapBytes = 56 << 20;
constexpr char kTunables[] = "GLIBC_TUNABLES";
constexpr char kHugePages[] = "glibc.malloc.hugetlb";

absl::string_view PresentTunables() {
  const char* const present = std::getenv(kTunables);
  return present == nullptr ? "" : present;
}

}  // namespace

void KeepFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_TRIM_THRESHOLD, kMaxKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  if (absl::StrContains(PresentTunables(), absl::StrCat(kHugePages, "=1")))
    mallopt(M_TOP_PAD, kHeapBytes);
#endif
}

std::optional<std::string> TunablesWithHugePages(absl::string_view kernel_setting,
                                                 absl::string_view present) {
  if (!absl::StrContains(kernel_setting, "[madvise]")) return std::nullopt;
  if (absl::StrContains(present, kHugePages)) return std::nullopt;
  return absl::StrCat(present, present.empty() ? "" : ":", kHugePages, "=1");
}

void RestartWithHugePages(char** argv) {
#if defined(__GLIBC__)
  // With capabilities of its file, or as another user, the program would find the variable removed
  // and restart forever.
  if (getauxval(AT_SECURE) != 0) return;
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string setting;
  std::getline(file, setting);
  const std::optional<std::string> tunables = TunablesWithHugePages(setting, PresentTunables());
  if (!tunables.has_value()) return;
  const absl::Status status = RestartWithVariable(argv, kTunables, *tunables);
  std::fprintf(stderr, "malloc uses no huge pages: re-executing this program failed: %s\n",
               std::string(status.message()).c_str());
#endif
}

}  // namespace pawl
