#include "worker/dense/dense_replica.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/optimizer/math/finite.h"
#include "spdlog/spdlog.h"
#include "worker/dense/state_exchange.h"

namespace pawl {
namespace {

// How often a leaving member checks whether it may leave.
constexpr std::chrono::milliseconds kLeaveInterval{5};

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
  absl::Span<const float> values(size_t table) const override {
    return state_.Values(table, version_);
  }

 private:
  const DenseState& state_;
  const uint64_t step_;
  const MonotonicDuration timeout_;
  uint64_t version_ = 0;
};

// An interrupt that is set when the ranks of the process change: a group in formation would have
// the old ranks.
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

absl::StatusOr<std::unique_ptr<DenseReplica>> DenseReplica::Create(Options options,
                                                                   GroupFormer& former) {
  auto rule = UpdateRule::Create(options.optimizer);
  if (!rule.ok()) return Annotate(rule.status(), "optimizer");
  if (options.sharded && !(*rule)->IsElementwise()) {
    return absl::InvalidArgumentError(
        "optimizer: its rule needs whole rows, which all_reduce.sharded_optimizer splits into "
        "shares; remove one of the two");
  }
  std::unique_ptr<DenseMemory> memory;
  if (options.device == nullptr) {
    memory = DenseMemory::CreateOnHost();
  } else {
    PAWL_ASSIGN_OR_RETURN(memory, DenseMemory::Create(*options.device));
  }
  if (options.sharded && !memory->IsHostMemory()) {
    return absl::InvalidArgumentError("a sharded optimizer needs the host's memory");
  }
  auto replica = absl::WrapUnique(
      new DenseReplica(std::move(options), *std::move(rule), std::move(memory), former));
  if (absl::Status status = replica->Initialize(); !status.ok()) {
    return Annotate(status, "memory for the dense parameters, their optimizer slots and gradients");
  }
  replica->thread_ = std::thread([it = replica.get()] { it->Drive(); });
  return replica;
}

DenseReplica::DenseReplica(Options options, std::unique_ptr<const UpdateRule> rule,
                           std::unique_ptr<DenseMemory> memory, GroupFormer& former)
    : options_(std::move(options)),
      rule_(std::move(rule)),
      memory_(std::move(memory)),
      layout_(options_.elements, *rule_, options_.bucket_bytes),
      former_(former),
      gradients_(layout_, *memory_) {}

absl::Status DenseReplica::Initialize() {
  PAWL_ASSIGN_OR_RETURN(state_, DenseState::Create(layout_, *rule_, *memory_));
  if (options_.sharded) shares_ = std::make_unique<SlotShares>(layout_, *rule_, *state_);
  return AllocateFlights();
}

absl::Status DenseReplica::AllocateFlights() {
  size_t largest = 0;
  for (const DenseBucket& bucket : layout_.buckets()) largest = std::max(largest, bucket.count);
  // A group has at most as many members as there are ranks.
  const size_t count = largest + 2 * size_t{options_.logical_workers} + 1;
  for (Flight& flight : flights_) {
    PAWL_ASSIGN_OR_RETURN(flight.sum, memory_->Allocate(count));
    PAWL_ASSIGN_OR_RETURN(flight.reduced, memory_->Allocate(count));
  }
  return absl::OkStatus();
}

DenseReplica::~DenseReplica() {
  stop_.Set(absl::CancelledError("the process leaves the group"));
  gradients_.Wake();
  if (thread_.joinable()) thread_.join();
}

void DenseReplica::Expect(uint32_t rank, uint64_t incarnation) {
  MutexLock lock(ranks_mu_);
  gradients_.Expect(rank, incarnation);
}

void DenseReplica::End(uint32_t rank, uint64_t next_step) {
  MutexLock lock(ranks_mu_);
  // Without ranks this process is in no group, and its state becomes stale.
  if (gradients_.End(rank, next_step)) state_->Retire();
}

absl::StatusOr<std::unique_ptr<DenseView>> DenseReplica::At(uint64_t step, Session& /*session*/,
                                                            MonotonicDuration timeout) {
  return std::make_unique<ReplicaView>(*state_, step, timeout);
}

absl::StatusOr<std::optional<DenseStore::WriteBackPart>> DenseReplica::WriteBack(
    const DenseStore& store, uint64_t steps, uint32_t rank) const {
  if (shares_ != nullptr && !options_.is_write_back(steps)) return std::nullopt;
  for (const int64_t version : state_->versions()) {
    if (version != static_cast<int64_t>(steps)) return std::nullopt;
  }
  PAWL_ASSIGN_OR_RETURN(DenseStore::WriteBackPart share,
                        store.PartOf(*state_, steps, rank, options_.logical_workers));
  // The calls refer to the part's memory, which must not move.
  return std::make_optional(std::move(share));
}

void DenseReplica::ClearState() {
  state_->Clear();
  if (shares_ != nullptr) shares_->Clear();
}

absl::Status DenseReplica::Fail(const absl::Status& status) {
  state_->Fail(status);
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
      group = former_.Form(*ranks, state_->steps(), watcher.interrupt());
    }
    absl::Status status = group.status();
    if (group.ok()) {
      spdlog::info("dense parameters: member {} of {} of group {:x}", group->place,
                   group->members.size(), group->generation);
      status = RunGroup(*group->collective);
      if (!failed_) AwaitGroupEnd(*group->collective);
      group->collective->Abort(status);
      for (Flight& flight : flights_) {
        if (flight.done.valid()) flight.done.wait();
        flight.done = {};
      }
      if (group->collective->hangs()) {
        // The collective may still read and write the memory that it was given, so the next group
        // must not get it.
        spdlog::warn("dense parameters: sums of group {:x} may still run on the GPU",
                     group->generation);
        for (Flight& flight : flights_) {
          memory_->Leak(std::move(flight.sum));
          memory_->Leak(std::move(flight.reduced));
        }
        if (absl::Status replaced = AllocateFlights(); !replaced.ok()) {
          Fail(Annotate(replaced, "memory to replace what a hanging group uses")).IgnoreError();
        }
      }
      group->collective.reset();
    }
    // A new group would not help.
    if (absl::Status unusable = memory_->status(); !unusable.ok()) {
      Fail(Annotate(unusable, "the memory of the dense parameters")).IgnoreError();
    }
    // A new group would be refused too.
    if (absl::IsInvalidArgument(group.status())) {
      // Set before the ranks are notified.
      refused_ = true;
      Fail(group.status()).IgnoreError();
    }
    if (!stop_.reason().ok() || failed_) return;
    spdlog::info("dense parameters: {}: {}", group.ok() ? "the group has ended" : "no group",
                 std::string(status.message()));
    // If the ranks have changed, retry at once.
    if (!group.ok() && gradients_.changes() == changes_)
      stop_.SleepFor(options_.retry_interval).IgnoreError();
  }
}

