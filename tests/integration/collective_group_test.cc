// Processes that make all-reduces with each other while members are killed one by one. The
// survivors form a new group, and new members join. The processes check every sum
// (tests/chaos/group_member).
//
// PAWL_KILLS is the number of kills, PAWL_SEED repeats the choices, and PAWL_LEASE_MS may be small
// on idle machines.
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/random.h"
#include "client_lib/base/testing/eventually.h"
#include "tests/harness/generated_data.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr uint64_t kKills = 10;
constexpr size_t kMembers = 3;
// Long, so that a busy machine declares no live process dead.
constexpr uint64_t kLeaseMs = 4000;
constexpr std::chrono::seconds kWaitTimeout{60};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : otherwise;
}

std::chrono::milliseconds Lease() {
  return std::chrono::milliseconds(FromEnvironment("PAWL_LEASE_MS", kLeaseMs));
}

// A line of a member's notes.
struct Note {
  MonotonicTime when;
  uint64_t generation = 0;
  size_t members = 0;
  uint64_t step = 0;
};

class CollectiveGroupTest : public ClusterTest {
 protected:
  // Starts a cluster with all members in a group.
  void Begin(bool fixed_ports = false) {
    ASSERT_NO_FATAL_FAILURE(BeginWithout(fixed_ports));
    for (size_t i = 0; i < kMembers; ++i) StartMember();
    ASSERT_TRUE(WaitForGroup(kMembers, MonotonicTime(), 2).has_value());
  }
  // Starts a cluster that expects this many members, without members.
  void BeginWithout(bool fixed_ports = false, size_t members = kMembers) {
    const std::string data = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
    ASSERT_TRUE(WriteClicks({.samples = 100}, data).ok());
    ProcessClusterOptions options;
    options.job = absl::StrCat("name: 'group' data { train: '", data, "' eval: '", data,
                               "' format: LIBSVM }\n",
                               "model { fm { dim: 4 } } optimizer { sgd { learning_rate: 0.1 } }\n",
                               "batch_size: 6 logical_workers: 6 partitions: 4 elastic: true\n");
    options.expected_workers = static_cast<uint32_t>(members);
    options.fixed_ports = fixed_ports;
    options.lease = Lease();
    options.flags["scheduler"] = {"--worker_takeover_grace_s=0.2"};
    cluster_ = StartCluster(options);
    ASSERT_NE(cluster_, nullptr);
  }
  // Asks the members to end and waits for them.
  void EndMembers() {
    for (const std::string& name : living_) cluster_->node(name).Signal(SIGTERM);
    for (const std::string& name : living_) {
      EXPECT_TRUE(cluster_->node(name).WaitUntil(Clock::Real().Now() + kWaitTimeout)) << name;
      EXPECT_TRUE(cluster_->node(name).Succeeded())
          << name << " " << cluster_->node(name).HowItEnded();
    }
  }

  void StartMember(const std::vector<std::string>& flags = {}) {
    const std::string name = absl::StrCat("member-", started_++);
    std::vector<std::string> arguments = {
        absl::StrCat("--scheduler=", cluster_->scheduler_address()),
        absl::StrCat("--notes=", NotesFile(name))};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const absl::Status status =
        cluster_->AddProcess(name, "tests/chaos/group_member/group-member", arguments);
    ASSERT_TRUE(status.ok()) << status;
    living_.push_back(name);
  }
  std::string NotesFile(const std::string& name) const {
    return absl::StrCat(cluster_->folder(), "/", name, ".notes");
  }

  std::vector<Note> Notes(const std::string& name) const {
    std::vector<Note> notes;
    std::ifstream file(NotesFile(name));
    int64_t when;
    for (Note note; file >> when >> note.generation >> note.members >> note.step;) {
      note.when = MonotonicTime(MonotonicDuration(when));
      notes.push_back(note);
    }
    return notes;
  }

