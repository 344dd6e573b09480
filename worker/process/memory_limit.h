// The memory that this process may use.
#ifndef PAWL_WORKER_PROCESS_MEMORY_LIMIT_H_
#define PAWL_WORKER_PROCESS_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

namespace pawl {

// The machine's physical memory or, if it is less, the limit of this process's control group
// (version 1 or 2) or of a group that contains it. `root` is where /proc and /sys are, for tests.
uint64_t MemoryLimitBytes(const std::string& root = "");

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_MEMORY_LIMIT_H_
