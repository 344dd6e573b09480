// Applies random orders of deaths, returns and drains to a placement.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/testing/placement_fixture.h"

namespace pawl {
namespace {

// A model of servers that keep data on disk, driven by random events.
class Storm {
 public:
  Storm(uint32_t seed, uint32_t servers, uint32_t partitions, uint32_t replicas)
      : random_(seed),
        partitions_(partitions),
        replicas_(replicas),
        nodes_(servers),
        acknowledged_(partitions) {
    Servers numbers;
    for (uint32_t i = 0; i < servers; ++i) numbers.push_back(i);
    PlaceFirst(numbers, partitions, replicas, placement_);
    for (Node& node : nodes_) node.data.assign(partitions, kNone);
    for (uint32_t p = 0; p < partitions; ++p) {
      for (uint32_t s = 0; s < servers; ++s) {
        if (placement_.partitions[p].InSync(s)) nodes_[s].data[p] = 0;
      }
    }
    Check("the first placement");
  }

  void Event() {
    Node& node = nodes_[random_() % nodes_.size()];
    const auto number = static_cast<ServerNumber>(&node - nodes_.data());
    switch (random_() % 13) {
      case 0:
        node.up = false;
        break;
      case 1:
        // The leases of all servers that are down expire in one tick.
        Detect();
        break;
      case 2:
        if (!node.up || random_() % 4 == 0) Return(number);
        break;
      case 3:
        if (random_() % 4 == 0) node.draining = !node.draining;
        break;
      case 4:
      case 5:
        if (node.up) Adopt(number);
        break;
      case 6:
        Learn(static_cast<uint32_t>(random_() % partitions_));
        break;
      case 7:
        ReportSome();
        break;
      case 8:
      case 9:
        Push();
        break;
      case 10:
        if (node.up) ConfirmOf(number);
        break;
      default:
        Step();
        break;
    }
    Check("an event");
  }

