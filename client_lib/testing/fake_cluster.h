// A scheduler and servers inside the test's process. They use only the generated protobuf classes,
// independent of server/, scheduler/ and the client's codec.
#ifndef PAWL_CLIENT_LIB_TESTING_FAKE_CLUSTER_H_
#define PAWL_CLIENT_LIB_TESTING_FAKE_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/control_channel.h"
#include "client_lib/rpc/request_handler.h"
#include "client_lib/rpc/testing/in_process_transport.h"
#include "client_lib/rpc/version.h"
#include "proto/parameter.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// A row or block is the sum of all pushes to it since its last assignment. Its slots are those that
// were assigned last, or zeros. Thread-safe.
class FakeCluster {
 public:
  // A request to a server. Records are in the order of arrival.
  struct Event {
    std::string server;
    Method method;
    RequestHeader header;
    // Push: (table, partition, ordinal) of each segment, and whether it was a duplicate.
    struct Segment {
      uint32_t table;
      uint32_t partition;
      uint64_t ordinal;
      std::vector<uint64_t> keys;
      std::vector<float> values;
      bool duplicate;
      // Push: the element type of the values.
      ElementType element_type = FLOAT32;
      // The size of the values, sent or requested.
      size_t value_bytes = 0;
      PushEffect effect = APPLY_GRADIENT;
    };
    std::vector<Segment> segments;
    // EndStep, TakeOver and Scan.
    std::vector<uint32_t> partitions;
    std::vector<uint64_t> segment_counts;
    // EndStep.
    EndStepRequest::Phase phase = EndStepRequest::END;
    float scale = 0;
  };
  // Called before the server handles a request. A status that is not OK becomes the answer.
  using Intercept = std::function<absl::Status(const std::string& server, Method method)>;

  FakeCluster(int servers, uint32_t partitions);
  ~FakeCluster();

  std::shared_ptr<InProcessTransport> transport() { return transport_; }
  std::shared_ptr<ControlChannel> control();

  void SetIntercept(Intercept intercept);
  // While a method is held, its requests are accepted but not answered. Release answers them all.
  void Hold(Method method);
  void Release(Method method);
  size_t held(Method method) const;
  // The number of AWAIT_ALL requests that wait for ReleaseAwaits.
  size_t held_awaits() const;
  // The largest number of bytes of values held at one time, sent or requested.
  size_t max_bytes_held() const;

  // Starts a new epoch, in which partition p is on server (p + shift) mod servers. Servers know it
  // at once; clients do only after AnnounceRouting.
  void MovePartitions(uint32_t shift);
  // The same for one partition; unset: it has no primary.
  void SetPrimary(uint32_t partition, std::optional<uint32_t> server);
  // From now on the scheduler announces new epochs to clients.
  void AnnounceRouting();
  // Servers that refuse an old epoch attach the new epoch number without a table.
  void OmitRoutingFromRefusals();
  // Covers the old and new tables.
  RoutingTable routing() const;
  void FailJob(const std::string& failure);
  // Sets the protocol in answers to registrations; by default the newest.
  void SetProtocol(uint32_t protocol);
  // Job.clip_global_norm, for later registrations. `squares` are those of every step, by partition.
  // Until ReleaseAwaits no server answers AWAIT_ALL.
  void SetClipGlobalNorm(float clip_global_norm, std::vector<double> squares);
  void ReleaseAwaits();
  // The scheduler answers nothing while it is down.
  void SetSchedulerDown(bool down);
  // The answer to the next registrations, if it is not OK.
  void RefuseRegistrations(absl::Status refusal);
  // The scheduler forgets all nodes registered so far.
  void ForgetNodes();
  // Sets the rank's clock in the partition, as if it had ended its earlier steps.
  void SetClock(uint32_t rank, uint32_t partition, uint64_t clock);
  uint64_t Clock(uint32_t rank, uint32_t partition) const;

  std::vector<Event> events() const;
  // The sums of a row or block; empty if it was never pushed.
  std::vector<float> Row(uint32_t table, uint64_t key) const;
  // The slots that were assigned last; empty if none were.
  std::vector<float> Slots(uint32_t table, uint64_t key) const;
  // The accepted ordinals of (sender, step, partition).
  std::set<uint64_t> Ordinals(uint64_t sender, uint64_t step, uint32_t partition) const;
  // Counts only incarnations that the scheduler knows.
  uint64_t heartbeats() const;
  // The metrics that heartbeats have reported.
  std::vector<UserMetric> metrics() const;
  std::vector<RegisterRequest> registrations() const;
  bool said_goodbye() const;

 private:
  class Server;
  class Scheduler;
  struct Held {
    Method method;
    // Waits for ReleaseAwaits instead of Release.
    bool awaits_all = false;
    size_t bytes = 0;
    absl::AnyInvocable<void()> answer = nullptr;
  };

  struct PendingRouting {
    uint64_t newer_than;
    Transport::Done done;
  };

