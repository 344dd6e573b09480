// A process that can start no thread.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_NO_MORE_THREADS_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_NO_MORE_THREADS_H_

#include <pthread.h>

#include <system_error>
#include <thread>

#include "gtest/gtest.h"

namespace pawl {

// While it exists, starting a std::thread throws std::system_error.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_attr_t huge;
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    EXPECT_EQ(pthread_attr_init(&huge), 0);
    // No machine has an address space for this stack.
    EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  }
  ~NoMoreThreads() { EXPECT_EQ(pthread_setattr_default_np(&before_), 0); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_NO_MORE_THREADS_H_
