#include "deploy/pawlctl/commands/report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client_lib/evaluation/evaluation_scores.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/event_report.h"
#include "scheduler/status/digest.h"
#include "scheduler/status/evaluation_json.h"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

std::string RoleName(Role role) {
  switch (role) {
    case SERVER_ROLE:
      return "server";
    case WORKER_ROLE:
      return "worker";
    case CLIENT_ROLE:
      return "client";
    default:
      return "unknown";
  }
}

bool IsNumber(const std::string& cell) {
  return !cell.empty() && std::all_of(cell.begin(), cell.end(), [](char c) {
    return absl::ascii_isdigit(c) || c == '.' || c == ',' || c == '-';
  });
}

Json CountersJson(const ServerCounters& counters) {
  return {{"pushes_applied", counters.pushes_applied()},
          {"pushes_deduplicated", counters.pushes_deduplicated()},
          {"pushes_late", counters.pushes_late()},
          {"requests_refused", counters.requests_refused()},
          {"staleness_max", counters.staleness_max()},
          {"rows", counters.rows()},
          {"parameter_bytes", counters.parameter_bytes()},
          {"waiting_calls", counters.waiting_calls()},
          {"keys_pulled", counters.keys_pulled()},
          {"keys_pushed", counters.keys_pushed()},
          {"retained_replicas", counters.retained_replicas()},
          {"retained_bytes", counters.retained_bytes()},
          {"pulls_beyond_bound", counters.pulls_beyond_bound()},
          {"files_damaged", counters.files_damaged()},
          {"files_repaired", counters.files_repaired()},
          {"snapshot_bytes_sent", counters.snapshot_bytes_sent()},
          {"catch_up_bytes_sent", counters.catch_up_bytes_sent()}};
}

// How good the predictions are as probabilities.
bool IsOfProbabilities(const EvaluationScore& score) {
  // Without the name of a further label, which may have a slash.
  absl::string_view name = score.name;
  name.remove_prefix(name.rfind('/') + 1);
  return name == "normalized_entropy" || name == "calibration";
}

// The numbers of partitions in which a server has each role.
struct Roles {
  uint32_t primary = 0;
  uint32_t backup = 0;
  uint32_t learner = 0;
};

// By node.
std::map<std::string, Roles> RolesOf(const RoutingTable* routing) {
  std::map<std::string, Roles> roles;
  if (routing == nullptr) return roles;
  std::vector<Roles> by_server(static_cast<size_t>(routing->servers_size()));
  const auto count = [&](uint32_t server, uint32_t Roles::*role) {
    if (server < by_server.size()) ++(by_server[server].*role);
  };
  for (const uint32_t server : routing->primary()) count(server, &Roles::primary);
  for (const PartitionReplicas& replicas : routing->replicas()) {
    for (const uint32_t server : replicas.backups()) count(server, &Roles::backup);
    for (const uint32_t server : replicas.learners()) count(server, &Roles::learner);
  }
  for (size_t i = 0; i < by_server.size(); ++i)
    roles[routing->servers(static_cast<int>(i)).node()] = by_server[i];
  return roles;
}

// How many replicas the partitions have.
struct Redundancy {
  uint32_t without_primary = 0;
  // Partitions with fewer in-sync replicas than the job wants.
  uint32_t with_fewer_replicas = 0;
  uint32_t learners = 0;
};

Redundancy RedundancyOf(const Job& job, const RoutingTable& routing) {
  Redundancy redundancy;
  const uint32_t wanted = std::max(job.replicas(), 1u);
  for (int p = 0; p < routing.primary_size(); ++p) {
    const bool has_primary = routing.primary(p) < static_cast<uint32_t>(routing.servers_size());
    const PartitionReplicas replicas =
        p < routing.replicas_size() ? routing.replicas(p) : PartitionReplicas();
    redundancy.without_primary += !has_primary;
    redundancy.with_fewer_replicas +=
        (has_primary ? 1u : 0u) + static_cast<uint32_t>(replicas.backups_size()) < wanted;
    redundancy.learners += static_cast<uint32_t>(replicas.learners_size());
  }
  return redundancy;
}

