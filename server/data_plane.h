// Push, Pull and EndStep: decodes, validates, admits and answers.
#ifndef PAWL_SERVER_DATA_PLANE_H_
#define PAWL_SERVER_DATA_PLANE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/request_handler.h"
#include "proto/parameter.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/server_control.pb.h"
#include "server/hosted_partition.h"

namespace pawl {

struct DataPlaneOptions {
  // Of requests that are being worked on or wait, and of the answers to them. Beyond it a request is
  // refused with RESOURCE_EXHAUSTED and told when to come back.
  size_t max_bytes_in_flight = size_t{2} << 30;
  // Calls that wait for a step. More than all workers of a large job can have.
  size_t max_waiting_calls = 65536;
  // See PartitionOptions.
  uint64_t max_rows_per_partition = uint64_t{1} << 26;
};

// The partitions of one server and the requests on them. It owns no thread and knows no
// gRPC: calls run on the threads that bring them; a call that waits is answered on
// the thread that brings what it waited for. The owner calls ExpireWaitingCalls now and then.
// Thread-safe.
//
// Order of locks: routing_mu_, then HostedPartition::mu, one partition at a time; waiting_mu_ alone.
class DataPlane final : public RequestHandler {
 public:
  DataPlane(const DataPlaneOptions& options, const Clock& clock);
  ~DataPlane() override;

  // Tells what job this is (with its defaults resolved, as registration gives it). Before it, and before the first routing table, every call gets UNAVAILABLE.
  void Begin(uint64_t job_id, const Job& job);
  uint64_t job_id() const;

  // Makes this server the primary of the partitions that `routing` gives to the server number
  // `self` of it. Older epochs are ignored. REQUIRES: Begin.
  void AdoptRouting(const RoutingTable& routing, uint32_t self);
  uint64_t epoch() const;

  // RequestHandler.
  void Handle(Method method, IncomingMessage request, CallContext context, Reply reply) override;

  // ServerControl; see proto/server_control.proto.
  absl::Status CreateTable(const TableSpec& spec);
  InspectResponse Inspect(bool digest);
  // `may_be_old`: figures of a partition that is busy are those of the last call, so that it never waits long.
  ServerCounters Counters(bool may_be_old);
  void KeepBest(uint64_t evaluation);
  void RestoreBest();

  // Answers waiting calls whose deadline has passed or whose caller is gone.
  void ExpireWaitingCalls();
  // Answers all waiting calls, and every call from now on, with `status`: the job is over or this server is.
  void Close(absl::Status status);

 private:
  using Tables = absl::btree_map<uint32_t, std::shared_ptr<const TableSchema>>;

  // What a request sees, unchanged while it looks. Replaced as a whole by Begin, AdoptRouting and CreateTable.
  struct View {
    uint64_t job_id = 0;
    PartitionOptions options;
    uint64_t epoch = 0;
    std::string routing;  // serialized, for the payload
    std::vector<std::shared_ptr<HostedPartition>> partitions;  // by number; null: elsewhere
    Tables tables;
  };

  // Bytes in flight of one request or answer; given back when it is destroyed, maybe after the DataPlane.
  class Reservation;

  std::shared_ptr<const View> CurrentView() const;
  absl::StatusOr<std::shared_ptr<const View>> Admit(const RequestHeader& header, Sender& sender) const;
  absl::Status StaleRouting(const View& view, absl::string_view what) const;

  void Push(IncomingMessage message, CallContext context, Reply reply);
  void Pull(IncomingMessage message, CallContext context, Reply reply);
  void EndStep(IncomingMessage message, Reply reply);
  // Where the request ends its step, and after how many segments.
  struct StepEnd {
    std::shared_ptr<HostedPartition> hosted;
    std::optional<uint64_t> segments;
  };
  absl::StatusOr<std::vector<StepEnd>> StepEnds(const View& view, const EndStepRequest& request) const;
  absl::Status TooManyBytesInFlight() const;
  // What of the push the partitions would refuse.
  absl::Status CheckPush(const View& view, const Sender& sender, const PushRequestView& request) const;
  absl::StatusOr<PushResponse> ApplyPush(const View& view, const Sender& sender, const PushRequestView& request,
                                         const std::shared_ptr<const void>& owner);
  // The message keeps `reservation` until its memory is given back.
  OutgoingMessage AnswerPull(const View& view, const Sender* sender, const PullRequestView& request,
                             const std::vector<size_t>& value_bytes, std::shared_ptr<const Reservation> reservation);
  // Runs `resume` once all `partitions` have reached `step`, or with an error.
  void WaitForStep(const View& view, const std::vector<uint32_t>& partitions, uint64_t step, CallContext context,
                   absl::AnyInvocable<void(absl::Status)> resume);
  // Answers with an error, counting and logging what was refused for its content.
  void Refuse(Method method, const RequestHeader* header, absl::Status status, Reply& reply);

  const DataPlaneOptions options_;
  const Clock& clock_;

  mutable Mutex routing_mu_;
  std::shared_ptr<const View> view_ PAWL_GUARDED_BY(routing_mu_);
  absl::Status closed_ PAWL_GUARDED_BY(routing_mu_);

  Mutex waiting_mu_;
  // As closed_: a call that finds it set is answered by whoever wanted to keep it.
  absl::Status waiting_closed_ PAWL_GUARDED_BY(waiting_mu_);
  std::list<std::shared_ptr<WaitingCall>> waiting_ PAWL_GUARDED_BY(waiting_mu_);

  // Shared with all reservations.
  const std::shared_ptr<std::atomic<size_t>> bytes_in_flight_ = std::make_shared<std::atomic<size_t>>(0);
  std::atomic<uint64_t> requests_refused_{0};
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_H_