absl::StatusOr<std::vector<GroupRank>> DenseReplica::AwaitRanks() {
  while (true) {
    PAWL_RETURN_IF_ERROR(stop_.reason());
    const uint64_t seen = gradients_.events();
    changes_ = gradients_.changes();
    std::optional<std::vector<GroupRank>> ranks = gradients_.Ranks();
    // Also if it has ranks again: these have not read anything yet.
    if (state_->retired()) {
      ClearState();
      gradients_.DropBefore(UINT64_MAX);
      continue;
    }
    if (ranks.has_value() && !ranks->empty()) return *std::move(ranks);
    gradients_.WaitForChange(seen, Clock::Real().Now() + kInterruptInterval);
  }
}

absl::Status DenseReplica::CheckMembership(const Collective& collective) const {
  PAWL_RETURN_IF_ERROR(stop_.reason());
  if (gradients_.changes() != changes_)
    return absl::AbortedError("the ranks of this process have changed");
  return collective.status();
}

void DenseReplica::AwaitGroupEnd(const Collective& collective) const {
  const MonotonicTime deadline = Clock::Real().Now() + options_.leave_limit;
  // A stopping process waits as well: its ranks have moved to others, which need the same.
  Interrupt never;
  while (collective.size() > 1 && collective.status().ok() && Clock::Real().Now() < deadline) {
    never.SleepFor(kLeaveInterval).IgnoreError();
  }
}