std::string RedundancyText(const Job& job, const RoutingTable& routing) {
  const Redundancy redundancy = RedundancyOf(job, routing);
  std::string text = absl::StrCat(std::max(job.replicas(), 1u), " of each of ",
                                  FormatCount(routing.primary_size()), " partitions");
  if (redundancy.with_fewer_replicas > 0)
    absl::StrAppend(&text, "; ", redundancy.with_fewer_replicas, " have fewer now");
  if (redundancy.without_primary > 0)
    absl::StrAppend(&text, "; ", redundancy.without_primary, " have no primary now");
  if (redundancy.learners > 0) absl::StrAppend(&text, "; ", redundancy.learners, " being copied");
  return text;
}

// The ranks that the others wait for, or will. Empty: none is behind.
std::string SlowestRanksText(const GetStatusResponse& status) {
  constexpr size_t kNamed = 3;
  if (status.state() != RUNNING || status.job().consistency().mode() == ASYNC) return "";
  std::map<uint32_t, std::string> nodes;
  for (const NodeStatus& node : status.nodes()) {
    if (node.role() != WORKER_ROLE || node.gone()) continue;
    for (const uint32_t rank : node.logical_workers()) nodes[rank] = node.node();
  }
  // A rank may be in the progress of several workers: it had ended these steps, and more since.
  std::map<uint32_t, uint64_t> steps;
  for (const NodeStatus& node : status.nodes()) {
    for (const RankProgress& rank : node.worker().ranks())
      steps[rank.rank()] = std::max(steps[rank.rank()], rank.steps());
  }
  if (steps.empty()) return "";
  const auto by_steps = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end(), by_steps);
  if (least->second == most->second) return "";
  std::vector<std::string> behind;
  size_t count = 0;
  for (const auto& [rank, ended] : steps) {
    if (ended != least->second || ++count > kNamed) continue;
    const auto node = nodes.find(rank);
    behind.push_back(
        absl::StrCat(rank, " (", node == nodes.end() ? "no worker" : node->second, ")"));
  }
  return absl::StrCat(count > 1 ? "ranks " : "rank ", absl::StrJoin(behind, ", "),
                      count > kNamed ? absl::StrCat(" and ", count - kNamed, " more have ")
                      : count > 1    ? " have "
                                     : " has ",
                      "ended ", FormatCount(least->second), " steps; the fastest has ended ",
                      FormatCount(most->second));
}

std::string PushWaitText(const Job& job, const PushWait& wait) {
  switch (wait.reason()) {
    case NO_PRIMARY:
      return absl::StrCat("to ", wait.text(), ": no server can serve them now");
    case TOO_FEW_IN_SYNC:
      return absl::StrCat("to ", wait.text(), ": min_in_sync is ", job.min_in_sync(),
                          ", and fewer replicas are in sync");
    case ROUTING_NOT_CONFIRMED:
      return absl::StrCat("to ", wait.text(),
                          ": their primaries have not confirmed the routing yet");
    default:
      return absl::StrCat("to ", wait.text());
  }
}

// "128 x 64" or "17 a row".
std::string ShapeText(const TableSpec& table) {
  return table.kind() == DENSE ? absl::StrJoin(table.shape(), " x ")
                               : absl::StrCat(table.row_width(), " a row");
}

std::string OptimizerName(const Optimizer& optimizer) {
  const google::protobuf::OneofDescriptor* const kind =
      Optimizer::descriptor()->FindOneofByName("kind");
  const google::protobuf::FieldDescriptor* const field =
      optimizer.GetReflection()->GetOneofFieldDescriptor(optimizer, kind);
  return field == nullptr ? "none" : field->name();
}

std::string WallClockText(uint64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(static_cast<int64_t>(unix_ms)),
                          absl::LocalTimeZone());
}

