// Groups within one process, for tests: members are threads, and sums are computed in the order of
// places.
#ifndef PAWL_WORKER_COLLECTIVE_TESTING_FAKE_GROUP_H_
#define PAWL_WORKER_COLLECTIVE_TESTING_FAKE_GROUP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/base/mutex.h"
#include "worker/collective/collective.h"
#include "worker/collective/group_former.h"
#include "worker/process/interrupt.h"

namespace pawl {

// Acts as the scheduler and the network between members. Thread-safe. Outlives its formers and
// collectives.
class FakeGroups {
 public:
  // A group forms when waiting members have all ranks 0 to `ranks` - 1, each once.
  explicit FakeGroups(uint32_t ranks);
  ~FakeGroups();

  // The former of process `node`. Lives as long as that process.
  std::unique_ptr<GroupFormer> Join(const std::string& node);
  // Marks the process as dead: its group ends, and it joins no other.
  void Kill(const std::string& node);

  // A collective operation that all members have called. `number` counts those of the group.
  struct Operation {
    uint64_t generation = 0;
    uint64_t number = 0;
    std::string kind;
    size_t count = 0;
    std::vector<std::string> nodes;
  };
  // Called before each operation is executed. Members in the result get an error instead of the
  // operation's end, and the group ends afterwards.
  void BeforeEach(std::function<std::set<std::string>(const Operation&)> hook);

  // From the current operation on, ends for this node are held until they are released, or until
  // the group ends, which turns them into errors. For the hook of BeforeEach.
  void HoldEnds(const std::string& node);
  void ReleaseEnds();

  uint64_t groups_formed() const;

  // Makes the collectives of new groups accept device memory too; `real` maps an address to the
  // host memory behind it. Set before Form.
  void SetDeviceMemory(std::function<void*(void* address, size_t bytes)> real);

  // The result of Collective::hangs() from now on.
  void SetHangs(bool hangs) { hangs_ = hangs; }

 private:
  friend class FakeCollective;
  friend class FakeGroupFormer;

  // One call of one member.
  struct Call {
    // An operation on device memory has the kind of the plain operation and the memory behind its
    // addresses.
    std::string kind;
    const void* input = nullptr;
    void* output = nullptr;
    size_t count = 0;
    CollectiveType type = CollectiveType::kFloat32;
    Reduction reduction = Reduction::kSum;
    size_t root = 0;
    Collective::Done done;
  };
  struct LiveGroup {
    uint64_t generation = 0;
    std::vector<std::string> nodes;
    // Calls that have not ended, by place.
    std::vector<std::deque<Call>> calls;
    // Ends that are held.
    std::vector<Collective::Done> held;
    uint64_t operations = 0;
    absl::Status end_reason;
  };
  struct Waiting {
    std::vector<GroupRank> ranks;
    std::optional<uint64_t> dense_steps;
    std::optional<Group> group;
  };

  absl::StatusOr<Group> Form(const std::string& node, const std::vector<GroupRank>& ranks,
                             std::optional<uint64_t> dense_steps, const Interrupt& interrupt);
  void MaybeForm() PAWL_REQUIRES(mu_);
  void Start(LiveGroup& live, size_t place, Call call);
  void End(LiveGroup& live, const absl::Status& reason);
  void EndLocked(LiveGroup& live, const absl::Status& reason) PAWL_REQUIRES(mu_);
  void Run();
  // Executes an operation that all members have called.
  static void Execute(std::vector<Call>& calls);

  const uint32_t ranks_;
  std::atomic<bool> hangs_ = false;
  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::string, Waiting*> waiting_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> dead_ PAWL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<LiveGroup>> groups_ PAWL_GUARDED_BY(mu_);
  std::function<std::set<std::string>(const Operation&)> hook_ PAWL_GUARDED_BY(mu_);
  std::function<void*(void*, size_t)> device_memory_ PAWL_GUARDED_BY(mu_);
  // The node whose ends are held.
  std::string held_node_ PAWL_GUARDED_BY(mu_);
  // Ends to report to members, in order.
  std::deque<std::pair<Collective::Done, absl::Status>> ended_ PAWL_GUARDED_BY(mu_);
  bool ending_ PAWL_GUARDED_BY(mu_) = false;
  // Executes operations and reports their ends.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_TESTING_FAKE_GROUP_H_
