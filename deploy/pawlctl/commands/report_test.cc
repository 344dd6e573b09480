#include "deploy/pawlctl/commands/report.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

GetStatusResponse Status() {
  GetStatusResponse status;
  status.mutable_job()->set_name("flights");
  status.mutable_job()->mutable_consistency()->set_mode(SYNC);
  status.set_state(FAILED);
  status.set_failure("server-0 died");
  status.set_steps(1220);
  status.set_steps_total(2440);
  status.set_samples(uint64_t{1} << 60);
  NodeStatus& server = *status.add_nodes();
  server.set_node("server-0");
  server.set_role(SERVER_ROLE);
  server.set_partitions(256);
  server.set_gone(true);
  NodeStatus& worker = *status.add_nodes();
  worker.set_node("worker-0");
  worker.set_role(WORKER_ROLE);
  worker.add_logical_workers(0);
  worker.add_logical_workers(2);
  status.add_evaluations()->set_auc(0.5);
  status.add_evaluations()->set_auc(0.72159);
  status.mutable_evaluations(1)->set_gauc(0.65);
  status.mutable_evaluations(1)->set_auc_error_max(0.0125);
  status.mutable_evaluations(1)->set_normalized_entropy(0.925);
  status.mutable_evaluations(1)->set_calibration(1.0625);
  for (const char* const name : {"ctr", "val/loss"}) {
    UserMetric& metric = *status.add_metrics();
    metric.set_name(name);
    metric.set_step(1200);
    metric.set_value(0.375);
  }
  status.set_digest(0xab);
  return status;
}

TEST(ReportTest, JsonWithOtherBytesThanUtf8IsText) {
  EXPECT_EQ(JsonText({{"out", "model-\xff"}}), "{\n  \"out\": \"model-\xef\xbf\xbd\"\n}");
}

TEST(ReportTest, ColumnsAreAligned) {
  EXPECT_EQ(FormatTable({{"NODE", "ROWS"}, {"server-10", "7"}, {"a", "1,000"}}),
            "NODE        ROWS\n"
            "server-10      7\n"
            "a          1,000\n");
}

