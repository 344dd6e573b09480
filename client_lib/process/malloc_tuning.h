// malloc settings for a process that moves megabytes per millisecond.
#ifndef PAWL_CLIENT_LIB_PROCESS_MALLOC_TUNING_H_
#define PAWL_CLIENT_LIB_PROCESS_MALLOC_TUNING_H_

namespace pawl {

// Lets malloc keep up to 128 MiB of freed memory at the end of each arena. By default it returns
// the buffers of each large message to the kernel and gets them back, zeroed page by page, for the
// next one; keeping them makes dense pulls 1.5 to 2 times as fast. Affects the whole process;
// thread-safe, idempotent.
void KeepFreedMemory();

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_MALLOC_TUNING_H_