// Unusual states of the connections of the scheduler and the nodes, and the certificate that
// expires first.
std::vector<std::string> SecurityTexts(const GetStatusResponse& status) {
  std::vector<std::pair<std::string, SecurityReport>> processes = {
      {"scheduler", status.security()}};
  for (const NodeStatus& node : status.nodes()) {
    if (!node.gone()) processes.emplace_back(node.node(), node.security());
  }
  if (!status.security().tls())
    return {"none: connections are neither encrypted nor authenticated"};
  const auto first =
      std::min_element(processes.begin(), processes.end(), [](const auto& one, const auto& other) {
        // 0 of a process with a token, or one that has not reported yet, is the largest.
        return static_cast<uint64_t>(one.second.certificate_expires() - 1) <
               static_cast<uint64_t>(other.second.certificate_expires() - 1);
      });
  std::vector<std::string> texts = {
      absl::StrCat("TLS; the first certificate to expire is that of ", first->first, ", at ",
                   absl::FormatTime("%Y-%m-%d %H:%M UTC",
                                    absl::FromUnixSeconds(first->second.certificate_expires()),
                                    absl::UTCTimeZone()))};
  for (const auto& [name, security] : processes) {
    if (!security.reload_failure().empty()) {
      texts.push_back(absl::StrCat(
          name, " does not use the new files in its --tls_dir: ", security.reload_failure()));
    }
    if (security.refused_calls() > 0) {
      texts.push_back(absl::StrCat(name, " has refused ", FormatCount(security.refused_calls()),
                                   " calls because of the callers' certificates or tokens"));
    }
    if (security.delayed_calls() > 0) {
      texts.push_back(absl::StrCat(name, " has delayed ", FormatCount(security.delayed_calls()),
                                   " calls and refused ", FormatCount(security.calls_over_quota()),
                                   " because of their callers' quotas"));
    }
  }
  return texts;
}

Json SecurityJson(const SecurityReport& security) {
  return {{"tls", security.tls()},
          {"certificate_expires", security.certificate_expires()},
          {"reload_failure", security.reload_failure()},
          {"refused_calls", security.refused_calls()},
          {"connections", security.connections()},
          {"refused_connections", security.refused_connections()},
          {"delayed_calls", security.delayed_calls()},
          {"calls_over_quota", security.calls_over_quota()}};
}

