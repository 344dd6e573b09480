#include "worker/collective/testing/fake_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pawl {
namespace {

// A copy that shares nothing with `status`: ThreadSanitizer does not see the synchronization in the
// reference counts of the system's Abseil.
absl::Status Own(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

template <typename T>
void Reduce(const std::vector<const void*>& inputs, size_t count, Reduction reduction,
            void* output) {
  T* const out = static_cast<T*>(output);
  for (size_t i = 0; i < count; ++i) {
    T value = static_cast<const T*>(inputs[0])[i];
    for (size_t m = 1; m < inputs.size(); ++m) {
      const T other = static_cast<const T*>(inputs[m])[i];
      value = reduction == Reduction::kSum ? value + other : std::min(value, other);
    }
    out[i] = value;
  }
}

std::vector<char> Reduced(const std::vector<const void*>& inputs, size_t count, CollectiveType type,
                          Reduction reduction) {
  std::vector<char> result(count * BytesOf(type));
  switch (type) {
    case CollectiveType::kFloat32:
      Reduce<float>(inputs, count, reduction, result.data());
      break;
    case CollectiveType::kInt64:
      Reduce<int64_t>(inputs, count, reduction, result.data());
      break;
  }
  return result;
}

}  // namespace

// Owns nothing in common with its former; the group's record belongs to FakeGroups.
class FakeCollective final : public Collective {
 public:
  FakeCollective(FakeGroups& groups, std::shared_ptr<FakeGroups::LiveGroup> live, size_t place,
                 std::function<void*(void*, size_t)> device_memory)
      : groups_(groups),
        live_(std::move(live)),
        place_(place),
        device_memory_(std::move(device_memory)) {}
  ~FakeCollective() override {
    Abort(absl::CancelledError("the collective is destroyed"));
    // Until every `done` of this member has been called.
    MutexLock lock(mu_);
    while (under_way_ > 0) none_left_.WaitUntil(mu_, Clock::Real().Now() + kInterruptInterval);
  }

  size_t size() const override { return live_->nodes.size(); }
  size_t place() const override { return place_; }

  void AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                 Reduction reduction, MonotonicDuration, Done done) override {
    Start({"AllReduce", input, output, count, type, reduction, 0, std::move(done)});
  }
  bool TakesDeviceMemory() const override { return device_memory_ != nullptr; }
  void AllReduceOnDevice(const void* input, void* output, size_t count, CollectiveType type,
                         Reduction reduction, MonotonicDuration, Done done) override {
    const size_t bytes = count * BytesOf(type);
    Start({"AllReduce", device_memory_(const_cast<void*>(input), bytes),
           device_memory_(output, bytes), count, type, reduction, 0, std::move(done)});
  }
  void Broadcast(void* data, size_t count, CollectiveType type, size_t root, MonotonicDuration,
                 Done done) override {
    Start({"Broadcast", data, data, count, type, Reduction::kSum, root, std::move(done)});
  }
  void AllGather(const void* input, void* output, size_t count, CollectiveType type,
                 MonotonicDuration, Done done) override {
    Start({"AllGather", input, output, count, type, Reduction::kSum, 0, std::move(done)});
  }
  void ReduceScatter(const void* input, void* output, size_t count, CollectiveType type,
                     Reduction reduction, MonotonicDuration, Done done) override {
    Start({"ReduceScatter", input, output, count, type, reduction, 0, std::move(done)});
  }
  void Abort(const absl::Status& reason) override { groups_.End(*live_, reason); }
  absl::Status status() const override {
    MutexLock lock(groups_.mu_);
    return Own(live_->end_reason);
  }
  bool hangs() const override { return groups_.hangs_; }

 private:
  void Start(FakeGroups::Call call) {
    {
      MutexLock lock(mu_);
      ++under_way_;
    }
    call.done = [this, done = std::move(call.done)](absl::Status status) mutable {
      done(std::move(status));
      done = nullptr;
      MutexLock lock(mu_);
      --under_way_;
      none_left_.NotifyAll();
    };
    groups_.Start(*live_, place_, std::move(call));
  }

  FakeGroups& groups_;
  const std::shared_ptr<FakeGroups::LiveGroup> live_;
  const size_t place_;
  // Null unless it accepts device memory.
  const std::function<void*(void*, size_t)> device_memory_;
  Mutex mu_;
  CondVar none_left_;
  size_t under_way_ PAWL_GUARDED_BY(mu_) = 0;
};

class FakeGroupFormer final : public GroupFormer {
 public:
  FakeGroupFormer(FakeGroups& groups, std::string node) : groups_(groups), node_(std::move(node)) {}

