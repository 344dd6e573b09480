// A collective for memory of the host on top of one for memory of a device.
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

// What is on the device at a time: four pieces of this size, whatever the operations' sizes are.
inline constexpr size_t kStagedPieceBytes = size_t{4} << 20;

// Memory is the host's. An operation is cut into pieces; each is copied to the device, is an
// operation of `inner` there, and is copied back. While inner does one piece, the one before it is
// copied back and the next one is copied in. Operations follow each other without such an overlap:
// one of a single piece is copied in, done and copied back.
//
// AllReduceOnDevice takes memory of the device as it is, and gives inner the same pieces: the bits
// are AllReduce's.
//
// Types, reductions and errors are those of inner, which sees the same pieces on all members. In
// which order elements are added is inner's to say, and may depend on where in a piece an element
// lies: never on anything else than counts, types and the number of members. An operation's
// deadline holds for all of its pieces together. After an error, or an abort, nothing touches the
// caller's memory once `done` has been called, and inner is aborted: its own end is that of the
// group.
//
// A device that hangs is waited for as long as its streams do (Stream::Synchronize), and inner,
// also beyond a deadline; its memory is not freed then.
class StagedCollective final : public ConnectableCollective {
 public:
  struct Options {
    // Of all members the same. At least as many elements of the largest type as there are members.
    size_t piece_bytes = kStagedPieceBytes;
  };

  // `device` outlives it, and is the one whose memory inner takes. RESOURCE_EXHAUSTED if the device
  // has not as much memory, INVALID_ARGUMENT for pieces that are too small.
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
  void Reduce(const void* input, void* output, size_t count, CollectiveType type,
              Reduction reduction, size_t root, MonotonicDuration timeout, Done done) override;
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                 MonotonicDuration timeout, Done done) override;
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration timeout, Done done) override;
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Barrier(MonotonicDuration timeout, Done done) override;
  void Abort(const absl::Status& reason) override { thread_->Abort(reason); }
  absl::Status status() const override;
  bool hangs() const override { return hangs_ || inner_->hangs(); }

 private:
  // Elements [begin, begin + count) of an operation, and the device's memory for what goes in and
  // what comes out.
  struct Piece {
    size_t begin = 0;
    size_t count = 0;
    char* input = nullptr;
    char* output = nullptr;
  };
  // What is done with a piece, in this order. The copies are put on stream_.
  struct Stages {
    std::function<void(const Piece& piece)> copy_in;
    std::function<void(const Piece& piece, MonotonicDuration timeout, Done done)> start;
    std::function<void(const Piece& piece)> copy_out;
  };

  StagedCollective(std::unique_ptr<ConnectableCollective> inner, Device& device,
                   const Options& options)
      : inner_(std::move(inner)), device_(device), options_(options) {}

  // An operation whose largest side is `parts` times `count` elements.
  void Add(size_t count, size_t parts, CollectiveType type, MonotonicDuration timeout,
           Stages stages, Done done);
  // The rest is for thread_.
  absl::Status RunPieces(size_t count, size_t piece_count, MonotonicTime deadline,
                         const Stages& stages);
  // Puts copies on the stream, and waits until they are done.
  absl::Status Copy(const std::function<void(const Piece& piece)>& copies, const Piece& piece);

  const std::unique_ptr<ConnectableCollective> inner_;
  Device& device_;
  const Options options_;
  // For thread_ alone. Two pieces are under way at a time.
  Piece places_[2];
  std::unique_ptr<Stream> stream_;
  bool connected_ = false;
  std::atomic<bool> hangs_{false};
  // The last to be made.
  std::unique_ptr<OperationThread> thread_;
};

// Members of this process on that device, each on top of one that `inner` makes.
CollectiveFactory StagedCollectives(CollectiveFactory inner, Device& device);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_STAGED_COLLECTIVE_H_
