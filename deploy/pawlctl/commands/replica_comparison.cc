#include "deploy/pawlctl/commands/replica_comparison.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/report.h"
#include "scheduler/status/digest.h"

namespace pawl {
namespace {

using OrderedJson = nlohmann::ordered_json;
using State = ReplicaComparison::State;
using Replica = ReplicaComparison::Replica;

const char* Word(State state) {
  switch (state) {
    case State::kEqual:
      return "equal";
    case State::kDifferent:
      return "DIFFERENT";
    case State::kChanging:
      return "changing";
    case State::kIncomplete:
      return "incomplete";
  }
  return "";
}

// The result of one round for a partition with `expected` replicas.
State Compare(const std::vector<Replica>& replicas, size_t expected) {
  if (replicas.size() < expected || replicas.empty() || !replicas[0].primary)
    return State::kIncomplete;
  // Two replicas that differ at one index suffice, wherever the others are.
  bool differ_in_index = false;
  for (size_t i = 0; i < replicas.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (replicas[i].log_index != replicas[j].log_index) {
        differ_in_index = true;
      } else if (replicas[i].fingerprint != replicas[j].fingerprint) {
        return State::kDifferent;
      }
    }
  }
  return differ_in_index ? State::kChanging : State::kEqual;
}

}  // namespace

void ReplicaComparison::Add(const RoutingTable& routing,
                            const std::vector<FingerprintResponse>& answers) {
  for (const FingerprintResponse& answer : answers) {
    if (answer.routing_epoch() != routing.epoch()) return;
  }
  std::vector<std::map<uint32_t, const ReplicaFingerprint*>> by_server(answers.size());
  for (size_t server = 0; server < answers.size(); ++server) {
    for (const ReplicaFingerprint& replica : answers[server].replicas()) {
      by_server[server][replica.partition()] = &replica;
    }
  }
  partitions_.resize(static_cast<size_t>(routing.primary_size()));
  for (size_t p = 0; p < partitions_.size(); ++p) {
    const int index = static_cast<int>(p);
    std::vector<uint32_t> expected = {routing.primary(index)};
    if (index < routing.replicas_size()) {
      const auto& backups = routing.replicas(index).backups();
      expected.insert(expected.end(), backups.begin(), backups.end());
    }
    std::vector<Replica> found;
    for (const uint32_t server : expected) {
      if (server >= by_server.size()) continue;
      const auto replica = by_server[server].find(static_cast<uint32_t>(p));
      if (replica == by_server[server].end()) continue;
      found.push_back({routing.servers(static_cast<int>(server)).node(),
                       server == routing.primary(index), replica->second->log_index(),
                       replica->second->fingerprint()});
    }
    const State state = Compare(found, expected.size());
    Partition& partition = partitions_[p];
    // A result stays until there is a new one.
    const bool has_result = state == State::kEqual || state == State::kDifferent;
    const bool had_result =
        partition.state == State::kEqual || partition.state == State::kDifferent;
    if (!has_result && had_result) continue;
    partition.different_rounds = state == State::kDifferent ? partition.different_rounds + 1 : 0;
    partition.state = state;
    partition.replicas = std::move(found);
  }
}

bool ReplicaComparison::decided() const {
  return !empty() &&
         std::all_of(partitions_.begin(), partitions_.end(), [](const Partition& partition) {
           return partition.state == State::kEqual ||
                  partition.different_rounds >= kDifferentRounds;
         });
}

bool ReplicaComparison::all_equal() const {
  return !empty() && Count(State::kEqual) == partitions_.size();
}

size_t ReplicaComparison::Count(State state) const {
  return static_cast<size_t>(
      std::count_if(partitions_.begin(), partitions_.end(),
                    [state](const Partition& partition) { return partition.state == state; }));
}

std::string ReplicaComparison::Text() const {
  std::vector<std::vector<std::string>> rows = {
      {"PARTITION", "RESULT", "LOG_INDEX", "FINGERPRINT", "REPLICAS (* primary)"}};
  size_t replicas = 0;
  for (size_t p = 0; p < partitions_.size(); ++p) {
    const Partition& partition = partitions_[p];
    replicas += partition.replicas.size();
    const bool equal = partition.state == State::kEqual;
    const std::string names =
        absl::StrJoin(partition.replicas, "  ", [equal](std::string* out, const Replica& replica) {
          absl::StrAppend(out, replica.node, replica.primary ? "*" : "");
          if (!equal)
            absl::StrAppend(out, " ", replica.log_index, ":", DigestText(replica.fingerprint));
        });
    rows.push_back({absl::StrCat(p), Word(partition.state),
                    equal ? absl::StrCat(partition.replicas[0].log_index) : "",
                    equal ? DigestText(partition.replicas[0].fingerprint) : "", names});
  }
  std::string text =
      absl::StrCat(FormatTable(rows), FormatCount(partitions_.size()), " partitions with ",
                   FormatCount(replicas), " replicas: ", Count(State::kEqual), " equal, ",
                   Count(State::kDifferent), " different");
  if (const size_t changing = Count(State::kChanging); changing > 0) {
    absl::StrAppend(&text, ", ", changing, " not seen at the same log index");
  }
  if (const size_t incomplete = Count(State::kIncomplete); incomplete > 0) {
    absl::StrAppend(&text, ", ", incomplete, " with replicas that did not answer");
  }
  return absl::StrCat(text, "\n");
}

nlohmann::ordered_json ReplicaComparison::Json() const {
  OrderedJson json = {{"equal", all_equal()}, {"partitions", OrderedJson::array()}};
  for (size_t p = 0; p < partitions_.size(); ++p) {
    OrderedJson replicas = OrderedJson::array();
    for (const Replica& replica : partitions_[p].replicas) {
      replicas.push_back({{"node", replica.node},
                          {"primary", replica.primary},
                          {"log_index", replica.log_index},
                          {"fingerprint", DigestText(replica.fingerprint)}});
    }
    json["partitions"].push_back(
        {{"partition", p}, {"result", Word(partitions_[p].state)}, {"replicas", replicas}});
  }
  return json;
}

}  // namespace pawl