  // Waits until every live member has made an all-reduce after `since` in one group of `members`
  // members, and `more` after that. Returns the time of the last member's first. Returns nullopt
  // and fails the test on a timeout.
  std::optional<MonotonicTime> WaitForGroup(size_t members, MonotonicTime since, uint64_t more) {
    const auto ended = [&](const std::string& name) { return cluster_->node(name).HasEnded(); };
    std::optional<MonotonicTime> together;
    Eventually(
        [&] {
          together = Together(members, since, more);
          return together.has_value() || std::any_of(living_.begin(), living_.end(), ended);
        },
        kWaitTimeout);
    if (together.has_value()) return together;
    ADD_FAILURE() << "no group of " << members << " in " << Seconds(kWaitTimeout) << " s\n"
                  << cluster_->Describe();
    return std::nullopt;
  }
  // Checks once.
  std::optional<MonotonicTime> Together(size_t members, MonotonicTime since, uint64_t more) const {
    std::optional<MonotonicTime> first;
    uint64_t generation = 0;
    for (const std::string& name : living_) {
      const std::vector<Note> notes = Notes(name);
      // The start of the member's present group.
      const auto begin = std::find_if(notes.begin(), notes.end(), [&](const Note& note) {
        return note.when > since && note.members == members &&
               note.generation == notes.back().generation;
      });
      if (begin == notes.end() || static_cast<uint64_t>(notes.end() - begin) <= more ||
          (generation != 0 && generation != begin->generation)) {
        return std::nullopt;
      }
      generation = begin->generation;
      first = std::max(first.value_or(begin->when), begin->when);
    }
    return first;
  }

  ProcessCluster* cluster_ = nullptr;
  std::vector<std::string> living_;
  int started_ = 0;
};

void PrintTimes(const std::string& what, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  std::printf("%s: %zu times, median %.2f s, longest %.2f s\n", what.c_str(), times.size(),
              times[times.size() / 2], times.back());
}