// Named lines of text.
class NamedLines {
 public:
  // `name` is empty in the second and further lines of one subject.
  void Add(absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text_, name, std::string(14 - std::min<size_t>(14, name.size()), ' '), value,
                    "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void AddNodeLines(const GetStatusResponse& status, const RoutingTable* routing, NamedLines& lines) {
  uint32_t servers = 0, workers = 0, standby = 0, draining = 0;
  for (const NodeStatus& node : status.nodes()) {
    if (node.gone()) continue;
    servers += node.role() == SERVER_ROLE;
    workers += node.role() == WORKER_ROLE;
    standby += node.standby();
    draining += node.draining();
  }
  lines.Add("nodes",
            absl::StrCat(
                servers, " servers, ", workers, " workers",
                draining > 0 ? absl::StrCat("; ", draining, " are leaving") : "",
                standby > 0 ? absl::StrCat("; ", standby, " standby servers wait for pawlctl scale")
                            : ""));
  if (routing != nullptr) lines.Add("replicas", RedundancyText(status.job(), *routing));
  for (const PushWait& wait : status.push_waits())
    lines.Add("pushes wait", PushWaitText(status.job(), wait));
  for (const std::string& one : SecurityTexts(status)) lines.Add("security", one);
  for (const NodeStatus& node : status.nodes()) {
    if (!node.has_disk_failure()) continue;
    lines.Add("disk", absl::StrCat(node.node(), " has not been able to write its log for ",
                                   FormatSeconds(node.disk_failure().lasts_ms() / 1000.0), ": ",
                                   node.disk_failure().reason()));
  }
  for (const NodeStatus& node : status.nodes()) {
    if (node.gone() || node.server().retained_replicas() == 0) continue;
    lines.Add("retained",
              absl::StrCat(node.node(), " retains ", FormatCount(node.server().retained_replicas()),
                           " replicas, ", FormatCount(node.server().retained_bytes()),
                           " bytes, until others have them"));
  }
}

void AddMoveLines(const MovesStatus& moves, NamedLines& lines) {
  if (moves.replicas_left() > 0 || moves.replicas_moved() > 0 || moves.handovers_left() > 0)
    lines.Add("moves", MovesText(moves));
  if (moves.sharing_a_zone() > 0) {
    lines.Add(
        "zones",
        absl::StrCat(moves.sharing_a_zone(),
                     " partitions have two replicas in one zone: there are not enough zones"));
  }
}

void AddTrainingLines(const GetStatusResponse& status, NamedLines& lines) {
  lines.Add("steps", status.steps_total() > 0 ? absl::StrCat(FormatCount(status.steps()), " of ",
                                                             FormatCount(status.steps_total()))
                                              : FormatCount(status.steps()));
  if (const std::string slowest = SlowestRanksText(status); !slowest.empty())
    lines.Add("slowest", slowest);
  lines.Add("samples", FormatCount(status.samples()));
  if (status.train_s() > 0) {
    lines.Add("training",
              absl::StrCat(FormatSeconds(status.train_s()), ", ",
                           FormatCount(static_cast<uint64_t>(static_cast<double>(status.samples()) /
                                                             status.train_s())),
                           " samples/s"));
  }
  if (status.samples() > 0) lines.Add("loss", FormatValue(status.loss()));
  if (!status.evaluations().empty()) {
    const EvaluationResult& latest = *status.evaluations().rbegin();
    lines.Add("evaluation", EvaluationText(latest));
    if (const std::string text = ProbabilitiesText(latest); !text.empty())
      lines.Add("probabilities", text);
  }
  for (int i = 0; i < status.metrics_size(); ++i) {
    const UserMetric& metric = status.metrics(i);
    lines.Add(i == 0 ? "metrics" : "", absl::StrCat(metric.name(), " ", FormatValue(metric.value()),
                                                    " at step ", FormatCount(metric.step())));
  }
}

void AddCounterLines(const ServerCounters& counters, NamedLines& lines) {
  lines.Add(
      "staleness",
      absl::StrCat("at most ", counters.staleness_max(),
                   counters.pulls_beyond_bound() == 0
                       ? ""
                       : absl::StrCat("; ", FormatCount(counters.pulls_beyond_bound()),
                                      " segments pulled while a returned rank was further behind "
                                      "than the bound")));
  lines.Add("pushes", absl::StrCat(FormatCount(counters.pushes_applied()), " applied, ",
                                   FormatCount(counters.pushes_deduplicated()), " duplicates, ",
                                   FormatCount(counters.pushes_late()), " late"));
  lines.Add("parameters", absl::StrCat(FormatCount(counters.rows()), " rows, ",
                                       FormatCount(counters.parameter_bytes()), " bytes"));
  if (counters.files_damaged() > 0) {
    lines.Add("disks", absl::StrCat(FormatCount(counters.files_damaged()), " damaged files found, ",
                                    FormatCount(counters.files_repaired()), " replaced"));
  }
}

void AddCheckpointLines(const GetStatusResponse& status, NamedLines& lines) {
  const CheckpointStatus& checkpoint = status.checkpoint();
  if (!checkpoint.verifying().empty()) {
    lines.Add("verifying",
              absl::StrCat(checkpoint.verifying(), ": ", FormatCount(checkpoint.parts_verified()),
                           " of ", FormatCount(checkpoint.parts()), " parts, ",
                           FormatCount(checkpoint.bytes_verified()), " of ",
                           FormatCount(checkpoint.bytes()), " bytes"));
  }
  if (!checkpoint.restored_from().empty())
    lines.Add("restored", absl::StrCat("from ", checkpoint.restored_from()));
  if (checkpoint.completed() > 0) {
    lines.Add("checkpoint",
              absl::StrCat("step ", FormatCount(checkpoint.last_step()), " at ",
                           WallClockText(checkpoint.last_unix_ms()), " in ",
                           checkpoint.last_folder(), " (", checkpoint.completed(), " in all)"));
  }
  if (checkpoint.failed() > 0) {
    lines.Add("", absl::StrCat(checkpoint.failed(),
                               " checkpoints failed, the last one: ", checkpoint.last_failure()));
  }
  if (!checkpoint.end_folder().empty()) {
    lines.Add("", absl::StrCat("final: ", checkpoint.end_folder()));
  } else if (!checkpoint.end_failure().empty()) {
    lines.Add("", absl::StrCat("no final checkpoint: ", checkpoint.end_failure()));
  } else if (status.state() == FINISHING && checkpoint.in_progress_step() > 0) {
    lines.Add("", absl::StrCat("final, step ", FormatCount(checkpoint.in_progress_step()),
                               ", is being written"));
  }
}

}  // namespace

std::string JsonText(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> widths(rows[0].size(), 0);
  std::vector<bool> numeric(rows[0].size(), rows.size() > 1);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], rows[r][c].size());
      if (r > 0 && !rows[r][c].empty() && !IsNumber(rows[r][c])) numeric[c] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string padding(widths[c] - row[c].size(), ' ');
      if (c > 0) line += "  ";
      line += numeric[c] ? padding + row[c] : row[c] + padding;
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

