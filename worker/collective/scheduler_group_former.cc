#include "worker/collective/scheduler_group_former.h"

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"
#include "client_lib/rpc/retry.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr char kKinds[] = "kinds";
constexpr char kIntroductions[] = "introductions";

// Keeps a WatchGroup call pending, and aborts the collective when the call says that the group has
// ended. Thread-safe. Owned by its calls.
class GroupWatch : public std::enable_shared_from_this<GroupWatch> {
 public:
  // `client` outlives the calls; it waits for them when it is destroyed.
  GroupWatch(Client& client, uint64_t generation, MonotonicDuration timeout, Collective& collective)
      : client_(client), generation_(generation), timeout_(timeout), collective_(&collective) {}

  void Ask() {
    WatchGroupRequest request;
    request.set_generation(generation_);
    client_.WatchGroup(std::move(request), {.timeout = timeout_},
                       [self = shared_from_this()](absl::StatusOr<WatchGroupResponse> answer) {
                         self->Hear(answer);
                       });
  }

  // After End the collective is not used any more.
  void End() {
    MutexLock lock(mu_);
    collective_ = nullptr;
  }

 private:
  void Hear(const absl::StatusOr<WatchGroupResponse>& answer) {
    {
      MutexLock lock(mu_);
      if (collective_ == nullptr) return;
      absl::Status why = client_.status();
      if (why.ok() && answer.ok())
        why = absl::AbortedError(absl::StrCat("the group has ended: ", answer->reason()));
      const bool away =
          absl::IsUnavailable(answer.status()) || absl::IsDeadlineExceeded(answer.status());
      if (why.ok() && !away) why = answer.status();
      if (!why.ok()) {
        collective_->Abort(why);
        return;
      }
    }
    Ask();
  }

  Client& client_;
  const uint64_t generation_;
  const MonotonicDuration timeout_;
  Mutex mu_;
  Collective* collective_ PAWL_GUARDED_BY(mu_);
};

// From Form, INVALID_ARGUMENT means that no group accepts this process, which neither a failed call
// nor a back end can decide.
absl::Status WithoutRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
}

// A collective together with the watch over its group.
class WatchedCollective final : public Collective {
 public:
  WatchedCollective(std::unique_ptr<ConnectableCollective> inner, Client& client,
                    uint64_t generation, MonotonicDuration watch_timeout)
      : inner_(std::move(inner)),
        watch_(std::make_shared<GroupWatch>(client, generation, watch_timeout, *inner_)) {
    watch_->Ask();
  }
  ~WatchedCollective() override { watch_->End(); }

  const std::string& introduction() const { return inner_->introduction(); }
  void Connect(std::vector<std::string> introductions, MonotonicDuration timeout, Done done) {
    inner_->Connect(std::move(introductions), timeout, std::move(done));
  }

  size_t size() const override { return inner_->size(); }
  size_t place() const override { return inner_->place(); }
  void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                 Reduction reduction, MonotonicDuration timeout, Done done) override {
    inner_->AllReduce(input, output, count, type, reduction, timeout, std::move(done));
  }
  bool TakesDeviceMemory() const override { return inner_->TakesDeviceMemory(); }
  void AllReduceOnDevice(const void* input, void* output, size_t count, CollectiveType type,
                         Reduction reduction, MonotonicDuration timeout, Done done) override {
    inner_->AllReduceOnDevice(input, output, count, type, reduction, timeout, std::move(done));
  }
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                 MonotonicDuration timeout, Done done) override {
    inner_->Broadcast(data, count, type, root, timeout, std::move(done));
  }
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration timeout, Done done) override {
    inner_->AllGather(input, output, count, type, timeout, std::move(done));
  }
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration timeout, Done done) override {
    inner_->ReduceScatter(input, output, count, type, reduction, timeout, std::move(done));
  }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }
  absl::Status status() const override { return inner_->status(); }
  bool hangs() const override { return inner_->hangs(); }

 private:
  const std::unique_ptr<ConnectableCollective> inner_;
  const std::shared_ptr<GroupWatch> watch_;
};

}  // namespace

absl::StatusOr<Group> SchedulerGroupFormer::Form(const std::vector<GroupRank>& ranks,
                                                 std::optional<uint64_t> dense_steps,
                                                 const Interrupt& interrupt) {
  JoinGroupRequest request;
  for (const GroupRank& rank : ranks) *request.add_ranks() = rank;
  request.set_has_state(dense_steps.has_value());
  request.set_dense_steps(dense_steps.value_or(0));
  absl::Status last;
  for (int attempt = 0; attempt < kMaxFormAttempts; ++attempt) {
    PAWL_RETURN_IF_ERROR(interrupt.reason());
    auto joined = client_.JoinGroup(request, {.timeout = options_.join_timeout});
    absl::StatusOr<JoinGroupResponse> formed =
        Await(joined, options_.join_timeout + kLibraryGrace, interrupt, "JoinGroup");
    if (!formed.ok()) return WithoutRefusal(formed.status());
    if (formed->place() >= static_cast<size_t>(formed->members_size()) ||
        formed->members(static_cast<int>(formed->place())).node() != client_.node()) {
      return absl::InternalError(
          "the scheduler's answer is malformed: it lacks this worker's place");
    }
    const absl::StatusOr<CollectiveKind> kind = Agree(*formed, interrupt);
    last = kind.status();
    if (kind.ok()) {
      absl::StatusOr<Group> group = Connect(*formed, *kind, interrupt);
      if (group.ok()) {
        failures_.erase(kind->name);
        return group;
      }
      last = group.status();
    }
    if (const absl::Status reason = interrupt.reason(); !reason.ok()) return reason;
    if (!client_.status().ok()) return last;
    if (kind.ok()) last = HandleFailure(*kind, WithoutRefusal(last), dense_steps.has_value());
    // Ask for another group if this one failed, but not if the call was wrong.
    if (!absl::IsAborted(last) && !absl::IsUnavailable(last) && !absl::IsDeadlineExceeded(last))
      return last;
    spdlog::info("group {:x} was not connected: {}", formed->generation(), last.ToString());
    // Each attempt ends the others' group.
    if (kind.ok() && !absl::IsAborted(last)) {
      PAWL_RETURN_IF_ERROR(interrupt.SleepFor(GrowingPause(
          static_cast<uint32_t>(failures_[kind->name]), kFirstFormPause, kLongestFormPause)));
    }
  }
  return absl::UnavailableError(absl::StrCat(
      kMaxFormAttempts, " groups ended before they were connected; the last: ", last.message()));
}