TEST_F(CollectiveGroupTest, SurvivorsFormANewGroupAndAdmitAJoiner) {
  const uint64_t kills = FromEnvironment("PAWL_KILLS", kKills);
  const uint64_t seed = FromEnvironment("PAWL_SEED", RandomNumber() % 1000000);
  std::printf("PAWL_SEED=%llu PAWL_KILLS=%llu\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(kills));
  std::mt19937_64 random(seed);
  ASSERT_NO_FATAL_FAILURE(Begin());
  std::vector<double> shrinking, joining, returning;
  for (uint64_t kill = 0; kill < kills; ++kill) {
    const size_t victim = random() % living_.size();
    const std::string name = living_[victim];
    const bool comes_back = random() % 2 == 0;
    SCOPED_TRACE(testing::Message()
                 << "kill " << kill << ": " << name << (comes_back ? ", restarted" : ""));
    const auto node = cluster_->WaitUntilMember(name, kWaitTimeout);
    ASSERT_TRUE(node.ok()) << node.status();
    const auto job = cluster_->GetStatus();
    ASSERT_TRUE(job.ok()) << job.status();
    // Kills a member during an all-reduce.
    ASSERT_TRUE(WaitForGroup(kMembers, Clock::Real().Now(), random() % 5).has_value());
    const MonotonicTime killed = Clock::Real().Now();
    ASSERT_TRUE(cluster_->Kill(name).ok());
    living_.erase(living_.begin() + static_cast<std::ptrdiff_t>(victim));
    if (comes_back) {
      StartMember({absl::StrCat("--node=", *node), absl::StrCat("--node_job_id=", job->job_id())});
      const auto together = WaitForGroup(kMembers, killed, 0);
      ASSERT_TRUE(together.has_value());
      returning.push_back(Seconds(*together - killed));
      continue;
    }
    const auto without = WaitForGroup(kMembers - 1, killed, 0);
    ASSERT_TRUE(without.has_value());
    shrinking.push_back(Seconds(*without - killed));
    const MonotonicTime joins = Clock::Real().Now();
    StartMember();
    const auto together = WaitForGroup(kMembers, joins, 0);
    ASSERT_TRUE(together.has_value());
    joining.push_back(Seconds(*together - joins));
  }
  PrintTimes(absl::StrCat("from a kill until the survivors continue (a lease of ", Lease().count(),
                          " ms and 200 ms of grace in it)"),
             shrinking);
  PrintTimes("from a joiner's start until all continue with it", joining);
  PrintTimes("from a kill until all continue with the restarted member", returning);
  EndMembers();
}

TEST_F(CollectiveGroupTest, AbsentSchedulerEndsNoGroup) {
  ASSERT_NO_FATAL_FAILURE(Begin(/*fixed_ports=*/true));
  const uint64_t generation = Notes(living_[0]).back().generation;
  ASSERT_TRUE(cluster_->Kill("scheduler").ok());
  // For longer than its lease.
  const MonotonicTime away = Clock::Real().Now();
  ASSERT_TRUE(WaitForGroup(kMembers, away + Lease(), 5).has_value());
  EXPECT_EQ(Notes(living_[0]).back().generation, generation);
  ASSERT_TRUE(cluster_->Restart("scheduler").ok());
  EXPECT_TRUE(
      Eventually([&] { return Notes(living_[0]).back().generation > generation; }, kWaitTimeout));
  EXPECT_TRUE(WaitForGroup(kMembers, Clock::Real().Now(), 2).has_value());
  EndMembers();
}

TEST_F(CollectiveGroupTest, MembersChooseACommonKind) {
  ASSERT_NO_FATAL_FAILURE(BeginWithout());
  StartMember({"--kinds=fast,gloo"});
  StartMember({"--kinds=gloo"});
  StartMember({"--kinds=fast,gloo"});
  ASSERT_TRUE(WaitForGroup(kMembers, MonotonicTime(), 2).has_value());
  EndMembers();
}

// A kind that fails only when members connect.
TEST_F(CollectiveGroupTest, MembersFallBackToTheNextKind) {
  ASSERT_NO_FATAL_FAILURE(BeginWithout());
  for (size_t i = 0; i < kMembers; ++i) StartMember({"--kinds=broken,gloo"});
  ASSERT_TRUE(WaitForGroup(kMembers, MonotonicTime(), 2).has_value());
  const std::string said = cluster_->Describe();
  EXPECT_NE(said.find("collective operations do not work by broken"), std::string::npos) << said;
  EndMembers();
}

TEST_F(CollectiveGroupTest, MemberWithoutAWorkingKindEndsWithAReason) {
  ASSERT_NO_FATAL_FAILURE(BeginWithout(/*fixed_ports=*/false, 1));
  StartMember({"--kinds=broken"});
  ASSERT_TRUE(cluster_->node(living_[0]).WaitUntil(Clock::Real().Now() + kWaitTimeout));
  EXPECT_FALSE(cluster_->node(living_[0]).Succeeded());
  const std::string said = cluster_->Describe();
  EXPECT_NE(said.find("cannot do collective operations by broken: "), std::string::npos) << said;
}

// Its address is not its machine's.
TEST_F(CollectiveGroupTest, MemberThatCannotListenLeavesTheOthersTheirGroup) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  StartMember({"--host=192.0.2.1"});
  ASSERT_TRUE(cluster_->node(living_.back()).WaitUntil(Clock::Real().Now() + kWaitTimeout));
  EXPECT_FALSE(cluster_->node(living_.back()).Succeeded());
  living_.pop_back();
  const std::string said = cluster_->Describe();
  EXPECT_NE(said.find("cannot listen at 192.0.2.1"), std::string::npos) << said;
  ASSERT_TRUE(WaitForGroup(kMembers, Clock::Real().Now(), 2).has_value());
  EndMembers();
}

// Neither member waits for the other or retries forever.
TEST_F(CollectiveGroupTest, MembersWithoutACommonKindReportTheirKinds) {
  ASSERT_NO_FATAL_FAILURE(BeginWithout(/*fixed_ports=*/false, 2));
  StartMember({"--kinds=gloo"});
  StartMember({"--kinds=fast"});
  const auto ended = [&](const std::string& name) { return cluster_->node(name).HasEnded(); };
  ASSERT_TRUE(
      Eventually([&] { return std::any_of(living_.begin(), living_.end(), ended); }, kWaitTimeout));
  const auto refused = std::find_if(living_.begin(), living_.end(), ended);
  EXPECT_FALSE(cluster_->node(*refused).Succeeded());
  living_.erase(refused);
  const std::string said = cluster_->Describe();
  for (const char* const part : {"has gloo", "has fast", "--collectives"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
  ASSERT_TRUE(WaitForGroup(1, MonotonicTime(), 2).has_value());
  EndMembers();
}

}  // namespace
}  // namespace pawl