  // All servers return, and no more events occur.
  void Calm() {
    calm_ = true;
    for (Node& node : nodes_) node.draining = false;
    for (uint32_t s = 0; s < nodes_.size(); ++s) {
      if (!nodes_[s].up || !nodes_[s].known) Return(s);
    }
    Servers all;
    for (uint32_t s = 0; s < nodes_.size(); ++s) all.push_back(s);
    uint64_t epoch = 0;
    for (int round = 0; round < 10000 && epoch != placement_.epoch; ++round) {
      epoch = placement_.epoch;
      for (const ServerNumber s : all) Adopt(s);
      for (const ServerNumber s : all) ConfirmOf(s);
      Step();
      for (uint32_t p = 0; p < partitions_; ++p) Learn(p);
      while (!reports_.empty()) ReportSome();
      Check("the calm");
    }
    for (const ReplicaSet& set : placement_.partitions) {
      ASSERT_NE(set.primary, kNoServer);
      ASSERT_EQ(set.backups.size() + 1, replicas_);
      ASSERT_TRUE(set.learners.empty());
      ASSERT_EQ(set.leaving, kNoServer);
    }
    ExpectEven(Loads(placement_), all);
    const std::map<ServerNumber, int> primaries = Primaries(placement_);
    const auto [fewest, most] =
        std::minmax_element(primaries.begin(), primaries.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    EXPECT_LE(most->second - fewest->second,
              2 + 2 * kTolerance * partitions_ / static_cast<double>(all.size()));
  }

 private:
  static constexpr int64_t kNone = -1;
  struct Node {
    bool up = true;
    // The scheduler believes that it is present.
    bool known = true;
    bool draining = false;
    uint64_t adopted = 0;
    uint64_t confirmed = 0;
    int incarnation = 0;
    // By partition: the last push that it has.
    std::vector<int64_t> data;
  };

  struct Report {
    uint32_t partition;
    ServerNumber primary;
    int primary_incarnation;
    ServerNumber learner;
    int learner_incarnation;
    uint64_t adopted;
  };

  void Detect() {
    Servers dead;
    for (uint32_t s = 0; s < nodes_.size(); ++s) {
      if (!nodes_[s].up && nodes_[s].known) dead.push_back(s);
    }
    for (const ServerNumber s : dead) nodes_[s].known = false;
    RemoveServers(dead, {static_cast<ServerNumber>(random_() % nodes_.size())}, placement_);
  }

  void Return(ServerNumber s) {
    Node& node = nodes_[s];
    if (node.known) RemoveServers({s}, {}, placement_);
    node.up = true;
    node.known = true;
    node.adopted = 0;
    node.confirmed = 0;
    ++node.incarnation;
    std::vector<uint32_t> recovered;
    for (uint32_t p = 0; p < partitions_; ++p) {
      if (node.data[p] != kNone) recovered.push_back(p);
    }
    EXPECT_TRUE(RecoverServer(s, recovered, false, placement_).lost.empty());
    Adopt(s);
  }

  void Adopt(ServerNumber s) {
    nodes_[s].adopted = placement_.epoch;
    for (uint32_t p = 0; p < partitions_; ++p) {
      const ReplicaSet& set = placement_.partitions[p];
      // Without a primary every server keeps its data.
      const bool keeps =
          std::find(set.retained.begin(), set.retained.end(), s) != set.retained.end();
      if (set.primary != kNoServer && !set.InSync(s) && !set.IsLearner(s) && !keeps)
        nodes_[s].data[p] = kNone;
    }
  }

  // Confirms by the epoch that the server has adopted, which may be old.
  void ConfirmOf(ServerNumber s) {
    Node& node = nodes_[s];
    if (!node.known) return;
    if (Confirm(s, node.adopted, 1, placement_).complete)
      node.confirmed = std::max(node.confirmed, node.adopted);
  }

  void Learn(uint32_t p) {
    const ReplicaSet set = placement_.partitions[p];
    if (set.primary == kNoServer || !nodes_[set.primary].up) return;
    for (const ReplicaSet::Learner& learner : set.learners) {
      if (!nodes_[learner.server].up) continue;
      nodes_[learner.server].data[p] = nodes_[set.primary].data[p];
      learned_.insert({p, learner.server, learner.since});
      reports_.push_back({p, set.primary, nodes_[set.primary].incarnation, learner.server,
                          nodes_[learner.server].incarnation, nodes_[set.primary].adopted});
    }
  }

  // Delivers a report that may be old. Reports about earlier incarnations are ignored.
  void ReportSome() {
    if (reports_.empty()) return;
    const size_t i = random_() % reports_.size();
    const Report report = reports_[i];
    reports_.erase(reports_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!nodes_[report.primary].known ||
        nodes_[report.primary].incarnation != report.primary_incarnation)
      return;
    if (!nodes_[report.learner].known ||
        nodes_[report.learner].incarnation != report.learner_incarnation)
      return;
    CaughtUp(report.partition, report.primary, report.learner, report.adopted, placement_);
  }

  void Push() {
    for (uint32_t p = 0; p < partitions_; ++p) {
      const ReplicaSet& set = placement_.partitions[p];
      if (set.primary == kNoServer || set.confirm_since > nodes_[set.primary].confirmed) continue;
      bool all_up = nodes_[set.primary].up;
      for (const ServerNumber backup : set.backups) all_up = all_up && nodes_[backup].up;
      // The primary also waits for learners that have caught up.
      Servers learned;
      for (const ReplicaSet::Learner& learner : set.learners) {
        if (!learned_.contains({p, learner.server, learner.since})) continue;
        learned.push_back(learner.server);
        all_up = all_up && nodes_[learner.server].up;
      }
      if (!all_up) continue;
      ++acknowledged_[p];
      for (const ServerNumber learner : learned) nodes_[learner].data[p] = acknowledged_[p];
      nodes_[set.primary].data[p] = acknowledged_[p];
      for (const ServerNumber backup : set.backups) nodes_[backup].data[p] = acknowledged_[p];
    }
  }

  void Step() {
    std::vector<PlacementServer> servers;
    for (uint32_t s = 0; s < nodes_.size(); ++s) {
      if (!nodes_[s].known) continue;
      servers.push_back({s, nodes_[s].draining, nodes_[s].adopted});
      servers.back().settled = calm_ || random_() % 4 != 0;
    }
    PlacementStep(servers, replicas_, true, placement_);
  }

  void Check(const std::string& after) {
    ASSERT_GE(placement_.epoch, last_epoch_);
    last_epoch_ = placement_.epoch;
    std::map<ServerNumber, uint32_t> learns;
    std::map<ServerNumber, uint32_t> feeds;
    for (uint32_t p = 0; p < partitions_; ++p) {
      SCOPED_TRACE(absl::StrCat("partition ", p, " after ", after));
      const ReplicaSet& set = placement_.partitions[p];
      Servers members = set.backups;
      if (set.primary != kNoServer) members.push_back(set.primary);
      for (const ServerNumber s : members) {
        ASSERT_EQ(nodes_[s].data[p], acknowledged_[p]) << "server " << s << " is not in sync";
        ASSERT_TRUE(nodes_[s].known);
      }
      if (members.empty()) {
        ASSERT_FALSE(set.last_in_sync.empty()) << "no server with the data is left";
      }
      for (const ServerNumber s : set.last_in_sync)
        ASSERT_EQ(nodes_[s].data[p], acknowledged_[p]) << "server " << s;
      for (const ServerNumber s : set.fallbacks) {
        ASSERT_TRUE(nodes_[s].known);
        ASSERT_FALSE(set.InSync(s));
        ASSERT_NE(std::find(set.last_in_sync.begin(), set.last_in_sync.end(), s),
                  set.last_in_sync.end());
      }
      ASSERT_EQ(set.IsUnavailable(), members.empty() && set.yielding == kNoServer);
      ASSERT_TRUE(!set.IsUnavailable() || set.fallbacks.empty());
      ASSERT_TRUE(!set.IsUnconfirmed() || set.primary == kNoServer || set.confirm_since > 0);
      if (set.yielding != kNoServer) {
        ASSERT_EQ(set.primary, kNoServer);
        ASSERT_FALSE(set.backups.empty());
        ASSERT_TRUE(nodes_[set.yielding].known) << "the yielding primary is gone";
        ASSERT_EQ(nodes_[set.yielding].data[p], acknowledged_[p]);
      }
      for (const ReplicaSet::Learner& learner : set.learners) {
        members.push_back(learner.server);
        ++learns[learner.server];
        ++feeds[set.primary];
        ASSERT_TRUE(nodes_[learner.server].known);
      }
      ASSERT_EQ(std::set<ServerNumber>(members.begin(), members.end()).size(), members.size());
      ASSERT_LE(set.primary_since, placement_.epoch);
    }
    for (const auto& [server, count] : learns) ASSERT_LE(count, kMaxLearnersPerServer) << server;
    for (const auto& [server, count] : feeds) ASSERT_LE(count, kMaxLearnersPerServer) << server;
  }

  std::mt19937 random_;
  const uint32_t partitions_;
  const uint32_t replicas_;
  std::vector<Node> nodes_;
  std::vector<int64_t> acknowledged_;
  // Partition, learner and its `since`, for learners that have caught up.
  std::set<std::tuple<uint32_t, ServerNumber, uint64_t>> learned_;
  std::vector<Report> reports_;
  Placement placement_;
  uint64_t last_epoch_ = 0;
  // No more random events.
  bool calm_ = false;
};

TEST(PlacementStormTest, NoOrderOfEventsLosesAnAcknowledgedPush) {
  const char* const seeds = std::getenv("PAWL_PLACEMENT_SEEDS");
  const uint32_t count = seeds == nullptr ? 300 : static_cast<uint32_t>(std::atoi(seeds));
  for (uint32_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const uint32_t servers = 1 + seed % 6;
    Storm storm(seed, servers, 4 + seed % 29, 1 + seed / 6 % std::min(servers, 3u));
    for (int event = 0; event < 400; ++event) {
      storm.Event();
      if (testing::Test::HasFatalFailure()) return;
    }
    storm.Calm();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace pawl