absl::Status SchedulerGroupFormer::HandleFailure(const CollectiveKind& kind,
                                                 const absl::Status& why, bool has_state) {
  // The group ended for another reason.
  if (absl::IsAborted(why)) return why;
  const int failures = ++failures_[kind.name];
  const std::string text = absl::StrCat("by ", kind.name, ": ", why.message());
  if (failures < kMaxKindFailures) return absl::UnavailableError(text);
  if (kinds_.size() > 1) {
    spdlog::warn(
        "collective operations do not work {}. This worker uses another kind from now on, and so "
        "do all others in its groups",
        text);
    kinds_.erase(std::remove_if(kinds_.begin(), kinds_.end(),
                                [&](const CollectiveKind& k) { return k.name == kind.name; }),
                 kinds_.end());
    return absl::UnavailableError(text);
  }
  spdlog::warn("collective operations have failed {} times in a row {}", failures, text);
  const bool waited = absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why);
  if (has_state || waited) return absl::UnavailableError(text);
  return absl::InvalidArgumentError(
      absl::StrCat("this worker cannot do collective operations ", text));
}

absl::StatusOr<Group> SchedulerGroupFormer::Connect(const JoinGroupResponse& formed,
                                                    const CollectiveKind& kind,
                                                    const Interrupt& interrupt) {
  const auto size = static_cast<size_t>(formed.members_size());
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<ConnectableCollective> made,
                        kind.make(size, formed.place()));
  auto collective = std::make_unique<WatchedCollective>(
      std::move(made), client_, formed.generation(), options_.watch_timeout);

  PAWL_ASSIGN_OR_RETURN(std::vector<std::string> introductions,
                        Exchange(formed.generation(), kIntroductions, collective->introduction(),
                                 kind.connect_timeout, interrupt));
  std::future<absl::Status> connected;
  collective->Connect(std::move(introductions), kind.connect_timeout, Fulfilling(connected));
  absl::Status status = Await(connected, kind.connect_timeout + kLibraryGrace, interrupt,
                              "connection of the members");
  if (!status.ok()) return status;
  spdlog::info("group {:x}: {} members use collective operations by {}", formed.generation(), size,
               kind.name);

  Group group;
  group.generation = formed.generation();
  group.members.assign(formed.members().begin(), formed.members().end());
  group.place = formed.place();
  group.collective = std::move(collective);
  return group;
}

absl::StatusOr<CollectiveKind> SchedulerGroupFormer::Agree(const JoinGroupResponse& formed,
                                                           const Interrupt& interrupt) {
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> offers,
                        Exchange(formed.generation(), kKinds, EncodeOffer(kinds_),
                                 options_.offer_timeout, interrupt));
  if (offers.size() != static_cast<size_t>(formed.members_size())) {
    return absl::InternalError("the scheduler's answer is malformed: it does not list all members");
  }
  std::vector<OfferingMember> members;
  for (size_t p = 0; p < offers.size(); ++p) {
    const GroupMember& member = formed.members(static_cast<int>(p));
    members.push_back({.node = member.node(), .has_state = member.has_state(), .offer = offers[p]});
  }
  PAWL_ASSIGN_OR_RETURN(const std::string name, ChooseKind(members, formed.place()));
  for (const CollectiveKind& kind : kinds_) {
    if (kind.name != name) continue;
    // A single member takes its last kind by design.
    const std::string why =
        members.size() == 1 ? "" : ExplainFallback(members, formed.place(), name);
    if (!why.empty())
      spdlog::warn("collective operations by {} instead of {}: {}", name, kinds_[0].name, why);
    return kind;
  }
  return absl::InternalError(
      absl::StrCat("the members have agreed on ", name, ", which this one did not offer"));
}

absl::StatusOr<std::vector<std::string>> SchedulerGroupFormer::Exchange(
    uint64_t generation, const std::string& name, std::string value, MonotonicDuration timeout,
    const Interrupt& interrupt) {
  ExchangeInGroupRequest request;
  request.set_generation(generation);
  request.set_name(name);
  request.set_value(std::move(value));
  auto exchanged = client_.ExchangeInGroup(std::move(request), {.timeout = timeout});
  const absl::StatusOr<ExchangeInGroupResponse> all =
      Await(exchanged, timeout + kLibraryGrace, interrupt, "ExchangeInGroup");
  if (!all.ok()) return WithoutRefusal(all.status());
  return std::vector<std::string>(all->values().begin(), all->values().end());
}

}  // namespace pawl
