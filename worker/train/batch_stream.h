// Batches made ahead of their use, in the background.
#ifndef PAWL_WORKER_TRAIN_BATCH_STREAM_H_
#define PAWL_WORKER_TRAIN_BATCH_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "worker/data/batch.h"
#include "worker/process/interrupt.h"

namespace pawl {

// Batches number `first` to `end` - 1 of one rank, in order. A thread of its own
// makes them while the rank computes and waits. Memory is used again: there are
// never more than kMaxBatches.
//
// One thread calls Next and Release. The batches die with the stream: it must
// outlive the calls that borrow their keys.
class BatchStream {
 public:
  // One being pushed, one being computed on, one being pulled for, and the one ahead.
  static constexpr size_t kMaxBatches = 4;

  // Makes batch `number`, whose memory may hold an old one. Called by the stream's thread, for
  // ascending numbers.
  using Assemble = std::function<absl::Status(uint64_t number, Batch* batch)>;

  BatchStream(uint64_t first, uint64_t end, Assemble assemble);
  // Waits for the batch that is being made.
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // The next batch, or the error of making it, or the interrupt's reason.
  // REQUIRES: fewer than kMaxBatches are out; there is a next one.
  absl::StatusOr<Batch*> Next(const Interrupt& interrupt);
  // The caller needs this batch no more.
  void Release(Batch* batch);

 private:
  void Run();

  const uint64_t first_;
  const uint64_t end_;
  const Assemble assemble_;

  Mutex mu_;
  CondVar changed_;
  bool ending_ PAWL_GUARDED_BY(mu_) = false;
  absl::Status status_ PAWL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Batch>> all_ PAWL_GUARDED_BY(mu_);
  std::vector<Batch*> free_ PAWL_GUARDED_BY(mu_);
  std::deque<Batch*> ready_ PAWL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_BATCH_STREAM_H_