TEST(ReportTest, StatusTextShowsFailureAndLatestEvaluation) {
  const std::string text = StatusText(Status());
  for (const char* part :
       {"FAILED", "server-0 died", "1,220 of 2,440", "auc 0.7216  gauc 0.6500",
        "rounded scores, exact to 0.0125", "normalized_entropy 0.9250", "calibration 1.0625",
        "0 servers, 1 workers", "000000ab", "\nmetrics       ctr 0.3750 at step 1,200\n",
        "\n              val/loss 0.3750 at step 1,200\n"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << part << " is missing in\n" << text;
  }
  EXPECT_FALSE(absl::StrContains(text, "0.5"));
}

TEST(ReportTest, StatusTextShowsCheckpoints) {
  GetStatusResponse status = Status();
  EXPECT_FALSE(absl::StrContains(StatusText(status), "checkpoint"));
  status.mutable_checkpoint()->set_completed(3);
  status.mutable_checkpoint()->set_last_step(1200);
  status.mutable_checkpoint()->set_last_folder("/c/job-step-1200");
  status.mutable_checkpoint()->set_failed(1);
  status.mutable_checkpoint()->set_last_failure("the disk is full");
  status.mutable_checkpoint()->set_restored_from("/c/job-step-600");
  const std::string text = StatusText(status);
  for (const char* part : {"step 1,200", "in /c/job-step-1200", "3 in all", "the disk is full",
                           "from /c/job-step-600"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << part << " is missing in\n" << text;
  }
}

TEST(ReportTest, StatusJsonHasAllEvaluations) {
  const nlohmann::json json = nlohmann::json::parse(StatusJson(Status()).dump());
  EXPECT_EQ(json["samples"].get<uint64_t>(), uint64_t{1} << 60);
  EXPECT_EQ(json["evaluations"].size(), 2u);
  EXPECT_EQ(json["metrics"]["val/loss"]["step"], 1200);
  EXPECT_EQ(json["metrics"]["ctr"]["value"], 0.375);
  EXPECT_FALSE(json["evaluations"][0].contains("logloss"));
  EXPECT_EQ(json["digest"], "000000ab");
  EXPECT_EQ(json["nodes"][1]["logical_workers"], (std::vector<int>{0, 2}));
}

TEST(ReportTest, StatusNamesTheRanksThatOthersWaitFor) {
  GetStatusResponse status = Status();
  status.set_state(RUNNING);
  const auto add_progress = [&](uint32_t rank, uint64_t steps) {
    RankProgress& progress = *status.mutable_nodes(1)->mutable_worker()->add_ranks();
    progress.set_rank(rank);
    progress.set_steps(steps);
  };
  for (uint32_t rank = 0; rank < 3; ++rank) add_progress(rank, 12);
  EXPECT_FALSE(absl::StrContains(StatusText(status, nullptr), "slowest"));
  add_progress(0, 13);
  const std::string text = StatusText(status, nullptr);
  EXPECT_TRUE(absl::StrContains(text,
                                "slowest       ranks 1 (no worker), 2 (worker-0) have ended 12 "
                                "steps; the fastest has ended 13"))
      << text;
  status.mutable_job()->mutable_consistency()->set_mode(ASYNC);
  EXPECT_FALSE(absl::StrContains(StatusText(status, nullptr), "slowest"));
}

TEST(ReportTest, NodesTextShowsGoneNodes) {
  const std::string text = NodesText(Status());
  EXPECT_TRUE(absl::StrContains(text, "server-0  gone")) << text;
  EXPECT_TRUE(absl::StrContains(text, "worker-0  present")) << text;
}

// server-0 is the primary of partition 0 and a learner of 1. server-1 is the backup of 0. Partition
// 2 has no replicas.
RoutingTable Routing() {
  RoutingTable routing;
  for (const char* node : {"server-0", "server-1"}) routing.add_servers()->set_node(node);
  for (const uint32_t primary : {0u, 1u, UINT32_MAX}) routing.add_primary(primary);
  routing.add_replicas()->add_backups(1);
  routing.add_replicas()->add_learners(0);
  routing.add_replicas();
  return routing;
}

TEST(ReportTest, NodesShowRolesInPartitions) {
  GetStatusResponse status = Status();
  NodeStatus& server = *status.add_nodes();
  server.set_node("server-1");
  server.set_role(SERVER_ROLE);
  const RoutingTable routing = Routing();
  const nlohmann::json json = nlohmann::json::parse(NodesJson(status, &routing).dump());
  EXPECT_EQ(json[0]["primary"], 1);
  EXPECT_EQ(json[0]["backup"], 0);
  EXPECT_EQ(json[0]["learner"], 1);
  EXPECT_EQ(json[2]["primary"], 1);
  EXPECT_EQ(json[2]["backup"], 1);
  EXPECT_FALSE(json[1].contains("primary"));
  const std::string text = NodesText(status, &routing);
  EXPECT_TRUE(absl::StrContains(text, "PRIMARY  BACKUP  LEARNER")) << text;
}

TEST(ReportTest, StatusShowsRedundancy) {
  GetStatusResponse status = Status();
  status.mutable_job()->set_replicas(2);
  const RoutingTable routing = Routing();
  EXPECT_TRUE(absl::StrContains(StatusText(status, &routing),
                                "replicas      2 of each of 3 partitions; 2 have fewer now; 1 have "
                                "no primary now; 1 being copied"))
      << StatusText(status, &routing);
  const nlohmann::json json = nlohmann::json::parse(StatusJson(status, &routing).dump());
  EXPECT_EQ(json["replicas"], (nlohmann::json{{"wanted", 2},
                                              {"partitions", 3},
                                              {"with_fewer", 2},
                                              {"without_primary", 1},
                                              {"learners", 1}}));
}

TEST(ReportTest, StatusShowsPushWaitsFailingDisksAndRetainedReplicas) {
  GetStatusResponse status = Status();
  status.mutable_job()->set_min_in_sync(2);
  PushWait& wait = *status.add_push_waits();
  wait.set_reason(TOO_FEW_IN_SYNC);
  wait.set_partitions(2);
  wait.set_text("partitions 1, 4");
  NodeStatus& node = *status.add_nodes();
  node.set_node("server-7");
  node.set_role(SERVER_ROLE);
  node.mutable_server()->set_retained_replicas(3);
  node.mutable_server()->set_retained_bytes(4096);
  node.mutable_disk_failure()->set_reason("no space left on device");
  const std::string text = StatusText(status);
  EXPECT_NE(text.find("to partitions 1, 4: min_in_sync is 2, and fewer replicas are in sync"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("server-7 retains 3 replicas, 4,096 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("no space left on device"), std::string::npos) << text;
  const nlohmann::json json = nlohmann::json::parse(StatusJson(status).dump());
  EXPECT_EQ(json["push_waits"][0]["reason"], "TOO_FEW_IN_SYNC");
}

TEST(ReportTest, StatusShowsHowConnectionsAreProtected) {
  GetStatusResponse status = Status();
  EXPECT_NE(StatusText(status).find("neither encrypted nor authenticated"), std::string::npos);

  status.mutable_security()->set_tls(true);
  status.mutable_security()->set_certificate_expires(1800000000);
  NodeStatus& node = *status.add_nodes();
  node.set_node("server-7");
  node.set_role(SERVER_ROLE);
  node.mutable_security()->set_tls(true);
  node.mutable_security()->set_certificate_expires(1700000000);
  node.mutable_security()->set_reload_failure("cert.pem has expired");
  node.mutable_security()->set_refused_calls(3);
  node.mutable_security()->set_delayed_calls(9);
  node.mutable_security()->set_calls_over_quota(8);
  const std::string text = StatusText(status);
  EXPECT_NE(text.find("the first certificate to expire is that of server-7, at 2023-11-14"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("server-7 does not use the new files in its --tls_dir: cert.pem has expired"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("server-7 has refused 3 calls"), std::string::npos) << text;
  EXPECT_NE(text.find("server-7 has delayed 9 calls and refused 8"), std::string::npos) << text;
  // A client with a token, and a worker whose certificate ends even earlier.
  NodeStatus& client = *status.add_nodes();
  client.set_node("client-3");
  client.set_role(CLIENT_ROLE);
  client.mutable_security()->set_tls(true);
  NodeStatus& worker = *status.add_nodes();
  worker.set_node("worker-2");
  worker.set_role(WORKER_ROLE);
  worker.mutable_security()->set_tls(true);
  worker.mutable_security()->set_certificate_expires(1690000000);
  EXPECT_NE(
      StatusText(status).find("the first certificate to expire is that of worker-2, at 2023-07-22"),
      std::string::npos)
      << StatusText(status);
  const nlohmann::json json = nlohmann::json::parse(StatusJson(status).dump());
  EXPECT_EQ(json["security"]["tls"], true);
}

TEST(ReportTest, TablesShowShapeOrRowWidth) {
  ListTablesResponse tables;
  TableSpec& dense = *tables.add_tables();
  dense.set_id(1);
  dense.set_name("hidden/weights");
  dense.set_kind(DENSE);
  dense.add_shape(128);
  dense.add_shape(64);
  dense.mutable_optimizer()->mutable_adam();
  TableSpec& sparse = *tables.add_tables();
  sparse.set_id(2);
  sparse.set_name("embeddings");
  sparse.set_kind(SPARSE);
  sparse.set_row_width(17);
  EXPECT_EQ(TablesText(tables),
            "ID  NAME            KIND    SHAPE     OPTIMIZER\n"
            " 1  hidden/weights  DENSE   128 x 64  adam\n"
            " 2  embeddings      SPARSE  17 a row  none\n");
  const nlohmann::json json = nlohmann::json::parse(TablesJson(tables).dump());
  EXPECT_EQ(json[0]["shape"], (std::vector<int>{128, 64}));
  EXPECT_EQ(json[1]["row_width"], 17);
}

}  // namespace
}  // namespace pawl