std::string EvaluationText(const EvaluationResult& result) {
  std::vector<std::string> parts;
  for (const EvaluationScore& score : ScoresOf(result)) {
    if (!IsOfProbabilities(score))
      parts.push_back(absl::StrCat(score.name, " ", FormatValue(score.value)));
  }
  if (result.has_auc_error_max()) {
    parts.push_back(absl::StrCat("(auc of rounded scores, exact to ",
                                 FormatValue(result.auc_error_max()), ")"));
  }
  return absl::StrCat(absl::StrJoin(parts, "  "), "  (after step ", result.step(), ")");
}

std::string ProbabilitiesText(const EvaluationResult& result) {
  std::vector<std::string> parts;
  for (const EvaluationScore& score : ScoresOf(result)) {
    if (IsOfProbabilities(score))
      parts.push_back(absl::StrCat(score.name, " ", FormatValue(score.value)));
  }
  return absl::StrJoin(parts, "  ");
}

std::string StatusText(const GetStatusResponse& status, const RoutingTable* routing) {
  NamedLines lines;
  lines.Add("job", status.job().name());
  lines.Add("state", JobState_Name(status.state()));
  if (!status.failure().empty()) lines.Add("failure", status.failure());
  lines.Add("mode", ConsistencyMode_Name(status.job().consistency().mode()));
  AddNodeLines(status, routing, lines);
  AddMoveLines(status.moves(), lines);
  AddTrainingLines(status, lines);
  AddCounterLines(status.counters(), lines);
  AddCheckpointLines(status, lines);
  if (status.has_digest()) lines.Add("digest", DigestText(status.digest()));
  return lines.text();
}

nlohmann::ordered_json StatusJson(const GetStatusResponse& status, const RoutingTable* routing) {
  Json json = {{"job", status.job().name()},
               {"job_id", status.job_id()},
               {"state", JobState_Name(status.state())},
               {"failure", status.failure()},
               {"mode", ConsistencyMode_Name(status.job().consistency().mode())},
               {"routing_epoch", status.routing_epoch()},
               {"steps", status.steps()},
               {"steps_total", status.steps_total()},
               {"samples", status.samples()},
               {"train_s", status.train_s()},
               {"loss", status.loss()}};
  json["security"] = SecurityJson(status.security());
  json["counters"] = CountersJson(status.counters());
  json["evaluations"] = Json::array();
  for (const EvaluationResult& result : status.evaluations())
    json["evaluations"].push_back(EvaluationJson(result));
  json["metrics"] = UserMetricsJson(status);
  const CheckpointStatus& checkpoint = status.checkpoint();
  json["checkpoint"] = {
      {"completed", checkpoint.completed()},         {"failed", checkpoint.failed()},
      {"last_failure", checkpoint.last_failure()},   {"last_step", checkpoint.last_step()},
      {"last_folder", checkpoint.last_folder()},     {"last_unix_ms", checkpoint.last_unix_ms()},
      {"restored_from", checkpoint.restored_from()}, {"end_folder", checkpoint.end_folder()},
      {"end_failure", checkpoint.end_failure()}};
  if (status.has_digest()) json["digest"] = DigestText(status.digest());
  const MovesStatus& moves = status.moves();
  json["moves"] = {{"settled", moves.settled()},
                   {"replicas_left", moves.replicas_left()},
                   {"bytes_left", moves.bytes_left()},
                   {"in_progress", moves.in_progress()},
                   {"handovers_left", moves.handovers_left()},
                   {"seconds_left", moves.seconds_left()},
                   {"replicas_moved", moves.replicas_moved()},
                   {"bytes_moved", moves.bytes_moved()},
                   {"handovers", moves.handovers()},
                   {"pause_ms_p50", moves.pause_ms_p50()},
                   {"pause_ms_p99", moves.pause_ms_p99()},
                   {"pause_ms_max", moves.pause_ms_max()},
                   {"sharing_a_zone", moves.sharing_a_zone()}};
  json["scale"] = {{"servers", status.scale().servers()}, {"workers", status.scale().workers()}};
  if (routing != nullptr) {
    const Redundancy redundancy = RedundancyOf(status.job(), *routing);
    json["replicas"] = {{"wanted", std::max(status.job().replicas(), 1u)},
                        {"partitions", routing->primary_size()},
                        {"with_fewer", redundancy.with_fewer_replicas},
                        {"without_primary", redundancy.without_primary},
                        {"learners", redundancy.learners}};
  }
  Json waits = Json::array();
  for (const PushWait& wait : status.push_waits()) {
    waits.push_back(
        {{"reason", PushWaitReason_Name(wait.reason())}, {"partitions", wait.partitions()}});
  }
  json["push_waits"] = std::move(waits);
  json["nodes"] = NodesJson(status, routing);
  return json;
}

