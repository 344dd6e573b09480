#include "worker/dense/dense_replica.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/optimizer/finite.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How often a member that is to leave looks whether it may.
constexpr std::chrono::milliseconds kLeaveInterval{5};

Collective::Done Fulfil(std::future<absl::Status>& future) {
  std::promise<absl::Status> promise;
  future = promise.get_future();
  return [promise = std::move(promise)](absl::Status status) mutable { promise.set_value(std::move(status)); };
}

class ReplicaView final : public DenseView {
 public:
  ReplicaView(const DenseState& state, uint64_t step, MonotonicDuration timeout)
      : state_(state), step_(step), timeout_(timeout) {}

  absl::Status Await(const Interrupt& interrupt) override {
    PAWL_ASSIGN_OR_RETURN(version_, state_.VersionFor(step_, timeout_, interrupt));
    return absl::OkStatus();
  }
  absl::Status AwaitTable(size_t table, const Interrupt& interrupt) override {
    return state_.Await(table, version_, timeout_, interrupt);
  }
  absl::Span<const float> values(size_t table) const override { return state_.Values(table, version_); }

 private:
  const DenseState& state_;
  const uint64_t step_;
  const MonotonicDuration timeout_;
  uint64_t version_ = 0;
};

// An interrupt that is set when the ranks of the process change: a group that is waited for would be of the ranks before.
class ChangeWatcher {
 public:
  ChangeWatcher(LocalGradients& gradients, uint64_t changes, const Interrupt& stop)
      : gradients_(gradients), interrupt_(&stop), thread_([this, changes] {
          while (true) {
            const uint64_t seen = gradients_.events();
            if (ending_) return;
            if (gradients_.changes() != changes) {
              interrupt_.Set(absl::AbortedError("the ranks of this process have changed"));
              return;
            }
            gradients_.WaitForChange(seen, Clock::Real().Now() + kInterruptInterval);
          }
        }) {}
  ~ChangeWatcher() {
    ending_ = true;
    gradients_.Wake();
    thread_.join();
  }
  const Interrupt& interrupt() const { return interrupt_; }

