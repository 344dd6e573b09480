// How much processor time a process has used.
#ifndef PAWL_TESTS_PERF_PROCESS_USAGE_H_
#define PAWL_TESTS_PERF_PROCESS_USAGE_H_

#include <sys/types.h>

namespace pawl {

// Seconds of all its threads since it began, in user and kernel mode; 0 if there is no such
// process.
double CpuSeconds(pid_t pid);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_PROCESS_USAGE_H_
