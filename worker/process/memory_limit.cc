#include "worker/process/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace pawl {
namespace {

// The smallest limit in `file` of the group and of the groups above it, up to the mount's own.
uint64_t SmallestLimit(const std::string& mount, std::string group, const std::string& file) {
  uint64_t smallest = UINT64_MAX;
  for (;;) {
    std::ifstream in(mount + group + "/" + file);
    std::string text;
    uint64_t limit = 0;
    // "max" is no number.
    if (in >> text && absl::SimpleAtoi(text, &limit)) smallest = std::min(smallest, limit);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return smallest;
    group.resize(slash);
  }
}

}  // namespace

uint64_t MemoryLimitBytes(const std::string& root) {
  uint64_t limit =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "hierarchy:controllers:/group"
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() < 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[0] == "0" && parts[1].empty()) {
      limit = std::min(limit, SmallestLimit(root + "/sys/fs/cgroup", parts[2], "memory.max"));
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      limit = std::min(
          limit, SmallestLimit(root + "/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"));
    }
  }
  return limit;
}

}  // namespace pawl
