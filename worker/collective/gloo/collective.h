// The collective of processes on CPUs: Gloo's algorithms over TCP.
#ifndef PAWL_WORKER_COLLECTIVE_GLOO_COLLECTIVE_H_
#define PAWL_WORKER_COLLECTIVE_GLOO_COLLECTIVE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gloo/context.h"
#include "gloo/transport/device.h"
#include "worker/collective/connectable_collective.h"
#include "worker/collective/gloo/watched_transport.h"
#include "worker/collective/operation_thread.h"

namespace pawl {

// Every pair of members has a connection, and an introduction of about 140 bytes.
inline constexpr size_t kMaxGlooMembers = 128;

// Takes host memory; FindReductionFunction says how reductions are computed.
//
//   AllReduce      a ring: reduce-scatter, then all-gather, in pieces of 1 MiB; each member sends
//                  2 (k-1)/k of the bytes
//   ReduceScatter  a ring; (k-1)/k of the bytes
//   AllGather      a ring
//   Broadcast      a tree
//
// The order of addition depends only on the number of members and on an element's position, so the
// same members with the same input get the same bits, independent of timing. It is not the order of
// places.
//
// An operation that fails for any reason breaks the group, and so does one beyond
// kMaxQueuedOperations. An error closes the connections. Every member watches its connection to the
// member before it, so all members notice at once, whatever they do. Abort wakes the current
// operation at once and then takes up to 10 ms for each connection that it closes.
//
// Limitations: the connections are neither encrypted nor authenticated, and each pair of members
// listens at a port of the system's choice until it is connected. The network between workers must
// be trusted.
class GlooCollective final : public ConnectableCollective {
 public:
  struct Options {
    size_t size = 1;
    size_t place = 0;
    // An address of this machine, a name or a number, at which the others reach it.
    std::string host = "127.0.0.1";
    // How long each other member may take to connect; applies in addition to Connect's own timeout.
    std::chrono::milliseconds pair_timeout{10000};
  };
  // INVALID_ARGUMENT for an invalid place or too many members, FAILED_PRECONDITION if the host is
  // not this machine's, UNAVAILABLE if it cannot listen there now.
  static absl::StatusOr<std::unique_ptr<GlooCollective>> Create(const Options& options);
  ~GlooCollective() override;

  const std::string& introduction() const override { return introduction_; }
  void Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
               Done done) override;

  size_t size() const override { return options_.size; }
  size_t place() const override { return options_.place; }
  void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                 Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                 MonotonicDuration timeout, Done done) override;
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration timeout, Done done) override;
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration timeout, Done done) override;
  void Abort(const absl::Status& reason) override { thread_->Abort(reason); }
  absl::Status status() const override { return thread_->status(); }

  // Payload bytes sent by this member to all others so far.
  uint64_t bytes_sent() const { return transport_ == nullptr ? 0 : transport_->bytes_sent(); }

 private:
  explicit GlooCollective(const Options& options) : options_(options) {}

  // May throw Gloo's exceptions.
  void Listen();
  // Runs until the group is broken.
  void WatchFormerMember();
  absl::Status ConnectPairs(const std::vector<std::string>& introductions, MonotonicTime deadline);
  void ScatterReduced(const char* input, char* output, size_t bytes, size_t element_bytes,
                      void (*reduce)(void*, const void*, const void*, size_t), uint32_t tag);

  // Adds an operation on `count` elements. `work`, which may throw, is skipped for an empty
  // operation.
  void Add(size_t count, CollectiveType type, MonotonicDuration timeout,
           absl::AnyInvocable<void(size_t bytes, uint32_t tag)> work, Done done,
           absl::Status invalid = absl::OkStatus());
  absl::Status CheckRoot(size_t root) const;

  const Options options_;
  std::string introduction_;
  // Null with a single member.
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<WatchedTransport> transport_;
  std::shared_ptr<gloo::Context> context_;
  // Used by thread_ alone. All members count the same operations, so messages of different
  // operations cannot be confused.
  uint32_t last_tag_ = 0;
  bool connected_ = false;
  std::unique_ptr<OperationThread> thread_;
  // Started by thread_.
  std::thread watch_;
};

// Creates members of this process, reached at `host` as in Options.
CollectiveFactory GlooCollectives(const std::string& host);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_GLOO_COLLECTIVE_H_
