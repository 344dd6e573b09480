// A client of a fake cluster, shared by the tests of the client.
#ifndef PAWL_CLIENT_LIB_TESTING_CLIENT_FIXTURE_H_
#define PAWL_CLIENT_LIB_TESTING_CLIENT_FIXTURE_H_

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/testing/table_specs.h"
#include "client_lib/client.h"
#include "client_lib/testing/fake_cluster.h"
#include "gtest/gtest.h"

namespace pawl {

// The number of partitions of the job.
inline constexpr uint32_t kPartitions = 16;

// Has three servers.
class ClientTest : public testing::Test {
 protected:
  void Connect(ClientOptions options = {}, std::shared_ptr<Transport> transport = nullptr) {
    if (transport == nullptr) transport = cluster_.transport();
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Connect(std::move(options), std::move(transport), cluster_.control());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  void ConnectWorker() {
    ClientOptions options;
    options.role = WORKER_ROLE;
    Connect(std::move(options));
  }

  Table Sparse(const std::string& name, uint32_t width) {
    return *client_->CreateTable(SparseTableSpec(name, width)).get();
  }

  Table Dense(const std::string& name, uint64_t elements) {
    return *client_->CreateTable(DenseTableSpec(name, {elements})).get();
  }

  // Pushes one row to a fixed key.
  std::future<absl::Status> PushRow(Session& session, const Table& table,
                                    const CallOptions& options = {}) {
    return session.Push({{.table = table, .keys = key_, .gradients = ones_}}, options);
  }

  FakeCluster cluster_{3, kPartitions};
  std::unique_ptr<Client> client_;
  const std::vector<uint64_t> key_ = {42};
  const std::vector<float> ones_ = {1, 1};
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_TESTING_CLIENT_FIXTURE_H_
