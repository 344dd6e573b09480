#include "scheduler/status/metrics.h"

#include <string>

#include "absl/strings/match.h"
#include "client_lib/daemon/staleness_counts.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"

namespace pawl {
namespace {

std::string Text(const GetStatusResponse& status, const std::map<EventKind, uint64_t>& events = {},
                 const CheckpointFileCounts& checkpoint_files = {}, double state_unsaved_s = 0) {
  return prometheus::TextSerializer().Serialize(
      Metrics(status, events, checkpoint_files, state_unsaved_s));
}

bool HasLine(const std::string& text, const std::string& line) {
  return absl::StrContains("\n" + text, "\n" + line + "\n");
}

NodeStatus& AddNode(GetStatusResponse& status, const std::string& name, Role role) {
  NodeStatus& node = *status.add_nodes();
  node.set_node(name);
  node.set_role(role);
  return node;
}

TEST(MetricsTest, MetricsServeAnAutoscaler) {
  GetStatusResponse status;
  status.set_state(RUNNING);
  status.set_samples(12345);
  status.set_steps(17);
  status.set_routing_epoch(9);
  status.mutable_scale()->set_servers(3);
  status.mutable_scale()->set_workers(2);
  status.mutable_moves()->set_replicas_left(4);
  status.mutable_moves()->set_pause_ms_p99(250);
  ServerCounters& server = *AddNode(status, "server-1", SERVER_ROLE).mutable_server();
  server.set_bytes_in_flight(100);
  server.set_max_bytes_in_flight(200);
  server.set_waiting_calls(5);
  server.set_keys_pushed(70);
  server.set_cpu_s(1.5);
  NodeStatus& worker = AddNode(status, "worker-0", WORKER_ROLE);
  worker.add_logical_workers(0);
  worker.mutable_worker()->set_training_s(8);
  worker.mutable_worker()->set_waiting_s(2);
  const std::string text = Text(status, {{NODE_DIED, 3}, {PRIMARY_PROMOTED, 2}});
  for (const char* const line :
       {"pawl_job_state{state=\"RUNNING\"} 1", "pawl_job_state{state=\"FAILED\"} 0",
        "pawl_samples_total 12345", "pawl_steps 17", "pawl_servers_wanted 3",
        "pawl_workers_wanted 2", "pawl_routing_epoch 9", "pawl_replicas_left 4",
        "pawl_handover_pause_seconds{quantile=\"0.99\"} 0.25",
        "pawl_server_bytes_in_flight{server=\"server-1\"} 100",
        "pawl_server_max_bytes_in_flight{server=\"server-1\"} 200",
        "pawl_server_waiting_calls{server=\"server-1\"} 5",
        "pawl_server_keys_pushed_total{server=\"server-1\"} 70",
        "pawl_server_cpu_seconds_total{server=\"server-1\"} 1.5",
        "pawl_worker_training_seconds_total{worker=\"worker-0\"} 8",
        "pawl_worker_waiting_seconds_total{worker=\"worker-0\"} 2", "pawl_node_deaths_total 3",
        "pawl_failovers_total 2"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\n" << text;
  }
}

TEST(MetricsTest, CertificatesOfDaemonsAreShown) {
  GetStatusResponse status;
  status.mutable_security()->set_tls(true);
  status.mutable_security()->set_certificate_expires(1800000000);
  status.mutable_security()->set_refused_calls(7);
  status.mutable_security()->set_connections(12);
  status.mutable_security()->set_refused_connections(5);
  status.mutable_security()->set_closed_connections(6);
  status.mutable_security()->set_delayed_calls(4);
  status.mutable_security()->set_calls_over_quota(3);
  SecurityReport& server = *AddNode(status, "server-1", SERVER_ROLE).mutable_security();
  server.set_tls(true);
  server.set_reload_failure("key.pem is not the key of cert.pem");
  AddNode(status, "server-2", SERVER_ROLE);
  SecurityReport& worker = *AddNode(status, "worker-1", WORKER_ROLE).mutable_security();
  worker.set_tls(true);
  worker.set_certificate_expires(1700000000);
  const std::string text = Text(status, {});
  for (const char* const line :
       {"pawl_tls{node=\"scheduler\"} 1",
        "pawl_certificate_expires_timestamp_seconds{node=\"worker-1\"} 1700000000",
        "pawl_tls{node=\"server-2\"} 0",
        "pawl_certificate_expires_timestamp_seconds{node=\"scheduler\"} 1800000000",
        "pawl_certificate_reload_failed{node=\"scheduler\"} 0",
        "pawl_certificate_reload_failed{node=\"server-1\"} 1",
        "pawl_refused_calls_total{node=\"scheduler\"} 7", "pawl_connections{node=\"scheduler\"} 12",
        "pawl_connections{node=\"server-2\"} 0",
        "pawl_refused_connections_total{node=\"scheduler\"} 5",
        "pawl_closed_connections_total{node=\"scheduler\"} 6",
        "pawl_delayed_calls_total{node=\"scheduler\"} 4",
        "pawl_calls_over_quota_total{node=\"scheduler\"} 3"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\n" << text;
  }
}

TEST(MetricsTest, LatestScoresAreGauges) {
  GetStatusResponse status;
  EXPECT_FALSE(absl::StrContains(Text(status), "pawl_evaluation_score"));
  status.set_loss(0.5);
  status.set_learning_rate(0.25);
  status.set_sparse_learning_rate(0.125);
  status.mutable_counters()->set_staleness_max(3);
  status.add_evaluations()->set_auc(0.25);
  EvaluationResult& latest = *status.add_evaluations();
  latest.set_step(40);
  latest.set_auc(0.75);
  latest.set_normalized_entropy(0.875);
  const std::string text = Text(status);
  for (const char* const line :
       {"pawl_loss 0.5", "pawl_learning_rate{optimizer=\"optimizer\"} 0.25",
        "pawl_learning_rate{optimizer=\"sparse_optimizer\"} 0.125", "pawl_staleness_max_steps 3",
        "pawl_evaluation_step 40", "pawl_evaluation_score{score=\"auc\"} 0.75",
        "pawl_evaluation_score{score=\"normalized_entropy\"} 0.875"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\n" << text;
  }
  EXPECT_FALSE(absl::StrContains(text, "score=\"rmse\"")) << text;
}

TEST(MetricsTest, MetricsOfTheProgramAreGauges) {
  GetStatusResponse status;
  for (const char* const name : {"ctr", "val/loss"}) {
    UserMetric& metric = *status.add_metrics();
    metric.set_name(name);
    metric.set_step(7);
    metric.set_value(0.25);
  }
  const std::string text = Text(status);
  for (const char* const line :
       {"pawl_user_metric{name=\"ctr\"} 0.25", "pawl_user_metric{name=\"val/loss\"} 0.25"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\n" << text;
  }
}

TEST(MetricsTest, StalenessHasHistograms) {
  GetStatusResponse status;
  StalenessCounts counts;
  for (const uint64_t staleness : {0, 0, 2, 7, 1000}) counts.Add(staleness);
  counts.AddTo(*status.mutable_counters()->mutable_update_staleness());
  const std::string text = Text(status);
  for (const char* const line :
       {"pawl_update_staleness_steps_bucket{le=\"0\"} 2",
        "pawl_update_staleness_steps_bucket{le=\"2\"} 3",
        "pawl_update_staleness_steps_bucket{le=\"6\"} 3",
        "pawl_update_staleness_steps_bucket{le=\"8\"} 4",
        "pawl_update_staleness_steps_bucket{le=\"256\"} 4",
        "pawl_update_staleness_steps_bucket{le=\"+Inf\"} 5", "pawl_update_staleness_steps_count 5",
        "pawl_update_staleness_steps_sum 1009", "pawl_clock_staleness_steps_count 0"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\n" << text;
  }
}

TEST(MetricsTest, DamagedCheckpointFilesAreCounted) {
  const std::string text = Text(GetStatusResponse(), {}, {.damaged = 3, .replaced = 2});
  EXPECT_TRUE(HasLine(text, "pawl_checkpoint_files_damaged_total 3")) << text;
  EXPECT_TRUE(HasLine(text, "pawl_checkpoint_files_replaced_total 2")) << text;
}

TEST(MetricsTest, TimeWithoutASavedStateIsShown) {
  const std::string text = Text(GetStatusResponse(), {}, {}, 2.5);
  EXPECT_TRUE(HasLine(text, "pawl_state_unsaved_seconds 2.5")) << text;
}

TEST(MetricsTest, NodesAreCountedByActivity) {
  GetStatusResponse status;
  AddNode(status, "server-0", SERVER_ROLE);
  AddNode(status, "server-1", SERVER_ROLE).set_standby(true);
  AddNode(status, "server-2", SERVER_ROLE).set_draining(true);
  AddNode(status, "server-3", SERVER_ROLE).set_gone(true);
  AddNode(status, "worker-0", WORKER_ROLE).add_logical_workers(0);
  AddNode(status, "worker-1", WORKER_ROLE);
  AddNode(status, "client-0", CLIENT_ROLE);
  const std::string text = Text(status);
  for (const char* const line :
       {"pawl_servers{state=\"active\"} 1", "pawl_servers{state=\"standby\"} 1",
        "pawl_servers{state=\"draining\"} 1", "pawl_workers{state=\"active\"} 1",
        "pawl_workers{state=\"standby\"} 1", "pawl_workers{state=\"draining\"} 0"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\n" << text;
  }
  EXPECT_FALSE(absl::StrContains(text, "server-3")) << "it would be shown forever";
}

TEST(MetricsTest, FailedFinalCheckpointIsShown) {
  GetStatusResponse status;
  EXPECT_TRUE(HasLine(Text(status), "pawl_end_checkpoint_failed 0"));
  status.mutable_checkpoint()->set_end_failure("the disk is read-only");
  EXPECT_TRUE(HasLine(Text(status), "pawl_end_checkpoint_failed 1"));
}

TEST(MetricsTest, FamiliesAreUnique) {
  GetStatusResponse status;
  for (const char* const name : {"server-0", "server-1"}) AddNode(status, name, SERVER_ROLE);
  std::map<std::string, int> families;
  for (const prometheus::MetricFamily& family : Metrics(status, {}, {}, 0)) {
    EXPECT_FALSE(family.help.empty()) << family.name;
    const bool is_counter = family.type == prometheus::MetricType::Counter;
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), is_counter) << family.name;
    EXPECT_EQ(++families[family.name], 1);
  }
  EXPECT_EQ(families.count("pawl_server_waiting_calls"), 1u);
}

}  // namespace
}  // namespace pawl