 private:
  LocalGradients& gradients_;
  Interrupt interrupt_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DenseReplica>> DenseReplica::Create(Options options, GroupFormer& former) {
  auto rule = UpdateRule::Create(options.optimizer);
  if (!rule.ok()) return Annotate(rule.status(), "optimizer");
  return absl::WrapUnique(new DenseReplica(std::move(options), *std::move(rule), former));
}

DenseReplica::DenseReplica(Options options, std::unique_ptr<const UpdateRule> rule, GroupFormer& former)
    : options_(std::move(options)),
      rule_(std::move(rule)),
      layout_(options_.elements, *rule_, options_.bucket_bytes),
      former_(former),
      state_(layout_, *rule_),
      gradients_(layout_),
      thread_([this] { Drive(); }) {}

DenseReplica::~DenseReplica() {
  stop_.Set(absl::CancelledError("the process leaves the group"));
  gradients_.Wake();
  thread_.join();
}

void DenseReplica::Expect(uint32_t rank, uint64_t incarnation) {
  MutexLock lock(hosting_mu_);
  gradients_.Expect(rank, incarnation);
}

void DenseReplica::End(uint32_t rank, uint64_t next_step) {
  MutexLock lock(hosting_mu_);
  // Without ranks it is in no group, and what it has grows old.
  if (gradients_.End(rank, next_step)) state_.Retire();
}

absl::StatusOr<std::unique_ptr<DenseView>> DenseReplica::At(uint64_t step, Session& /*session*/,
                                                            MonotonicDuration timeout) {
  return std::make_unique<ReplicaView>(state_, step, timeout);
}

std::optional<DenseStore::Share> DenseReplica::WriteBack(const DenseStore& store, uint64_t steps, uint32_t rank) const {
  for (const int64_t version : state_.versions()) {
    if (version != static_cast<int64_t>(steps)) return std::nullopt;
  }
  return store.ShareOf(state_, steps, rank, options_.logical_workers);
}

absl::Status DenseReplica::Fatal(const absl::Status& status) {
  state_.Fail(status);
  failed_ = true;
  return status;
}

void DenseReplica::Drive() {
  while (stop_.reason().ok() && !failed_) {
    const absl::StatusOr<std::vector<GroupRank>> ranks = AwaitRanks();
    if (!ranks.ok()) return;
    absl::StatusOr<Group> group = absl::InternalError("no group");
    {
      const ChangeWatcher watcher(gradients_, changes_, stop_);
      group = former_.Form(*ranks, state_.steps(), watcher.interrupt());
    }
    absl::Status status = group.status();
    if (group.ok()) {
      spdlog::info("dense parameters: member {} of {} of group {:x}", group->place, group->members.size(),
                   group->generation);
      status = TakePart(*group->collective);
      if (!failed_) LetOthersEnd(*group->collective);
      group->collective->Abort(status);
      for (Flight& flight : flights_) {
        if (flight.done.valid()) flight.done.wait();
        flight.done = {};
      }
      group->collective.reset();
    }
    if (!stop_.reason().ok() || failed_) return;
    spdlog::info("dense parameters: {}: {}", group.ok() ? "the group is over" : "no group", std::string(status.message()));
    // Where the ranks have changed there is nothing to wait for.
    if (!group.ok() && gradients_.changes() == changes_) stop_.SleepFor(options_.retry_interval).IgnoreError();
  }
}

absl::StatusOr<std::vector<GroupRank>> DenseReplica::AwaitRanks() {
  while (true) {
    PAWL_RETURN_IF_ERROR(stop_.reason());
    const uint64_t seen = gradients_.events();
    changes_ = gradients_.changes();
    std::optional<std::vector<GroupRank>> ranks = gradients_.Ranks();
    // Also if it has got ranks since: these have not seen anything yet.
    if (state_.retired()) {
      state_.Clear();
      gradients_.DropBefore(UINT64_MAX);
      continue;
    }
    if (ranks.has_value() && !ranks->empty()) return *std::move(ranks);
    gradients_.WaitForChange(seen, Clock::Real().Now() + kInterruptInterval);
  }
}

absl::Status DenseReplica::StillIn(const Collective& collective) const {
  PAWL_RETURN_IF_ERROR(stop_.reason());
  if (gradients_.changes() != changes_) return absl::AbortedError("the ranks of this process have changed");
  return collective.status();
}

void DenseReplica::LetOthersEnd(const Collective& collective) const {
  const MonotonicTime deadline = Clock::Real().Now() + options_.leave_limit;
  // A process that stops stays as long: it has given its ranks to others, who need the same.
  Interrupt never;
  while (collective.size() > 1 && collective.status().ok() && Clock::Real().Now() < deadline) {
    never.SleepFor(kLeaveInterval).IgnoreError();
  }
}

absl::Status DenseReplica::AwaitEnd(Collective& collective, std::future<absl::Status>& done) {
  while (done.wait_for(kInterruptInterval) != std::future_status::ready) {
    if (const absl::Status reason = StillIn(collective); !reason.ok()) collective.Abort(reason);
  }
  return done.get();
}

absl::Status DenseReplica::TakePart(Collective& collective) {
  PAWL_RETURN_IF_ERROR(Synchronize(collective));
  return RunSteps(collective);
}

std::vector<int64_t> DenseReplica::State() const {
  std::vector<int64_t> state = state_.versions();
  state.push_back(static_cast<int64_t>(state_.lost_steps()));
  return state;
}

absl::Status DenseReplica::Synchronize(Collective& collective) {
  if (const std::optional<uint64_t> steps = state_.steps(); steps.has_value()) {
    gradients_.DropBefore(*steps);
  } else {
    // What a group that broke has left of its state is of no use without the rest, and nobody has read it.
    state_.Clear();
  }
  // Of a member whose last rank has ended just now.
  constexpr int64_t kNoStep = std::numeric_limits<int64_t>::max();
  const int64_t own = static_cast<int64_t>(gradients_.EarliestStep().value_or(kNoStep));
  int64_t earliest = 0;
  std::future<absl::Status> done;
  collective.AllReduce(&own, &earliest, 1, CollectiveType::kInt64, Reduction::kMin, options_.timeout, Fulfil(done));
  PAWL_RETURN_IF_ERROR(AwaitEnd(collective, done));
  if (earliest == kNoStep) return absl::AbortedError("the members of the group have no ranks any more");

  std::vector<int64_t> state = State();
  std::vector<int64_t> all(state.size() * collective.size());
  collective.AllGather(state.data(), all.data(), state.size(), CollectiveType::kInt64, options_.timeout, Fulfil(done));
  PAWL_RETURN_IF_ERROR(AwaitEnd(collective, done));
  PAWL_RETURN_IF_ERROR(LoadIfNobodyHasAny(collective, all, earliest));
  PAWL_RETURN_IF_ERROR(Exchange(collective, all));

  // Steps that nobody is before any more, and whose gradients nobody has: they brought no update. All members have the same
  // now, and count the same.
  const uint64_t first = static_cast<uint64_t>(earliest);
  const uint64_t steps = *state_.steps();
  if (steps >= first) return absl::OkStatus();
  state_.set_lost_steps(state_.lost_steps() + first - steps);
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    if (state_.versions()[b] < earliest) state_.Relabel(b, first);
  }
  return absl::OkStatus();
}

