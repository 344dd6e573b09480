// std::mutex with the annotations of clang's thread safety analysis. Pawl does not use absl::Mutex:
// the system's Abseil is built without ThreadSanitizer, which then cannot see what absl::Mutex
// orders.
//
//   class Counter {
//     void Add() { MutexLock lock(mu_); ++value_; }
//     Mutex mu_;
//     int64_t value_ PAWL_GUARDED_BY(mu_) = 0;
//   };
#ifndef PAWL_CLIENT_LIB_BASE_MUTEX_H_
#define PAWL_CLIENT_LIB_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define PAWL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PAWL_THREAD_ANNOTATION(x)
#endif

#define PAWL_GUARDED_BY(x) PAWL_THREAD_ANNOTATION(guarded_by(x))
#define PAWL_REQUIRES(...) PAWL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define PAWL_EXCLUDES(...) PAWL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define PAWL_ACQUIRE(...) PAWL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define PAWL_RELEASE(...) PAWL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define PAWL_NO_THREAD_SAFETY_ANALYSIS PAWL_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace pawl {

class PAWL_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() PAWL_ACQUIRE() { mu_.lock(); }
  void Unlock() PAWL_RELEASE() { mu_.unlock(); }
  // Returns false if another thread holds it.
  bool TryLock() PAWL_THREAD_ANNOTATION(try_acquire_capability(true)) { return mu_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class PAWL_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mu) PAWL_ACQUIRE(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() PAWL_RELEASE() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Wakeups may be spurious: wait in a loop over the condition. Every wait has a deadline.
class CondVar {
 public:
  // Returns false if `deadline` has passed.
  bool WaitUntil(Mutex& mu, std::chrono::steady_clock::time_point deadline) PAWL_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    const std::cv_status result = cv_.wait_until(lock, deadline);
    lock.release();
    return result == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_MUTEX_H_