  absl::StatusOr<Group> Form(const std::vector<GroupRank>& ranks,
                             std::optional<uint64_t> dense_steps,
                             const Interrupt& interrupt) override {
    return groups_.Form(node_, ranks, dense_steps, interrupt);
  }

 private:
  FakeGroups& groups_;
  const std::string node_;
};

FakeGroups::FakeGroups(uint32_t ranks) : ranks_(ranks), thread_([this] { Run(); }) {}

FakeGroups::~FakeGroups() {
  {
    MutexLock lock(mu_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

std::unique_ptr<GroupFormer> FakeGroups::Join(const std::string& node) {
  return std::make_unique<FakeGroupFormer>(*this, node);
}

void FakeGroups::Kill(const std::string& node) {
  MutexLock lock(mu_);
  dead_.insert(node);
  for (const std::shared_ptr<LiveGroup>& live : groups_) {
    if (std::find(live->nodes.begin(), live->nodes.end(), node) != live->nodes.end()) {
      EndLocked(*live, absl::UnavailableError(node + " is dead"));
    }
  }
  changed_.NotifyAll();
}

void FakeGroups::BeforeEach(std::function<std::set<std::string>(const Operation&)> hook) {
  MutexLock lock(mu_);
  hook_ = std::move(hook);
}

void FakeGroups::SetDeviceMemory(std::function<void*(void* address, size_t bytes)> real) {
  MutexLock lock(mu_);
  device_memory_ = std::move(real);
}

void FakeGroups::HoldEnds(const std::string& node) {
  MutexLock lock(mu_);
  held_node_ = node;
}

void FakeGroups::ReleaseEnds() {
  MutexLock lock(mu_);
  held_node_.clear();
  for (const std::shared_ptr<LiveGroup>& live : groups_) {
    for (Collective::Done& done : live->held)
      ended_.emplace_back(std::move(done), absl::OkStatus());
    live->held.clear();
  }
  changed_.NotifyAll();
}

uint64_t FakeGroups::groups_formed() const {
  MutexLock lock(mu_);
  return groups_.size();
}

absl::StatusOr<Group> FakeGroups::Form(const std::string& node, const std::vector<GroupRank>& ranks,
                                       std::optional<uint64_t> dense_steps,
                                       const Interrupt& interrupt) {
  Waiting waiting;
  waiting.ranks = ranks;
  waiting.dense_steps = dense_steps;
  MutexLock lock(mu_);
  for (const std::shared_ptr<LiveGroup>& live : groups_) {
    if (std::find(live->nodes.begin(), live->nodes.end(), node) != live->nodes.end()) {
      EndLocked(*live, absl::UnavailableError(node + " joins anew"));
    }
  }
  waiting_[node] = &waiting;
  MaybeForm();
  while (!waiting.group.has_value()) {
    absl::Status reason = interrupt.reason();
    if (reason.ok() && dead_.contains(node)) reason = absl::AbortedError(node + " is dead");
    if (!reason.ok()) {
      waiting_.erase(node);
      return reason;
    }
    changed_.WaitUntil(mu_, Clock::Real().Now() + kInterruptInterval);
  }
  return std::move(*waiting.group);
}

void FakeGroups::MaybeForm() {
  std::map<uint32_t, std::string> hosts;
  for (const auto& [node, waiting] : waiting_) {
    // A dead process may not have noticed yet.
    if (dead_.contains(node)) continue;
    for (const GroupRank& rank : waiting->ranks) hosts[rank.rank()] = node;
  }
  if (hosts.size() != ranks_) return;
  auto live = std::make_shared<LiveGroup>();
  live->generation = groups_.size() + 1;
  std::vector<GroupMember> members;
  // In the order of their lowest ranks.
  for (const auto& [rank, node] : hosts) {
    if (std::find(live->nodes.begin(), live->nodes.end(), node) != live->nodes.end()) continue;
    live->nodes.push_back(node);
    const Waiting& waiting = *waiting_.at(node);
    GroupMember& member = members.emplace_back();
    member.set_node(node);
    for (const GroupRank& each : waiting.ranks) member.add_ranks(each.rank());
    member.set_has_state(waiting.dense_steps.has_value());
    member.set_dense_steps(waiting.dense_steps.value_or(0));
  }
  live->calls.resize(live->nodes.size());
  groups_.push_back(live);
  for (size_t place = 0; place < live->nodes.size(); ++place) {
    Group group;
    group.generation = live->generation;
    group.members = members;
    group.place = place;
    group.collective = std::make_unique<FakeCollective>(*this, live, place, device_memory_);
    waiting_.at(live->nodes[place])->group = std::move(group);
    waiting_.erase(live->nodes[place]);
  }
  changed_.NotifyAll();
}

void FakeGroups::Start(LiveGroup& live, size_t place, Call call) {
  MutexLock lock(mu_);
  if (!live.end_reason.ok()) {
    ended_.emplace_back(std::move(call.done), Own(live.end_reason));
  } else {
    live.calls[place].push_back(std::move(call));
  }
  changed_.NotifyAll();
}

void FakeGroups::End(LiveGroup& live, const absl::Status& reason) {
  MutexLock lock(mu_);
  EndLocked(live, reason);
}

void FakeGroups::EndLocked(LiveGroup& live, const absl::Status& reason) {
  if (!live.end_reason.ok()) return;
  live.end_reason = Own(reason);
  for (std::deque<Call>& calls : live.calls) {
    for (Call& call : calls) ended_.emplace_back(std::move(call.done), Own(reason));
    calls.clear();
  }
  for (Collective::Done& done : live.held) ended_.emplace_back(std::move(done), Own(reason));
  live.held.clear();
  changed_.NotifyAll();
}

void FakeGroups::Execute(std::vector<Call>& calls) {
  const Call& first = calls.front();
  const size_t size = BytesOf(first.type);
  std::vector<const void*> inputs;
  for (const Call& call : calls) {
    // Members that disagree would deadlock, or worse.
    if (call.kind != first.kind || call.count != first.count || call.type != first.type ||
        call.root != first.root) {
      std::abort();
    }
    inputs.push_back(call.input);
  }
  if (first.kind == "AllReduce") {
    const std::vector<char> sum = Reduced(inputs, first.count, first.type, first.reduction);
    for (const Call& call : calls) std::memcpy(call.output, sum.data(), sum.size());
  } else if (first.kind == "Broadcast") {
    for (size_t p = 0; p < calls.size(); ++p) {
      if (p != first.root) std::memcpy(calls[p].output, inputs[first.root], first.count * size);
    }
  } else if (first.kind == "AllGather") {
    for (const Call& call : calls) {
      for (size_t p = 0; p < calls.size(); ++p) {
        std::memcpy(static_cast<char*>(call.output) + p * first.count * size, inputs[p],
                    first.count * size);
      }
    }
  } else if (first.kind == "ReduceScatter") {
    const std::vector<char> sum =
        Reduced(inputs, first.count * calls.size(), first.type, first.reduction);
    for (size_t p = 0; p < calls.size(); ++p) {
      std::memcpy(calls[p].output, sum.data() + p * first.count * size, first.count * size);
    }
  }
}

void FakeGroups::Run() {
  mu_.Lock();
  while (!ending_ || !ended_.empty()) {
    if (!ended_.empty()) {
      auto [done, status] = std::move(ended_.front());
      ended_.pop_front();
      mu_.Unlock();
      done(std::move(status));
      done = nullptr;
      mu_.Lock();
      continue;
    }
    LiveGroup* ready = nullptr;
    for (const std::shared_ptr<LiveGroup>& live : groups_) {
      const bool all = std::all_of(live->calls.begin(), live->calls.end(),
                                   [](const auto& calls) { return !calls.empty(); });
      if (all && live->end_reason.ok()) ready = live.get();
    }
    if (ready == nullptr) {
      changed_.WaitUntil(mu_, Clock::Real().Now() + kInterruptInterval);
      continue;
    }
    std::vector<Call> calls;
    for (std::deque<Call>& of_member : ready->calls) {
      calls.push_back(std::move(of_member.front()));
      of_member.pop_front();
    }
    const Operation operation = {ready->generation, ready->operations++, calls.front().kind,
                                 calls.front().count, ready->nodes};
    const auto hook = hook_;
    mu_.Unlock();
    std::set<std::string> failing;
    if (hook != nullptr) failing = hook(operation);
    Execute(calls);
    mu_.Lock();
    for (size_t p = 0; p < calls.size(); ++p) {
      if (ready->nodes[p] == held_node_ && ready->end_reason.ok()) {
        ready->held.push_back(std::move(calls[p].done));
        continue;
      }
      const bool fails = failing.contains(ready->nodes[p]);
      ended_.emplace_back(
          std::move(calls[p].done),
          fails ? absl::UnavailableError("the connection broke") : absl::OkStatus());
    }
    if (!failing.empty()) EndLocked(*ready, absl::UnavailableError("a member was lost"));
  }
  mu_.Unlock();
}

}  // namespace pawl
