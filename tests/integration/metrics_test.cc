// Scrapes the metrics of a running cluster over HTTP, as Prometheus does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/plain_client.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{20};

// Returns a connected socket whose reads time out after `limit`.
int ConnectTo(int port, std::chrono::seconds limit) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  timeval read_limit = {static_cast<time_t>(limit.count()), 0};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &read_limit, sizeof(read_limit));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return descriptor;
}

// Returns the response to GET /metrics with headers; empty if there is none within `limit`.
std::string Scrape(int port, std::chrono::seconds limit = kTimeout) {
  const int descriptor = ConnectTo(port, limit);
  std::string answer;
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  if (send(descriptor, request.data(), request.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t count = 0; (count = recv(descriptor, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(count));
    }
  }
  close(descriptor);
  return answer;
}

// Returns the samples by name and labels. Every line must be a comment or a sample.
std::map<std::string, double> Parse(const std::string& answer) {
  std::map<std::string, double> samples;
  const size_t body = answer.find("\r\n\r\n");
  EXPECT_NE(answer.find(" 200 "), std::string::npos) << answer;
  EXPECT_NE(body, std::string::npos) << answer;
  if (body == std::string::npos) return samples;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(answer).substr(body + 4), '\n', absl::SkipWhitespace())) {
    if (line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    const bool is_sample = space != line.npos && absl::SimpleAtod(line.substr(space + 1), &value);
    EXPECT_TRUE(is_sample) << line;
    if (is_sample) samples[std::string(line.substr(0, space))] = value;
  }
  return samples;
}

// The port in the log; 0 if there is none.
int MetricsPort(const std::string& log, const std::string& scheme = "http") {
  const std::string before = absl::StrCat("metrics at ", scheme, "://127.0.0.1:");
  const size_t at = log.find(before);
  int port = 0;
  if (at == std::string::npos) return 0;
  const std::string rest = log.substr(at + before.size());
  return absl::SimpleAtoi(rest.substr(0, rest.find('/')), &port) ? port : 0;
}

using MetricsTest = ClusterTest;

TEST_F(MetricsTest, RunningClusterServesMetrics) {
  ProcessClusterOptions options;
  options.job = "name: 'metrics' seed: 3 partitions: 8 consistency { mode: ASYNC }";
  options.servers = 2;
  options.flags["scheduler"] = {"--metrics_listen=127.0.0.1:0"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const int port = MetricsPort(cluster->Log("scheduler"));
  ASSERT_GT(port, 0) << cluster->Log("scheduler");
  auto client = PlainClient::Join(cluster->scheduler_address());
  ASSERT_TRUE(client.ok()) << client.status();
  const TableSpec spec = LedgerTable("t", 1);
  const auto table = (*client)->CreateTable(spec);
  ASSERT_TRUE(table.ok()) << table.status();
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<float> gradients(keys.size(), 1.0f);
  ASSERT_TRUE((*client)->PushRows(*table, keys, gradients).ok());
  const auto counted = cluster->WaitFor(
      [](const GetStatusResponse& status) { return status.counters().keys_pushed() == 10; },
      kTimeout);
  ASSERT_TRUE(counted.ok()) << counted.status();

  std::map<std::string, double> samples = Parse(Scrape(port));
  EXPECT_EQ(samples["pawl_job_state{state=\"RUNNING\"}"], 1);
  EXPECT_EQ(samples["pawl_servers{state=\"active\"}"], 2);
  EXPECT_EQ(samples["pawl_servers_wanted"], 2);
  EXPECT_GE(samples["pawl_routing_epoch"], 1);
  double pushed = 0;
  for (const char* const server : {"server-0", "server-1"}) {
    const auto of = [&](const std::string& name) {
      return samples[absl::StrCat(name, "{server=\"", server, "\"}")];
    };
    EXPECT_EQ(of("pawl_server_partitions"), 4);
    EXPECT_GT(of("pawl_server_cpu_seconds_total"), 0);
    EXPECT_GT(of("pawl_server_max_bytes_in_flight"), 0);
    EXPECT_GE(of("pawl_server_max_bytes_in_flight"), of("pawl_server_bytes_in_flight"));
    pushed += of("pawl_server_keys_pushed_total");
  }
  EXPECT_EQ(pushed, 10);
}

TEST_F(MetricsTest, MetricsOfAJobWithTlsAreNotPlaintext) {
  ProcessClusterOptions options;
  options.job = "name: 'metrics' partitions: 8";
  options.tls = true;
  options.flags["scheduler"] = {"--metrics_listen=127.0.0.1:0"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const int port = MetricsPort(cluster->Log("scheduler"), "https");
  ASSERT_GT(port, 0) << cluster->Log("scheduler");
  EXPECT_EQ(Scrape(port).find("pawl_"), std::string::npos);
}

TEST_F(MetricsTest, SilentConnectionsDoNotBlockScrapes) {
  ProcessClusterOptions options;
  options.job = "name: 'metrics' partitions: 8";
  options.flags["scheduler"] = {"--metrics_listen=127.0.0.1:0"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const int port = MetricsPort(cluster->Log("scheduler"));
  // More connections than threads: silent ones and one that stops within its request.
  std::vector<int> half_open;
  for (int i = 0; i < 12; ++i) half_open.push_back(ConnectTo(port, kTimeout));
  ASSERT_EQ(send(half_open[0], "GET /met", 8, MSG_NOSIGNAL), 8);
  const std::string answer = Scrape(port, std::chrono::seconds(10));
  EXPECT_NE(answer.find(" 200 "), std::string::npos) << answer;
  for (const int descriptor : half_open) close(descriptor);
}

TEST_F(MetricsTest, SchedulerReportsAnUnavailableMetricsPort) {
  ProcessClusterOptions options;
  options.job = "name: 'metrics' partitions: 8";
  options.flags["scheduler"] = {"--metrics_listen=127.0.0.1:0"};
  ProcessCluster* const first = StartCluster(options);
  ASSERT_NE(first, nullptr);
  const int taken = MetricsPort(first->Log("scheduler"));
  options.flags["scheduler"] = {absl::StrCat("--metrics_listen=127.0.0.1:", taken)};
  const auto second = ProcessCluster::Start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(absl::StrCat("--metrics_listen=127.0.0.1:", taken)),
            absl::string_view::npos)
      << second.status();
}

}  // namespace
}  // namespace pawl