absl::Status DenseReplica::RunGroup(Collective& collective) {
  if (collective.size() > options_.logical_workers) {
    return absl::InternalError(absl::StrCat("a group of ", collective.size(), " members for ",
                                            options_.logical_workers, " logical workers"));
  }
  GroupOperations group(collective, options_.timeout,
                        [this, &collective] { return CheckMembership(collective); });
  PAWL_RETURN_IF_ERROR(Synchronize(group));
  return RunSteps(group);
}

absl::Status DenseReplica::Synchronize(GroupOperations& group) {
  if (const std::optional<uint64_t> steps = state_->steps(); steps.has_value()) {
    gradients_.DropBefore(*steps);
  } else {
    // Partial state left by a broken group is useless, and no rank has read it.
    ClearState();
  }
  // Sent by a member whose last rank has just ended.
  constexpr int64_t kNoStep = std::numeric_limits<int64_t>::max();
  const int64_t own = static_cast<int64_t>(gradients_.EarliestStep().value_or(kNoStep));
  int64_t earliest = 0;
  PAWL_RETURN_IF_ERROR(group.Await(group.AllReduce(&own, &earliest, 1, Reduction::kMin)));
  if (earliest == kNoStep)
    return absl::AbortedError("the members of the group no longer have ranks");

  StateExchange exchange(layout_, *state_, shares_.get(), group);
  absl::Status status = exchange.Run(static_cast<uint64_t>(earliest),
                                     [this] { return options_.load(stop_, *state_); });
  if (exchange.failed()) return Fail(status);
  if (status.ok()) state_->SetSynchronized(changes_);
  return status;
}

size_t DenseReplica::ReadyFrom(uint64_t step) {
  while (ready_from_ > 0 &&
         (!order_.IsLeft(ready_from_ - 1) || gradients_.IsComplete(ready_from_ - 1, step)))
    --ready_from_;
  return ready_from_;
}

size_t DenseReplica::ReadyWithAllFrom(const GroupOperations& group, const Flight& flight) const {
  const float* const ready = flight.tail.data() + options_.logical_workers;
  const float least = *std::min_element(ready, ready + group.size());
  const size_t buckets = layout_.buckets().size();
  // All members receive the same value, so all may treat an invalid one as "nothing is ready".
  return least >= 0 && least <= static_cast<float>(buckets) ? buckets - static_cast<size_t>(least)
                                                            : buckets;
}

absl::Status DenseReplica::AwaitComplete(const GroupOperations& group, size_t bucket,
                                         uint64_t step) {
  while (true) {
    const uint64_t seen = gradients_.events();
    PAWL_RETURN_IF_ERROR(group.CheckMembership());
    if (gradients_.IsComplete(bucket, step)) return absl::OkStatus();
    gradients_.WaitForChange(seen, Clock::Real().Now() + kInterruptInterval);
  }
}

size_t DenseReplica::SummedElements(const GroupOperations& group, size_t bucket) const {
  return shares_ == nullptr ? layout_.buckets()[bucket].count
                            : shares_->ShareElements(bucket, group.size());
}

absl::Status DenseReplica::StartBucket(GroupOperations& group, size_t bucket, uint64_t step,
                                       Flight& flight) {
  const size_t count = layout_.buckets()[bucket].count;
  const size_t ranks = options_.logical_workers;
  flight.bucket = bucket;
  flight.step = step;
  order_.Start(bucket);
  Stream& stream = memory_->stream();
  float* const sum = flight.sum.get();
  std::vector<float>& tail = flight.tail;
  tail.assign(TrailerElements(group), 0);
  flight.contributions =
      gradients_.Sum(bucket, step, stream, sum, absl::MakeSpan(tail).first(ranks));
  tail[ranks + group.place()] = static_cast<float>(layout_.buckets().size() - ReadyFrom(step));
  flight.through_host = !memory_->IsHostMemory() && !group.TakesDeviceMemory();
  if (flight.through_host) {
    flight.host_sum.resize(count + tail.size());
    stream.CopyToHost(sum, count * sizeof(float), flight.host_sum.data());
    std::copy(tail.begin(), tail.end(), flight.host_sum.data() + count);
  } else {
    stream.CopyToDevice(tail.data(), tail.size() * sizeof(float), sum + count);
  }
  PAWL_RETURN_IF_ERROR(memory_->Finish());
  flight.contributions.clear();
  // A rank that ended before Sum is not in it, although its gradients of this step may have been in
  // those of other buckets.
  PAWL_RETURN_IF_ERROR(group.CheckMembership());
  const size_t elements = SummedElements(group, bucket) + tail.size();
  if (shares_ != nullptr) {
    flight.scattered.assign(elements * group.size(), 0);
    for (size_t p = 0; p < group.size(); ++p) {
      const DenseRange range = shares_->Share(bucket, group.size(), p);
      float* const to = flight.scattered.data() + p * elements;
      std::copy_n(sum + range.begin, range.size(), to);
      std::copy(tail.begin(), tail.end(), to + elements - tail.size());
    }
    flight.done = group.ReduceScatter(flight.scattered.data(), flight.reduced.get(), elements,
                                      Reduction::kSum);
  } else if (flight.through_host) {
    flight.host_reduced.resize(elements);
    flight.done = group.AllReduce(flight.host_sum.data(), flight.host_reduced.data(), elements,
                                  Reduction::kSum);
  } else if (memory_->IsHostMemory()) {
    flight.done = group.AllReduce(sum, flight.reduced.get(), elements, Reduction::kSum);
  } else {
    flight.done = group.AllReduceOnDevice(sum, flight.reduced.get(), elements, Reduction::kSum);
  }
  return absl::OkStatus();
}