  // Removes and returns the held calls that the present table answers.
  std::vector<PendingRouting> TakePendingRouting() PAWL_REQUIRES(mu_);
  void AnswerRouting(std::vector<PendingRouting> pending);
  absl::Status CheckIncarnation(const RequestHeader& header, uint32_t partition) const
      PAWL_REQUIRES(mu_);
  void Handle(const std::string& server, Method method, const IncomingMessage& request,
              RequestHandler::Reply reply);
  // Carries out a request. `event` has the server and the method, and gets the contents.
  absl::StatusOr<OutgoingMessage> Answer(const std::string& bytes, Event& event) PAWL_REQUIRES(mu_);
  template <typename Request, typename Response>
  absl::StatusOr<OutgoingMessage> AnswerWith(
      absl::StatusOr<Response> (FakeCluster::*handler)(const Request&, Event&),
      const std::string& bytes, Event& event) PAWL_REQUIRES(mu_);
  absl::StatusOr<Event::Segment> Apply(const RequestHeader& header, const PushSegment& segment)
      PAWL_REQUIRES(mu_);
  absl::StatusOr<PushResponse> Push(const PushRequest& push, Event& event) PAWL_REQUIRES(mu_);
  absl::StatusOr<PullResponse> Pull(const PullRequest& pull, Event& event) PAWL_REQUIRES(mu_);
  absl::StatusOr<ScanResponse> Scan(const ScanRequest& scan, Event& event) PAWL_REQUIRES(mu_);
  absl::StatusOr<TakeOverResponse> TakeOver(const TakeOverRequest& take, Event& event)
      PAWL_REQUIRES(mu_);
  absl::StatusOr<EndStepResponse> EndStep(const EndStepRequest& end, Event& event)
      PAWL_REQUIRES(mu_);
  absl::Status CheckHeader(const std::string& server, const RequestHeader& header,
                           const std::vector<uint32_t>& partitions) const PAWL_REQUIRES(mu_);
  std::vector<float> SlotsOrZeros(uint32_t table, uint64_t key) const PAWL_REQUIRES(mu_);
  uint64_t RowWidth(uint32_t table, uint64_t key) const PAWL_REQUIRES(mu_);
  uint64_t SlotFloats(uint32_t table, uint64_t key) const PAWL_REQUIRES(mu_);

  std::vector<std::unique_ptr<Server>> servers_;

  mutable Mutex mu_;
  Intercept intercept_ PAWL_GUARDED_BY(mu_);
  std::set<Method> holding_ PAWL_GUARDED_BY(mu_);
  std::vector<Held> held_ PAWL_GUARDED_BY(mu_);
  size_t max_bytes_held_ PAWL_GUARDED_BY(mu_) = 0;
  RoutingTable routing_ PAWL_GUARDED_BY(mu_);
  bool announce_ PAWL_GUARDED_BY(mu_) = false;
  bool brief_ PAWL_GUARDED_BY(mu_) = false;
  bool scheduler_down_ PAWL_GUARDED_BY(mu_) = false;
  std::vector<PendingRouting> pending_routing_ PAWL_GUARDED_BY(mu_);
  std::vector<RegisterRequest> registrations_ PAWL_GUARDED_BY(mu_);
  absl::Status registrations_refused_ PAWL_GUARDED_BY(mu_);
  // The first incarnation that the scheduler still knows.
  size_t first_known_ PAWL_GUARDED_BY(mu_) = 0;
  // Keyed by (rank, partition).
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> clocks_ PAWL_GUARDED_BY(mu_);
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> incarnations_ PAWL_GUARDED_BY(mu_);
  std::vector<Event> events_ PAWL_GUARDED_BY(mu_);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> rows_ PAWL_GUARDED_BY(mu_);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> slots_ PAWL_GUARDED_BY(mu_);
  // (sender, step, partition) to ordinals.
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, std::set<uint64_t>> taken_
      PAWL_GUARDED_BY(mu_);
  std::vector<TableSpec> tables_ PAWL_GUARDED_BY(mu_);
  JobState job_state_ PAWL_GUARDED_BY(mu_) = RUNNING;
  std::string failure_ PAWL_GUARDED_BY(mu_);
  uint32_t protocol_ PAWL_GUARDED_BY(mu_) = kNewestProtocol;
  float clip_global_norm_ PAWL_GUARDED_BY(mu_) = 0;
  std::vector<double> squares_ PAWL_GUARDED_BY(mu_);
  bool holds_awaits_ PAWL_GUARDED_BY(mu_) = false;
  uint64_t heartbeats_ PAWL_GUARDED_BY(mu_) = 0;
  std::vector<UserMetric> metrics_ PAWL_GUARDED_BY(mu_);
  bool goodbye_ PAWL_GUARDED_BY(mu_) = false;

  // Last: their threads use the members above.
  std::shared_ptr<Scheduler> control_;
  std::shared_ptr<InProcessTransport> transport_;
};

// The sender of a RequestHeader as one number.
uint64_t SenderNumber(const RequestHeader& header);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_TESTING_FAKE_CLUSTER_H_
