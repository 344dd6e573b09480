// malloc settings for a process that moves megabytes per millisecond.
#ifndef PAWL_CLIENT_LIB_PROCESS_MALLOC_TUNING_H_
#define PAWL_CLIENT_LIB_PROCESS_MALLOC_TUNING_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// Lets malloc keep freed memory: up to 128 MiB at the end of the main arena, and heaps of 64 MiB of
// the others until they are empty. By default it returns the buffers of each large message to the
// kernel and gets them back, zeroed page by page, for the next one; keeping them makes dense pulls
// 1.5 to 2 times as fast. If GLIBC_TUNABLES asks for huge pages, heaps begin with most of their
// address space, so that they consist of these. Affects the whole process; thread-safe, idempotent.
void KeepFreedMemory();

// Makes malloc ask for huge pages, by executing the program again with GLIBC_TUNABLES, which glibc
// reads before main. A job looks up millions of rows in no order; with pages of 4 KiB each look-up
// also misses the processor's table of pages. Returns if the kernel does not wait to be asked, or
// the user has decided (glibc.malloc.hugetlb in GLIBC_TUNABLES). REQUIRES: called first in main.
void RestartWithHugePages(char** argv);

// The value of GLIBC_TUNABLES that RestartWithHugePages needs, if it has to restart.
// `kernel_setting`: the contents of /sys/kernel/mm/transparent_hugepage/enabled; `present`: the
// present value.
std::optional<std::string> TunablesWithHugePages(absl::string_view kernel_setting,
                                                 absl::string_view present);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_MALLOC_TUNING_H_
