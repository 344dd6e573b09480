// Prepares batches ahead of their use in the background.
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

// Produces batches `first` to `end` - 1 of one rank, in order. A thread of its own makes them while
// the rank computes and waits. Memory is reused: there are never more than kMaxBatches.
//
// One thread calls Next and Release. The stream owns the batches and outlives the calls that borrow
// their keys.
class BatchStream {
 public:
  // One being pushed, one being computed, one being pulled, and one prepared ahead.
  static constexpr size_t kMaxBatches = 4;

  // Fills `batch`, which may hold an old one, with batch `number`. Called by the stream's thread
  // with ascending numbers.
  using Assemble = std::function<absl::Status(uint64_t number, Batch* batch)>;

  BatchStream(uint64_t first, uint64_t end, Assemble assemble);
  // Waits for the batch in progress.
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // The next batch, the error of making it, or the interrupt's reason. REQUIRES: fewer than
  // kMaxBatches are unreleased, and there is a next batch.
  absl::StatusOr<Batch*> Next(const Interrupt& interrupt);
  // Returns a batch for reuse.
  void Release(Batch* batch);
  // Makes no further batches. Does not wait for the one in progress.
  void End();
  // Whether no batch is in progress and none will follow, so that destruction does not wait.
  bool HasEnded() const;

 private:
  void Run();
  void MakeBatches();

  const uint64_t first_;
  const uint64_t end_;
  const Assemble assemble_;

  mutable Mutex mu_;
  CondVar changed_;
  bool ending_ PAWL_GUARDED_BY(mu_) = false;
  bool has_ended_ PAWL_GUARDED_BY(mu_) = false;
  absl::Status status_ PAWL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Batch>> all_ PAWL_GUARDED_BY(mu_);
  std::vector<Batch*> free_ PAWL_GUARDED_BY(mu_);
  std::deque<Batch*> ready_ PAWL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_BATCH_STREAM_H_
