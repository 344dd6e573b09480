// Groups within one process, for tests: members are threads, and sums are made in the order of the
// members' places.
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

// What the scheduler and the network are to the members. Thread-safe; outlives formers and
// collectives.
class FakeGroups {
 public:
  // A group is formed when members with all ranks 0 to `ranks` - 1, each once, wait for one.
  explicit FakeGroups(uint32_t ranks);
  ~FakeGroups();

  // Of the process `node`. Lives as long as its process.
  std::unique_ptr<GroupFormer> Join(const std::string& node);
  // The process is dead: its group is over, and it forms none any more.
  void Kill(const std::string& node);

  // A collective operation that all members have begun. `number` counts those of the group.
  struct Operation {
    uint64_t generation = 0;
    uint64_t number = 0;
    std::string kind;
    size_t count = 0;
    std::vector<std::string> nodes;
  };
  // Called before each operation is carried out. Whoever is in the result gets an error in place of
  // its end, and the group is over afterwards.
  void BeforeEach(std::function<std::set<std::string>(const Operation&)> hook);

  // From the operation under way on this node gets to know their ends when they are released, or
  // when the group is over: then as an error. For the hook of BeforeEach.
  void HoldEnds(const std::string& node);
  void ReleaseEnds();

  uint64_t groups_formed() const;

  // From now on the collectives of new groups take memory of a device too, of which this says what
  // lies behind an address. Set before Form.
  void SetDeviceMemory(std::function<void*(void* address, size_t bytes)> real);

  // What Collective::hangs() says from now on.
  void SetHangs(bool hangs) { hangs_ = hangs; }

 private:
  friend class FakeCollective;
  friend class FakeGroupFormer;

  // One call of one member.
  struct Call {
    // That of an operation on a device is that of the operation, and its memory is what lies
    // behind.
    std::string kind;
    const void* input = nullptr;
    void* output = nullptr;
    size_t count = 0;
    CollectiveType type = CollectiveType::kFloat32;
    Reduction reduction = Reduction::kSum;
    size_t root = 0;
    Collective::Done done;
  };
  struct Live {
    uint64_t generation = 0;
    std::vector<std::string> nodes;
    // By place; those that have not ended.
    std::vector<std::deque<Call>> calls;
    // What has ended, but was not told.
    std::vector<Collective::Done> held;
    uint64_t operations = 0;
    absl::Status over;
  };
  struct Waiting {
    std::vector<GroupRank> ranks;
    std::optional<uint64_t> dense_steps;
    std::optional<Group> group;
  };

  absl::StatusOr<Group> Form(const std::string& node, const std::vector<GroupRank>& ranks,
                             std::optional<uint64_t> dense_steps, const Interrupt& interrupt);
  void FormIfAllAreThere() PAWL_REQUIRES(mu_);
  void Start(Live& live, size_t place, Call call);
  void End(Live& live, const absl::Status& reason);
  void EndLocked(Live& live, const absl::Status& reason) PAWL_REQUIRES(mu_);
  void Run();
  // Carries out what all members have begun.
  static void CarryOut(std::vector<Call>& calls);

  const uint32_t ranks_;
  std::atomic<bool> hangs_ = false;
  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::string, Waiting*> waiting_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> dead_ PAWL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Live>> groups_ PAWL_GUARDED_BY(mu_);
  std::function<std::set<std::string>(const Operation&)> hook_ PAWL_GUARDED_BY(mu_);
  std::function<void*(void*, size_t)> device_memory_ PAWL_GUARDED_BY(mu_);
  // Its ends are held.
  std::string held_node_ PAWL_GUARDED_BY(mu_);
  // Ends to be told to members, in order.
  std::deque<std::pair<Collective::Done, absl::Status>> ended_ PAWL_GUARDED_BY(mu_);
  bool ending_ PAWL_GUARDED_BY(mu_) = false;
  // Carries out operations and tells their ends.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_TESTING_FAKE_GROUP_H_
