// The wire is plain protobuf over gRPC: a program that has only the generated classes pushes, pulls
// and takes steps.
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "tests/harness/plain_client.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

TableSpec Rows(const std::string& name, float learning_rate) {
  TableSpec spec = WithSgd(SparseTableSpec(name, 3), learning_rate);
  spec.mutable_initializer()->mutable_constant()->set_value(10.0f);
  return spec;
}

class PlainGrpcTest : public ClusterTest {
 protected:
  ProcessCluster* StartServing(const std::string& consistency, uint32_t servers, uint32_t workers) {
    ProcessClusterOptions options;
    options.job = "name: 'plain' seed: 3 partitions: 8 logical_workers: 1 consistency { " +
                  consistency + " }";
    options.servers = servers;
    options.expected_workers = workers;
    return StartCluster(options);
  }
};

TEST_F(PlainGrpcTest, FreeRunningClientPushesAndPulls) {
  ProcessCluster* const cluster = StartServing("mode: ASYNC", 2, 0);
  ASSERT_NE(cluster, nullptr);
  auto client = PlainClient::Join(cluster->scheduler_address());
  ASSERT_TRUE(client.ok()) << client.status();
  auto table = (*client)->CreateTable(Rows("rows", 0.5f));
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<uint64_t> keys;
  std::vector<float> gradients;
  for (uint64_t i = 0; i < 50; ++i) {
    keys.push_back(Mix64(i));
    for (int j = 0; j < 3; ++j) gradients.push_back(static_cast<float>(i));
  }
  ASSERT_TRUE((*client)->PushRows(*table, keys, gradients).ok());
  keys.push_back(12345);
  const auto rows = (*client)->PullRows(*table, keys);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ((*rows)[3 * i], 10.0f - 0.5f * static_cast<float>(i));
  // A row without a push has its initial value.
  EXPECT_EQ(rows->back(), 10.0f);
}

TEST_F(PlainGrpcTest, RepeatedPushIsAnsweredAndNotApplied) {
  ProcessCluster* const cluster = StartServing("mode: ASYNC", 1, 0);
  ASSERT_NE(cluster, nullptr);
  auto client = PlainClient::Join(cluster->scheduler_address());
  ASSERT_TRUE(client.ok()) << client.status();
  auto table = (*client)->CreateTable(Rows("rows", 1.0f));
  ASSERT_TRUE(table.ok()) << table.status();
  const uint32_t partition = PartitionOf(table->id(), 7, (*client)->partitions());
  PushRequest request;
  *request.mutable_header() = (*client)->ClientHeader();
  *request.add_segments() = PlainClient::Segment(*table, partition, 0, {7}, {1, 2, 3});
  for (int attempt = 0; attempt < 3; ++attempt) {
    PushResponse response;
    const grpc::Status status = (*client)->Push(0, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.accepted(), attempt == 0 ? 1u : 0u);
    EXPECT_EQ(response.deduplicated(), attempt == 0 ? 0u : 1u);
  }
  EXPECT_EQ((*client)->PullRows(*table, {7}).value(), std::vector<float>({9, 8, 7}));
  EXPECT_EQ((*client)->Inspect().value()[0].counters().pushes_deduplicated(), 2u);
}

TEST_F(PlainGrpcTest, LogicalWorkerTakesStepsOnAllServers) {
  ProcessCluster* const cluster = StartServing("mode: SYNC", 2, 1);
  ASSERT_NE(cluster, nullptr);
  auto client = PlainClient::Join(cluster->scheduler_address(), WORKER_ROLE, {0});
  ASSERT_TRUE(client.ok()) << client.status();
  auto table = (*client)->CreateTable(Rows("rows", 1.0f));
  ASSERT_TRUE(table.ok()) << table.status();
  const uint64_t key = 99;
  const uint32_t partition = PartitionOf(table->id(), key, (*client)->partitions());
  const uint32_t server = (*client)->routing().primary(partition);
  const auto pull = [&](uint64_t step) {
    PullRequest request;
    *request.mutable_header() = (*client)->WorkerHeader(0, step);
    PullSegment& segment = *request.add_segments();
    segment.set_table(table->id());
    segment.set_partition(partition);
    segment.set_keys(PlainClient::PackKeys({key}));
    PullResponse response;
    const grpc::Status status = (*client)->Pull(server, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return PlainClient::UnpackValues(response.results(0).values());
  };
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(pull(step), std::vector<float>(3, 10.0f - static_cast<float>(step)));
    PushRequest push;
    *push.mutable_header() = (*client)->WorkerHeader(0, step);
    *push.add_segments() = PlainClient::Segment(*table, partition, 0, {key}, {1, 1, 1});
    ASSERT_TRUE((*client)->Push(server, push).ok());
    // Not applied before the step has ended.
    EXPECT_EQ(pull(step), std::vector<float>(3, 10.0f - static_cast<float>(step)));
    EndStepRequest end;
    *end.mutable_header() = (*client)->WorkerHeader(0, step);
    for (int s = 0; s < (*client)->routing().servers_size(); ++s)
      ASSERT_TRUE((*client)->EndStep(s, end).ok());
  }
}

}  // namespace
}  // namespace pawl
