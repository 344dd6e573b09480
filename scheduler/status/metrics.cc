#include "scheduler/status/metrics.h"

#include <string>
#include <utility>

#include "client_lib/daemon/staleness_counts.h"
#include "client_lib/evaluation/evaluation_scores.h"

namespace pawl {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// Collects families in the order of their first metric.
class Families {
 public:
  void Gauge(const std::string& name, const std::string& help, double value, Labels labels = {}) {
    Add(prometheus::MetricType::Gauge, name, help, std::move(labels)).gauge.value = value;
  }
  void Counter(const std::string& name, const std::string& help, double value, Labels labels = {}) {
    Add(prometheus::MetricType::Counter, name, help, std::move(labels)).counter.value = value;
  }
  void Histogram(const std::string& name, const std::string& help,
                 const StalenessHistogram& counts) {
    auto& histogram = Add(prometheus::MetricType::Histogram, name, help, {}).histogram;
    for (int i = 0; i < counts.counts_size(); ++i) {
      histogram.sample_count += counts.counts(i);
      const auto bound = static_cast<size_t>(i);
      // The serializer adds the bucket of all values.
      if (bound >= kStalenessBounds.size()) continue;
      histogram.bucket.push_back(
          {histogram.sample_count, static_cast<double>(kStalenessBounds[bound])});
    }
    histogram.sample_sum = static_cast<double>(counts.sum());
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(prometheus::MetricType type, const std::string& name,
                                const std::string& help, Labels labels) {
    const auto [it, is_new] = places_.emplace(name, families_.size());
    if (is_new) families_.push_back({name, help, type, {}});
    prometheus::ClientMetric& metric = families_[it->second].metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t> places_;
};

const char* StateOf(const NodeStatus& node) {
  if (node.draining()) return "draining";
  const bool stands_by =
      node.role() == SERVER_ROLE ? node.standby() : node.logical_workers_size() == 0;
  return stands_by ? "standby" : "active";
}

void AddSecurity(const SecurityReport& security, const std::string& node, Families& families) {
  const Labels labels = {{"node", node}};
  families.Gauge("pawl_tls", "1 if connections are encrypted and authenticated.", security.tls(),
                 labels);
  const auto number = [](uint64_t count) { return static_cast<double>(count); };
  families.Gauge("pawl_connections", "Connections to the port.", number(security.connections()),
                 labels);
  families.Counter("pawl_refused_connections_total",
                   "Connections closed because of a limit, or before a handshake began.",
                   number(security.refused_connections()), labels);
  if (!security.tls()) return;
  families.Gauge("pawl_certificate_expires_timestamp_seconds",
                 "When the certificate in --tls_dir, or its authority's, expires.",
                 static_cast<double>(security.certificate_expires()), labels);
  families.Gauge("pawl_certificate_reload_failed", "1 while the files in --tls_dir are not in use.",
                 !security.reload_failure().empty(), labels);
  families.Counter("pawl_refused_calls_total",
                   "Calls refused because of the caller's certificate or token.",
                   number(security.refused_calls()), labels);
  families.Counter(
      "pawl_closed_connections_total",
      "Connections closed because of what they cost the process, and new ones of their "
      "excluded peers.",
      number(security.closed_connections()), labels);
  families.Counter("pawl_delayed_calls_total",
                   "Calls that waited because their peer had used up its quota.",
                   number(security.delayed_calls()), labels);
  families.Counter("pawl_calls_over_quota_total",
                   "Calls refused because their peer had used up its quota.",
                   number(security.calls_over_quota()), labels);
}

void AddServer(const NodeStatus& node, Families& families) {
  AddSecurity(node.security(), node.node(), families);
  const Labels server = {{"server", node.node()}};
  const ServerCounters& counters = node.server();
  const auto number = [](uint64_t count) { return static_cast<double>(count); };
  families.Gauge("pawl_server_partitions", "Replicas of partitions on the server.",
                 node.partitions(), server);
  families.Gauge("pawl_server_parameter_bytes", "Weights and optimizer slots.",
                 number(counters.parameter_bytes()), server);
  families.Gauge("pawl_server_rows", "Rows and blocks.", number(counters.rows()), server);
  families.Gauge("pawl_server_waiting_calls",
                 "Calls that wait: for a step, for replicas, or for the log.",
                 number(counters.waiting_calls()), server);
  families.Gauge("pawl_server_bytes_in_flight", "Bytes of requests in memory.",
                 number(counters.bytes_in_flight()), server);
  families.Gauge("pawl_server_max_bytes_in_flight",
                 "Requests beyond it are refused until bytes are free.",
                 number(counters.max_bytes_in_flight()), server);
  families.Counter("pawl_server_keys_pulled_total", "Keys pulled.", number(counters.keys_pulled()),
                   server);
  families.Counter("pawl_server_keys_pushed_total", "Keys pushed.", number(counters.keys_pushed()),
                   server);
  families.Counter("pawl_server_pulls_beyond_bound_total",
                   "BOUNDED: segments of pulls answered while a rank that came back was further "
                   "behind than the bound.",
                   number(counters.pulls_beyond_bound()), server);
  families.Counter("pawl_server_files_damaged_total", "Files on disk found damaged.",
                   number(counters.files_damaged()), server);
  families.Counter("pawl_server_files_repaired_total",
                   "Damaged files that were replaced from memory or set aside.",
                   number(counters.files_repaired()), server);
  families.Counter("pawl_server_snapshot_bytes_sent_total",
                   "Bytes of snapshots, sent to replicas that learn.",
                   number(counters.snapshot_bytes_sent()), server);
  families.Counter("pawl_server_catch_up_bytes_sent_total",
                   "Bytes of changes, sent to replicas that had missed them.",
                   number(counters.catch_up_bytes_sent()), server);
  families.Counter("pawl_server_requests_refused_total", "Requests refused for their contents.",
                   number(counters.requests_refused()), server);
  families.Counter("pawl_server_cpu_seconds_total", "Processor time.", counters.cpu_s(), server);
}

void AddWorker(const NodeStatus& node, Families& families) {
  AddSecurity(node.security(), node.node(), families);
  const Labels worker = {{"worker", node.node()}};
  families.Gauge("pawl_worker_ranks", "Logical workers hosted.", node.logical_workers_size(),
                 worker);
  families.Counter("pawl_worker_samples_total", "Samples trained on.",
                   static_cast<double>(node.worker().samples()), worker);
  families.Counter("pawl_worker_training_seconds_total", "Seconds of training of all its ranks.",
                   node.worker().training_s(), worker);
  families.Counter("pawl_worker_waiting_seconds_total",
                   "Seconds that its ranks waited for pulls, pushes and other workers.",
                   node.worker().waiting_s(), worker);
}

void AddCurve(const GetStatusResponse& status, Families& families) {
  // 0: the workers do not report it.
  if (status.loss() != 0)
    families.Gauge("pawl_loss", "Mean training loss of the latest steps.", status.loss());
  if (status.has_learning_rate()) {
    families.Gauge("pawl_learning_rate", "Present learning rate.", status.learning_rate(),
                   {{"optimizer", "optimizer"}});
  }
  if (status.has_sparse_learning_rate()) {
    families.Gauge("pawl_learning_rate", "Present learning rate.", status.sparse_learning_rate(),
                   {{"optimizer", "sparse_optimizer"}});
  }
  families.Gauge("pawl_staleness_max_steps",
                 "Largest number of steps by which an answered pull was ahead of the slowest "
                 "logical worker.",
                 static_cast<double>(status.counters().staleness_max()));
  families.Histogram("pawl_clock_staleness_steps",
                     "BOUNDED and ASYNC: steps by which an answered pull was ahead of the slowest "
                     "logical worker, for each partition that it read.",
                     status.counters().clock_staleness());
  families.Histogram("pawl_update_staleness_steps",
                     "BOUNDED and ASYNC: steps of all logical workers that ended between the pull "
                     "of a step and the application of its gradients, for each partition.",
                     status.counters().update_staleness());
  for (const UserMetric& metric : status.metrics()) {
    families.Gauge("pawl_user_metric", "Latest value that the program has reported.",
                   metric.value(), {{"name", metric.name()}});
  }
  if (status.evaluations().empty()) return;
  const EvaluationResult& latest = *status.evaluations().rbegin();
  families.Gauge("pawl_evaluation_step", "Steps before the latest evaluation.",
                 static_cast<double>(latest.step()));
  for (const EvaluationScore& score : ScoresOf(latest)) {
    families.Gauge("pawl_evaluation_score", "Scores of the latest evaluation.", score.value,
                   {{"score", score.name}});
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> Metrics(const GetStatusResponse& status,
                                              const std::map<EventKind, uint64_t>& events,
                                              const CheckpointFileCounts& checkpoint_files,
                                              double state_unsaved_s) {
  Families families;
  for (const JobState state : {STARTING, RUNNING, FINISHING, COMPLETED, FAILED, STOPPED}) {
    families.Gauge("pawl_job_state", "1 for the job's present state.",
                   status.state() == state ? 1 : 0, {{"state", JobState_Name(state)}});
  }
  families.Gauge("pawl_end_checkpoint_failed",
                 "1 if the checkpoint of the job's end could not be made.",
                 status.checkpoint().end_failure().empty() ? 0 : 1);
  families.Gauge("pawl_state_unsaved_seconds",
                 "For how long the scheduler has tried to save a change of its state. Meanwhile it "
                 "announces no change, and no failover.",
                 state_unsaved_s);
  families.Counter("pawl_samples_total", "Samples of all completed steps.",
                   static_cast<double>(status.samples()));
  families.Gauge("pawl_steps", "Steps completed by all logical workers.",
                 static_cast<double>(status.steps()));
  AddCurve(status, families);
  std::map<std::string, int> servers = {{"active", 0}, {"standby", 0}, {"draining", 0}};
  std::map<std::string, int> workers = servers;
  for (const NodeStatus& node : status.nodes()) {
    if (node.gone()) continue;
    if (node.role() == SERVER_ROLE) {
      ++servers[StateOf(node)];
      AddServer(node, families);
    } else if (node.role() == WORKER_ROLE) {
      ++workers[StateOf(node)];
      AddWorker(node, families);
    }
  }
  for (const auto& [state, count] : servers) {
    families.Gauge("pawl_servers", "Present servers.", count, {{"state", state}});
  }
  for (const auto& [state, count] : workers) {
    families.Gauge("pawl_workers", "Present workers.", count, {{"state", state}});
  }
  AddSecurity(status.security(), "scheduler", families);
  families.Gauge("pawl_servers_wanted", "Wanted servers.", status.scale().servers());
  families.Gauge("pawl_workers_wanted", "Wanted workers.", status.scale().workers());
  families.Gauge("pawl_routing_epoch", "Grows with each change of the placement.",
                 static_cast<double>(status.routing_epoch()));

  const MovesStatus& moves = status.moves();
  families.Gauge("pawl_replicas_left", "Replicas still to be copied.", moves.replicas_left());
  families.Gauge("pawl_bytes_left", "Bytes of the replicas still to be copied, as far as known.",
                 static_cast<double>(moves.bytes_left()));
  for (const auto& [quantile, pause_ms] :
       {std::pair("0.5", moves.pause_ms_p50()), std::pair("0.99", moves.pause_ms_p99()),
        std::pair("1", moves.pause_ms_max())}) {
    families.Gauge("pawl_handover_pause_seconds", "Duration of the last handovers of a primary.",
                   pause_ms / 1000.0, {{"quantile", quantile}});
  }
  const auto count = [&](EventKind kind) {
    const auto it = events.find(kind);
    return it == events.end() ? 0.0 : static_cast<double>(it->second);
  };
  families.Counter("pawl_node_deaths_total", "Deaths of servers and workers.", count(NODE_DIED));
  families.Counter("pawl_node_returns_total", "Returns of servers and workers.",
                   count(NODE_RETURNED));
  families.Counter("pawl_failovers_total", "Takeovers from a primary that was gone.",
                   count(PRIMARY_PROMOTED));
  families.Counter("pawl_handovers_total", "Moves of a primary whose former server lived.",
                   count(PRIMARY_MOVED));
  families.Counter("pawl_replicas_moved_total", "Replicas copied.",
                   static_cast<double>(moves.replicas_moved()));
  families.Counter("pawl_bytes_moved_total", "Bytes copied.",
                   static_cast<double>(moves.bytes_moved()));
  families.Counter("pawl_checkpoint_files_damaged_total",
                   "Files of complete checkpoints that were found damaged.",
                   static_cast<double>(checkpoint_files.damaged));
  families.Counter("pawl_checkpoint_files_replaced_total",
                   "Damaged files whose folder has a later complete checkpoint.",
                   static_cast<double>(checkpoint_files.replaced));
  return families.Take();
}

}  // namespace pawl