absl::Status DenseReplica::LoadIfNobodyHasAny(Collective& collective, std::vector<int64_t>& all, int64_t earliest) {
  const size_t buckets = layout_.buckets().size();
  for (size_t p = 0; p < collective.size(); ++p) {
    if (all[p * (buckets + 1)] != DenseState::kNone) return absl::OkStatus();
  }
  if (collective.place() == 0) {
    const absl::StatusOr<uint64_t> steps = options_.load(stop_, state_);
    if (!steps.ok()) {
      const absl::Status status = Annotate(steps.status(), "the dense parameters that the servers keep");
      // Who is away may come back, or another member can reach them.
      const bool passes = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || !stop_.reason().ok();
      return passes ? status : Fatal(status);
    }
    if (static_cast<int64_t>(*steps) < earliest) {
      spdlog::info("no worker has the dense parameters any more: training goes on at step {} with those after {} steps, "
                   "which the servers keep",
                   earliest, *steps);
      state_.set_lost_steps(state_.lost_steps() + static_cast<uint64_t>(earliest) - *steps);
      for (size_t b = 0; b < buckets; ++b) state_.Relabel(b, static_cast<uint64_t>(earliest));
    }
  }
  const std::vector<int64_t> state = State();
  std::future<absl::Status> done;
  collective.AllGather(state.data(), all.data(), state.size(), CollectiveType::kInt64, options_.timeout, Fulfil(done));
  return AwaitEnd(collective, done);
}

absl::Status DenseReplica::Exchange(Collective& collective, const std::vector<int64_t>& all) {
  const size_t buckets = layout_.buckets().size();
  const auto version = [&](size_t place, size_t bucket) { return all[place * (buckets + 1) + bucket]; };
  std::vector<size_t> sources(buckets);
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (size_t b = 0; b < buckets; ++b) {
    for (size_t p = 1; p < collective.size(); ++p) {
      if (version(p, b) > version(sources[b], b)) sources[b] = p;
    }
    lowest = std::min(lowest, version(sources[b], b));
  }
  std::vector<float> unused;
  for (size_t b = 0; b < buckets; ++b) {
    const size_t source = sources[b];
    const int64_t newest = version(source, b);
    bool all_have_it = true;
    bool somebody_has_nothing = false;
    for (size_t p = 0; p < collective.size(); ++p) {
      all_have_it = all_have_it && version(p, b) == newest;
      somebody_has_nothing = somebody_has_nothing || version(p, b) == DenseState::kNone;
    }
    if (all_have_it) continue;
    const int64_t own = version(collective.place(), b);
    const bool takes = own < newest;
    // Two steps without this process's ranks: their successors' hosts have gone on, and it was told too late.
    if (takes && own != DenseState::kNone && own + 1 < newest) {
      return Fatal(absl::AbortedError(absl::StrCat("the dense parameters of this worker are after ", own,
                                                   " steps, those of others after ", newest)));
    }
    const DenseBucket& bucket = layout_.buckets()[b];
    // The number of lost steps came with the list.
    if (takes) state_.set_lost_steps(static_cast<uint64_t>(all[source * (buckets + 1) + buckets]));
    const auto broadcast = [&](float* data, size_t count, bool is_taken) {
      if (count == 0) return absl::OkStatus();
      // Who has the same already must not write what its ranks read.
      if (!is_taken && source != collective.place()) {
        unused.resize(std::max(unused.size(), count));
        data = unused.data();
      }
      std::future<absl::Status> done;
      collective.Broadcast(data, count, CollectiveType::kFloat32, source, options_.timeout, Fulfil(done));
      return AwaitEnd(collective, done);
    };
    // Of the step that is not done in all buckets there may be ranks without gradients, and these may be with whoever has
    // nothing: they read the version before. The source has it in its other place.
    if (somebody_has_nothing && newest > lowest) {
      const bool has_nothing = own == DenseState::kNone;
      const uint64_t before = static_cast<uint64_t>(newest - 1);
      PAWL_RETURN_IF_ERROR(broadcast(state_.weights(b, before), bucket.count, has_nothing));
      if (has_nothing) state_.Publish(b, before);
    }
    PAWL_RETURN_IF_ERROR(broadcast(state_.weights(b, static_cast<uint64_t>(newest)), bucket.count, takes));
    PAWL_RETURN_IF_ERROR(broadcast(state_.slots(b), bucket.slots_count, takes));
    if (takes) state_.Publish(b, static_cast<uint64_t>(newest));
  }
  return absl::OkStatus();
}

std::optional<size_t> DenseReplica::Ready(uint64_t step) const {
  const std::vector<int64_t> versions = state_.versions();
  for (size_t b = 0; b < versions.size(); ++b) {
    if (!started_[b] && versions[b] == static_cast<int64_t>(step) && gradients_.IsComplete(b, step)) return b;
  }
  return std::nullopt;
}

