// A collective for host memory on top of one for device memory.
#ifndef PAWL_WORKER_COLLECTIVE_STAGED_COLLECTIVE_H_
#define PAWL_WORKER_COLLECTIVE_STAGED_COLLECTIVE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collective/connectable_collective.h"
#include "worker/collective/operation_thread.h"
#include "worker/device/device.h"

namespace pawl {

// The device holds four pieces of this size at a time, whatever the size of an operation.
inline constexpr size_t kStagedPieceBytes = size_t{4} << 20;

// Takes host memory. An operation is split into pieces; each is copied to the device, is an
// operation of `inner` there, and is copied back. While inner works on one piece, the previous one
// is copied back and the next one is copied in. Different operations do not overlap: one of a
// single piece is copied in, done and copied back.
//
// AllReduceOnDevice uses device memory in place and gives inner the same pieces, so its bits are
// those of AllReduce.
//
// Types, reductions and errors are those of inner, which sees the same pieces on all members. Inner
// determines the order of addition, which may depend on an element's position in a piece, but
// otherwise only on counts, types and the number of members. An operation's deadline covers all of
// its pieces. After an error or an abort, nothing touches the caller's memory once `done` has been
// called. Inner is then aborted, which ends the group.
//
// A hanging device is awaited as long as its streams do (Stream::Synchronize), and inner even
// beyond a deadline; the device's memory is not freed then.
class StagedCollective final : public ConnectableCollective {
 public:
  struct Options {
    // The same for all members. At least as many elements of the largest type as there are members.
    size_t piece_bytes = kStagedPieceBytes;
  };

  // `device` outlives it, and inner takes its memory. RESOURCE_EXHAUSTED if the device lacks the
  // memory, INVALID_ARGUMENT for pieces that are too small.
  static absl::StatusOr<std::unique_ptr<StagedCollective>> Create(
      std::unique_ptr<ConnectableCollective> inner, Device& device, const Options& options);
  ~StagedCollective() override;

  const std::string& introduction() const override { return inner_->introduction(); }
  void Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
               Done done) override;

  size_t size() const override { return inner_->size(); }
  size_t place() const override { return inner_->place(); }
  void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                 Reduction reduction, MonotonicDuration timeout, Done done) override;
  bool TakesDeviceMemory() const override { return true; }
  void AllReduceOnDevice(const void* input, void* output, size_t count, CollectiveType type,
                         Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                 MonotonicDuration timeout, Done done) override;
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration timeout, Done done) override;
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Abort(const absl::Status& reason) override { thread_->Abort(reason); }
  absl::Status status() const override;
  bool hangs() const override { return hangs_ || inner_->hangs(); }

 private:
  // Elements [begin, begin + count) of an operation, with device memory for input and output.
  struct Piece {
    size_t begin = 0;
    size_t count = 0;
    char* input = nullptr;
    char* output = nullptr;
  };
  // Enqueues the copies of a piece on stream_.
  using CopyStage = std::function<void(const Piece& piece)>;
  // The stages of a piece, in order.
  struct Stages {
    CopyStage copy_in;
    std::function<void(const Piece& piece, MonotonicDuration timeout, Done done)> start;
    CopyStage copy_out;
  };

  StagedCollective(std::unique_ptr<ConnectableCollective> inner, Device& device,
                   const Options& options)
      : inner_(std::move(inner)), device_(device), options_(options) {}

  // Copies from and to the piece's place in memory of the host.
  CopyStage Input(const void* input, CollectiveType type);
  CopyStage Output(void* output, CollectiveType type);
  // Adds an operation whose larger side has `parts` times `count` elements.
  void Add(size_t count, size_t parts, CollectiveType type, MonotonicDuration timeout,
           Stages stages, Done done);
  // The remaining methods run on thread_.
  absl::Status RunPieces(size_t count, size_t piece_count, MonotonicTime deadline,
                         const Stages& stages);
  // Enqueues copies on the stream and waits for them.
  absl::Status Copy(const CopyStage& copies, const Piece& piece);

  const std::unique_ptr<ConnectableCollective> inner_;
  Device& device_;
  const Options options_;
  // Used by thread_ alone. Two pieces are in progress at a time.
  Piece places_[2];
  std::unique_ptr<Stream> stream_;
  bool connected_ = false;
  std::atomic<bool> hangs_{false};
  // Initialized last.
  std::unique_ptr<OperationThread> thread_;
};

// Creates members of this process on that device, each on top of one from `inner`.
CollectiveFactory StagedCollectives(CollectiveFactory inner, Device& device);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_STAGED_COLLECTIVE_H_