std::string NodesText(const GetStatusResponse& status, const RoutingTable* routing) {
  std::vector<std::vector<std::string>> rows = {{"NODE", "STATE", "SILENT_MS", "ADDRESS", "PROCESS",
                                                 "PRIMARY", "BACKUP", "LEARNER", "ZONE", "ROWS",
                                                 "RANKS", "STEP", "SAMPLES"}};
  const std::map<std::string, Roles> roles = RolesOf(routing);
  for (const NodeStatus& node : status.nodes()) {
    const bool server = node.role() == SERVER_ROLE, worker = node.role() == WORKER_ROLE;
    const auto found = roles.find(node.node());
    const bool has_roles = server && found != roles.end();
    const auto role = [&](uint32_t Roles::*which) {
      return has_roles ? absl::StrCat(found->second.*which) : "";
    };
    const std::string state = node.gone()       ? "gone"
                              : node.draining() ? "leaving"
                              : node.standby()  ? "standby"
                                                : "present";
    rows.push_back({node.node(), state, absl::StrCat(node.silent_ms()), node.address(),
                    node.description(), role(&Roles::primary), role(&Roles::backup),
                    role(&Roles::learner), node.zone(),
                    server ? FormatCount(node.server().rows()) : "",
                    worker ? absl::StrJoin(node.logical_workers(), " ") : "",
                    worker ? absl::StrCat(node.worker().steps_min()) : "",
                    worker ? FormatCount(node.worker().samples()) : ""});
  }
  return FormatTable(rows);
}

nlohmann::ordered_json NodesJson(const GetStatusResponse& status, const RoutingTable* routing) {
  const std::map<std::string, Roles> roles = RolesOf(routing);
  Json nodes = Json::array();
  for (const NodeStatus& node : status.nodes()) {
    Json json = {{"node", node.node()},          {"role", RoleName(node.role())},
                 {"gone", node.gone()},          {"incarnation", node.incarnation()},
                 {"address", node.address()},    {"description", node.description()},
                 {"silent_ms", node.silent_ms()}};
    json["draining"] = node.draining();
    if (node.role() == SERVER_ROLE) {
      json["zone"] = node.zone();
      json["standby"] = node.standby();
      json["partitions"] = node.partitions();
      if (const auto found = roles.find(node.node()); found != roles.end()) {
        json["primary"] = found->second.primary;
        json["backup"] = found->second.backup;
        json["learner"] = found->second.learner;
      }
      json["counters"] = CountersJson(node.server());
      json["security"] = SecurityJson(node.security());
    }
    if (node.role() == WORKER_ROLE) {
      json["logical_workers"] =
          std::vector<uint32_t>(node.logical_workers().begin(), node.logical_workers().end());
      json["ranks"] = Json::array();
      for (const RankProgress& rank : node.worker().ranks())
        json["ranks"].push_back({{"rank", rank.rank()}, {"steps", rank.steps()}});
      json["steps_min"] = node.worker().steps_min();
      json["steps_max"] = node.worker().steps_max();
      json["samples"] = node.worker().samples();
      json["loss"] = node.worker().loss();
    }
    nodes.push_back(std::move(json));
  }
  return nodes;
}

std::string TablesText(const ListTablesResponse& tables) {
  std::vector<std::vector<std::string>> rows = {{"ID", "NAME", "KIND", "SHAPE", "OPTIMIZER"}};
  for (const TableSpec& table : tables.tables()) {
    rows.push_back({absl::StrCat(table.id()), table.name(), TableKind_Name(table.kind()),
                    ShapeText(table), OptimizerName(table.optimizer())});
  }
  return FormatTable(rows);
}

nlohmann::ordered_json TablesJson(const ListTablesResponse& tables) {
  Json list = Json::array();
  for (const TableSpec& table : tables.tables()) {
    Json json = {
        {"id", table.id()}, {"name", table.name()}, {"kind", TableKind_Name(table.kind())}};
    if (table.kind() == DENSE) {
      json["shape"] = std::vector<uint64_t>(table.shape().begin(), table.shape().end());
    } else {
      json["row_width"] = table.row_width();
    }
    json["optimizer"] = OptimizerName(table.optimizer());
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace pawl
