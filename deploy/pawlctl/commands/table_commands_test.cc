#include "deploy/pawlctl/commands/table_commands.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/pawlctl/exit_code.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "proto/server_control.grpc.pb.h"

namespace pawl {
namespace {

constexpr uint32_t kNoPrimary = std::numeric_limits<uint32_t>::max();

// The primary of one partition.
class FakeServer final : public ServerControl::Service {
 public:
  grpc::Status Inspect(grpc::ServerContext*, const InspectRequest* request,
                       InspectResponse* response) override {
    ++calls;
    if (request->routing_epoch() > adopted_epoch)
      return {grpc::StatusCode::UNAVAILABLE, "the routing has not arrived"};
    PartitionDigest& digest = *response->add_digests();
    digest.set_table(1);
    digest.set_partition(partition);
    digest.set_crc32c(7 + partition);
    digest.set_rows(3);
    return grpc::Status::OK;
  }

  std::atomic<int> calls{0};
  std::atomic<uint64_t> adopted_epoch{std::numeric_limits<uint64_t>::max()};
  std::atomic<uint32_t> partition{0};
};

class FakeScheduler final : public Scheduler::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const GetStatusRequest*,
                         GetStatusResponse* response) override {
    response->set_state(RUNNING);
    // The job ends while partitions move.
    if (ends_after_calls > 0 && calls >= ends_after_calls) {
      response->set_state(COMPLETED);
      response->set_digest(0xabc);
    }
    return grpc::Status::OK;
  }
  grpc::Status ListTables(grpc::ServerContext*, const ListTablesRequest*,
                          ListTablesResponse* response) override {
    TableSpec& table = *response->add_tables();
    table.set_id(1);
    table.set_name("w");
    return grpc::Status::OK;
  }
  grpc::Status GetRouting(grpc::ServerContext*, const GetRoutingRequest*,
                          RoutingTable* response) override {
    // Asked for once before the digests are read and once after.
    const uint64_t call = ++calls;
    const uint64_t epoch = moves_all_the_time ? call : std::min(call, last_epoch);
    *response = routing;
    response->set_epoch(epoch);
    return grpc::Status::OK;
  }

  RoutingTable routing;
  uint64_t last_epoch = 1;
  bool moves_all_the_time = false;
  uint64_t ends_after_calls = 0;
  std::atomic<uint64_t> calls{0};
};

std::unique_ptr<grpc::Server> Start(grpc::Service& service, int& port) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  return builder.BuildAndStart();
}

class DigestTest : public testing::Test {
 protected:
  DigestTest() {
    int port = 0;
    for (uint32_t i = 0; i < 2; ++i) {
      servers_[i].partition = i;
      listening_[i] = Start(servers_[i], port);
      ServerAddress& address = *scheduler_.routing.add_servers();
      address.set_node(absl::StrCat("server-", i));
      address.set_address(absl::StrCat("127.0.0.1:", port));
      scheduler_.routing.add_primary(i);
    }
    listening_[2] = Start(scheduler_, port);
    options_.scheduler = absl::StrCat("127.0.0.1:", port);
    options_.timeout = std::chrono::seconds(20);
    options_.json = true;
    auto security = Security::Open(SecurityOptions(), kAllRoles);
    EXPECT_TRUE(security.ok());
    if (security.ok()) options_.security = *std::move(security);
  }

  int Run() {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = PrintDigest(options_);
    out_ = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    return code;
  }

  FakeServer servers_[2];
  FakeScheduler scheduler_;
  std::unique_ptr<grpc::Server> listening_[3];
  ConnectionOptions options_;
  std::string out_;
  std::string error_;
};

TEST_F(DigestTest, EachServerIsAskedOnceWhileNothingMoves) {
  EXPECT_EQ(Run(), kExitDone) << error_;
  EXPECT_NE(out_.find("digest"), std::string::npos) << out_;
  EXPECT_EQ(servers_[0].calls + servers_[1].calls, 2);
}

TEST_F(DigestTest, DigestIsReadAgainAfterPartitionsHaveMoved) {
  ASSERT_EQ(Run(), kExitDone) << error_;
  const std::string expected = out_;
  scheduler_.calls = 0;
  // The second table is newer than the first.
  scheduler_.last_epoch = 2;
  ASSERT_EQ(Run(), kExitDone) << error_;
  EXPECT_EQ(out_, expected);
  EXPECT_EQ(scheduler_.calls, 4u);
}

TEST_F(DigestTest, ServerThatHasNotAdoptedTheRoutingIsAskedAgain) {
  servers_[1].adopted_epoch = 0;
  options_.timeout = std::chrono::milliseconds(3000);
  EXPECT_EQ(Run(), kExitUnreachable);
  EXPECT_EQ(out_, "");
  EXPECT_GT(servers_[1].calls, 1);
  EXPECT_NE(error_.find("server-1"), std::string::npos) << error_;
}

TEST_F(DigestTest, PartitionsThatKeepMovingAreAnError) {
  scheduler_.moves_all_the_time = true;
  options_.timeout = std::chrono::milliseconds(3000);
  EXPECT_EQ(Run(), kExitUnreachable);
  EXPECT_EQ(out_, "");
  EXPECT_NE(error_.find("have moved"), std::string::npos) << error_;
}

TEST_F(DigestTest, DigestOfAJobThatEndsMeanwhileIsItsFinalOne) {
  scheduler_.moves_all_the_time = true;
  scheduler_.ends_after_calls = 4;
  EXPECT_EQ(Run(), kExitDone) << error_;
  EXPECT_NE(out_.find("00000abc"), std::string::npos) << out_;
  EXPECT_NE(out_.find("COMPLETED"), std::string::npos) << out_;
}

TEST_F(DigestTest, PartitionWithoutPrimaryIsAnError) {
  scheduler_.routing.set_primary(1, kNoPrimary);
  options_.timeout = std::chrono::milliseconds(3000);
  EXPECT_EQ(Run(), kExitUnreachable);
  EXPECT_EQ(out_, "");
  EXPECT_NE(error_.find("partition 1 has no primary"), std::string::npos) << error_;
}

TEST_F(DigestTest, ServerWithoutPrimariesNeedNotAnswer) {
  scheduler_.routing.set_primary(1, 0);
  listening_[1]->Shutdown();
  EXPECT_EQ(Run(), kExitDone) << error_;
}

}  // namespace
}  // namespace pawl