absl::Status DenseReplica::TakeTail(const GroupOperations& group, Flight& flight) {
  const size_t count = SummedElements(group, flight.bucket);
  const float* const reduced =
      flight.through_host ? flight.host_reduced.data() : flight.reduced.get();
  if (memory_->IsHostMemory() || flight.through_host) {
    std::copy_n(reduced + count, flight.tail.size(), flight.tail.data());
    return absl::OkStatus();
  }
  memory_->stream().CopyToHost(reduced + count, flight.tail.size() * sizeof(float),
                               flight.tail.data());
  return memory_->Finish();
}

absl::Status DenseReplica::CheckFlags(const Flight& flight) {
  const std::vector<float>& flags = flight.tail;
  uint32_t contributed = 0;
  for (uint32_t rank = 0; rank < options_.logical_workers; ++rank) {
    if (flags[rank] > 1) {
      return Fail(absl::InternalError(absl::StrCat("the dense gradients of logical worker ", rank,
                                                   " are in step ", flight.step, " ", flags[rank],
                                                   " times")));
    }
    contributed += flags[rank] == 1;
  }
  if (contributed < options_.logical_workers && flight.bucket == 0) {
    spdlog::info(
        "dense step {} has the gradients of {} of {} logical workers: those of others were lost "
        "with their workers",
        flight.step, contributed, options_.logical_workers);
  }
  return absl::OkStatus();
}

absl::Status DenseReplica::FailNotFinite(const Flight& flight) {
  return Fail(absl::InvalidArgumentError(
      absl::StrCat("a dense gradient of step ", flight.step,
                   " is not finite: the training has diverged; reduce the learning rate")));
}

absl::StatusOr<bool> DenseReplica::IsFinite(const Flight& flight) {
  const size_t count = layout_.buckets()[flight.bucket].count;
  float* const sum = flight.reduced.get();
  if (memory_->IsHostMemory()) return AllFinite(sum, count);
  float* const found = sum + count + flight.tail.size();
  float not_finite = 0;
  memory_->stream().FindNotFinite(count, sum, found);
  memory_->stream().CopyToHost(found, sizeof(float), &not_finite);
  PAWL_RETURN_IF_ERROR(memory_->Finish());
  return not_finite == 0;
}

absl::Status DenseReplica::Update(const Flight& flight) {
  float* const sum = flight.reduced.get();
  if (flight.through_host) {
    const size_t count = layout_.buckets()[flight.bucket].count;
    memory_->stream().CopyToDevice(flight.host_reduced.data(), count * sizeof(float), sum);
  }
  PAWL_ASSIGN_OR_RETURN(const bool is_finite, IsFinite(flight));
  if (!is_finite) return FailNotFinite(flight);
  return state_->Apply(flight.bucket, 1.0f / static_cast<float>(options_.logical_workers), sum);
}

size_t DenseReplica::GatheredElements(const GroupOperations& group, const Flight& flight) const {
  const size_t slots =
      options_.is_write_back(flight.step + 1) ? shares_->SlotsPerElement(flight.bucket) : 0;
  return shares_->ShareElements(flight.bucket, group.size()) * (1 + slots) + 1;
}