absl::StatusOr<size_t> DenseReplica::AwaitChoice(Collective& collective, uint64_t step) {
  int64_t choice = 0;
  while (collective.place() == 0) {
    const uint64_t seen = gradients_.events();
    PAWL_RETURN_IF_ERROR(StillIn(collective));
    if (const std::optional<size_t> ready = Ready(step); ready.has_value()) {
      choice = static_cast<int64_t>(*ready);
      break;
    }
    gradients_.WaitForChange(seen, Clock::Real().Now() + kInterruptInterval);
  }
  if (collective.size() == 1) return static_cast<size_t>(choice);
  std::future<absl::Status> done;
  collective.Broadcast(&choice, 1, CollectiveType::kInt64, 0, options_.timeout, Fulfil(done));
  PAWL_RETURN_IF_ERROR(AwaitEnd(collective, done));
  return static_cast<size_t>(choice);
}

absl::Status DenseReplica::AwaitComplete(Collective& collective, size_t bucket, uint64_t step) {
  while (true) {
    const uint64_t seen = gradients_.events();
    PAWL_RETURN_IF_ERROR(StillIn(collective));
    if (gradients_.IsComplete(bucket, step)) return absl::OkStatus();
    gradients_.WaitForChange(seen, Clock::Real().Now() + kInterruptInterval);
  }
}

void DenseReplica::StartBucket(Collective& collective, size_t bucket, uint64_t step, Flight& flight) {
  const size_t count = layout_.buckets()[bucket].count;
  const size_t ranks = options_.logical_workers;
  flight.bucket = bucket;
  flight.step = step;
  started_[bucket] = true;
  flight.sum.resize(count + ranks + 1);
  flight.reduced.resize(count + ranks + 1);
  gradients_.Sum(bucket, step, flight.sum.data(), absl::MakeSpan(flight.sum).subspan(count, ranks));
  flight.sum.back() = 0;
  if (collective.place() == 0) {
    if (const std::optional<size_t> next = Ready(step); next.has_value()) {
      flight.sum.back() = static_cast<float>(*next + 1);
    }
  }
  collective.AllReduce(flight.sum.data(), flight.reduced.data(), flight.sum.size(), CollectiveType::kFloat32,
                       Reduction::kSum, options_.timeout, Fulfil(flight.done));
}

absl::Status DenseReplica::Finish(Flight& flight) {
  const size_t count = layout_.buckets()[flight.bucket].count;
  uint32_t contributed = 0;
  for (uint32_t rank = 0; rank < options_.logical_workers; ++rank) {
    const float flag = flight.reduced[count + rank];
    if (flag > 1) {
      return Fatal(absl::InternalError(absl::StrCat("the dense gradients of logical worker ", rank, " are in step ",
                                                    flight.step, " ", flag, " times")));
    }
    contributed += flag == 1;
  }
  if (contributed < options_.logical_workers && flight.bucket == 0) {
    spdlog::info("dense step {} has the gradients of {} of {} logical workers: those of others were lost with their workers",
                 flight.step, contributed, options_.logical_workers);
  }
  if (!AllFinite(flight.reduced.data(), count)) {
    return Fatal(absl::InvalidArgumentError(
        absl::StrCat("a dense gradient of step ", flight.step,
                     " is not finite: the training has diverged; reduce the learning rate")));
  }
  state_.Apply(flight.bucket, 1.0f / static_cast<float>(options_.logical_workers), flight.reduced.data());
  return absl::OkStatus();
}

absl::Status DenseReplica::RunSteps(Collective& collective) {
  while (true) {
    const uint64_t step = *state_.steps();
    gradients_.DropBefore(step);
    started_.assign(layout_.buckets().size(), false);
    std::optional<size_t> bucket;
    PAWL_ASSIGN_OR_RETURN(bucket, AwaitChoice(collective, step));
    size_t turn = 0;
    PAWL_RETURN_IF_ERROR(AwaitComplete(collective, *bucket, step));
    StartBucket(collective, *bucket, step, flights_[turn]);
    while (true) {
      Flight& flight = flights_[turn];
      PAWL_RETURN_IF_ERROR(AwaitEnd(collective, flight.done));
      const float next = flight.reduced.back();
      bucket = next == 0 ? std::nullopt : std::make_optional(static_cast<size_t>(next) - 1);
      // The next one travels while this one's update is made, if it can.
      turn = 1 - turn;
      bool started = false;
      if (bucket.has_value() && gradients_.IsComplete(*bucket, step)) {
        StartBucket(collective, *bucket, step, flights_[turn]);
        started = true;
      }
      PAWL_RETURN_IF_ERROR(Finish(flight));
      if (!bucket.has_value()) break;
      if (!started) {
        PAWL_RETURN_IF_ERROR(AwaitComplete(collective, *bucket, step));
        StartBucket(collective, *bucket, step, flights_[turn]);
      }
    }
  }
}

}  // namespace pawl
