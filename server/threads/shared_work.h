// Work on many partitions that several threads do together.
#ifndef PAWL_SERVER_THREADS_SHARED_WORK_H_
#define PAWL_SERVER_THREADS_SHARED_WORK_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/replication/waiting_calls.h"
#include "server/threads/helper_threads.h"

namespace pawl {

// With less than so many partitions for each thread, telling it costs more than it helps.
inline constexpr size_t kPartitionsAPiece = 8;

// Runs work(0), ..., work(count - 1), each once, begun in this order, on this thread and on those
// that help (null: on this one alone), and then `done`, on whichever thread was the last. The calls
// that a piece of work gives may go on, and do at once: whoever waits for one partition does not
// wait for the others. Returns when there is nothing left to begin; others may still be at theirs,
// so `work` must not refer to what the caller has on its stack. `work` and `done` are destroyed
// when `done` has been called, though help may still be waiting to be taken up.
//
// Partitions share nothing, and each is worked on by one thread: the results do not depend on how
// many help. REQUIRES: no locks are held.
void ShareWork(HelperThreads* helpers, size_t count,
               std::function<std::vector<std::shared_ptr<WaitingCall>>(size_t)> work,
               absl::AnyInvocable<void()> done);

}  // namespace pawl

#endif  // PAWL_SERVER_THREADS_SHARED_WORK_H_
