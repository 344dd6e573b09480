// The processor time of a process.
#ifndef PAWL_TESTS_PERF_PROCESS_USAGE_H_
#define PAWL_TESTS_PERF_PROCESS_USAGE_H_

#include <sys/types.h>

namespace pawl {

// The user and kernel time of all its threads so far, in seconds; 0 if there is no such process.
double CpuSeconds(pid_t pid);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_PROCESS_USAGE_H_