void DenseReplica::UpdateShare(GroupOperations& group, Flight& flight) {
  const size_t share = shares_->ShareElements(flight.bucket, group.size());
  const DenseRange range = shares_->Share(flight.bucket, group.size(), group.place());
  const size_t elements = GatheredElements(group, flight);
  flight.updated.assign(elements, 0);
  flight.gathered.resize(elements * group.size());
  if (AllFinite(flight.reduced.get(), range.size())) {
    shares_->Prepare(flight.bucket, range, 1.0f / static_cast<float>(options_.logical_workers),
                     flight.reduced.get(), flight.updated.data());
    if (elements > share + 1) {
      const std::vector<float>& slots = shares_->prepared(flight.bucket);
      std::copy(slots.begin(), slots.end(), flight.updated.data() + share + 1);
    }
  } else {
    flight.updated[share] = 1;
  }
  flight.done = group.AllGather(flight.updated.data(), flight.gathered.data(), elements);
}

absl::Status DenseReplica::TakeShares(GroupOperations& group, Flight& flight) {
  PAWL_RETURN_IF_ERROR(group.Await(std::move(flight.done)));
  const size_t bucket = flight.bucket;
  const size_t share = shares_->ShareElements(bucket, group.size());
  const size_t elements = GatheredElements(group, flight);
  const bool with_slots = elements > share + 1;
  for (size_t p = 0; p < group.size(); ++p) {
    if (flight.gathered[p * elements + share] != 0) return FailNotFinite(flight);
  }
  shares_->Commit(bucket);
  float* const weights = state_->weights(bucket, flight.step + 1);
  for (size_t p = 0; p < group.size(); ++p) {
    const DenseRange range = shares_->Share(bucket, group.size(), p);
    const float* const from = flight.gathered.data() + p * elements;
    std::copy_n(from, range.size(), weights + range.begin);
    if (with_slots) shares_->Unpack(bucket, range, from + share + 1);
  }
  if (with_slots || layout_.buckets()[bucket].slots_count == 0) shares_->SetWhole(bucket);
  state_->Publish(bucket, flight.step + 1);
  return absl::OkStatus();
}

absl::Status DenseReplica::RunSteps(GroupOperations& group) {
  while (true) {
    const uint64_t step = *state_->steps();
    gradients_.DropBefore(step);
    std::vector<bool> left;
    for (const int64_t version : state_->versions())
      left.push_back(version == static_cast<int64_t>(step));
    order_.Begin(std::move(left));
    ready_from_ = layout_.buckets().size();
    std::optional<size_t> bucket = order_.Next(ready_from_);
    size_t turn = 0;
    PAWL_RETURN_IF_ERROR(AwaitComplete(group, *bucket, step));
    PAWL_RETURN_IF_ERROR(StartBucket(group, *bucket, step, flights_[turn]));
    while (true) {
      Flight& flight = flights_[turn];
      PAWL_RETURN_IF_ERROR(group.Await(std::move(flight.done)));
      PAWL_RETURN_IF_ERROR(TakeTail(group, flight));
      bucket = order_.Next(ReadyWithAllFrom(group, flight));
      PAWL_RETURN_IF_ERROR(CheckFlags(flight));
      // Its gather precedes the next bucket in the order of all members, whether or not that bucket
      // is ready here.
      if (shares_ != nullptr) UpdateShare(group, flight);
      // If possible, start the next bucket before this one's update.
      turn = 1 - turn;
      bool started = false;
      if (bucket.has_value() && gradients_.IsComplete(*bucket, step)) {
        PAWL_RETURN_IF_ERROR(StartBucket(group, *bucket, step, flights_[turn]));
        started = true;
      }
      PAWL_RETURN_IF_ERROR(shares_ == nullptr ? Update(flight) : TakeShares(group, flight));
      if (!bucket.has_value()) break;
      if (!started) {
        PAWL_RETURN_IF_ERROR(AwaitComplete(group, *bucket, step));
        PAWL_RETURN_IF_ERROR(StartBucket(group, *bucket, step, flights_[turn]));
      }
    }
  }
}

}  // namespace pawl
