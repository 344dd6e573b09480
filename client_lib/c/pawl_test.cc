// The C interface against real daemons.
#include "client_lib/c/pawl.h"

#include <poll.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/process/child_process.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/harness/process_cluster.h"

namespace pawl {
namespace {

using nlohmann::json;

constexpr int64_t kTimeoutMs = 60'000;
constexpr char kServeOnly[] =
    "name: 'c' partitions: 8 consistency { mode: SYNC } logical_workers: 2";
constexpr char kRows[] = R"({"name": "rows", "kind": "SPARSE", "row_width": 2,
                             "optimizer": {"sgd": {"learning_rate": 1}}})";

// Waits for the operation and releases it. Returns its code; *result gets what it returned.
int Finish(int code, pawl_call* call, std::string* result = nullptr) {
  if (code != PAWL_OK) {
    EXPECT_EQ(call, nullptr);
    return code;
  }
  code = pawl_wait(call, kTimeoutMs);
  if (code == PAWL_OK && result != nullptr) *result = pawl_result(call);
  pawl_release(call);
  return code;
}

class PawlTest : public testing::Test {
 protected:
  void Start(uint32_t workers = 0) {
    ProcessClusterOptions options;
    options.job = kServeOnly;
    options.servers = 2;
    options.expected_workers = workers;
    auto cluster = ProcessCluster::Start(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  void Connect(bool is_worker = false) {
    const pawl_options options = {.size = sizeof(options),
                                  .scheduler = cluster_->scheduler_address().c_str(),
                                  .is_worker = is_worker,
                                  .follows_assignment = is_worker};
    pawl_call* call;
    const int code = pawl_connect(&options, &client_, &call);
    ASSERT_EQ(Finish(code, call), PAWL_OK) << pawl_error();
  }

  uint32_t CreateTable(const char* spec = kRows) {
    pawl_call* call;
    std::string result;
    const int code = pawl_create_table(client_, spec, 0, &call);
    EXPECT_EQ(Finish(code, call, &result), PAWL_OK) << pawl_error();
    return json::parse(result).value("id", 0);
  }

  int Pull(pawl_session* session, const pawl_item& item) {
    pawl_call* call;
    const int code = pawl_pull(session, &item, 1, -1, 0, &call);
    return Finish(code, call);
  }

  int Push(pawl_session* session, const pawl_item& item) {
    pawl_call* call;
    const int code = pawl_push(session, &item, 1, 0, &call);
    return Finish(code, call);
  }

  void TearDown() override { pawl_disconnect(client_); }

  std::unique_ptr<ProcessCluster> cluster_;
  pawl_client* client_ = nullptr;
};

pawl_item ItemOf(uint32_t table, const std::vector<uint64_t>& keys, std::vector<float>& values,
                 uint32_t flags = 0) {
  return {.table = table,
          .flags = flags,
          .keys = keys.data(),
          .key_count = keys.size(),
          .values = values.data(),
          .value_count = values.size()};
}

TEST_F(PawlTest, PushChangesRowsThatPullReads) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Connect());
  const uint32_t table = CreateTable();
  const std::vector<uint64_t> keys = {7, UINT64_MAX, 7};
  std::vector<float> gradients = {1, 2, 3, 4, 5, 6};
  ASSERT_EQ(Push(pawl_free_running(client_), ItemOf(table, keys, gradients)), PAWL_OK)
      << pawl_error();
  std::vector<float> values(6);
  ASSERT_EQ(Pull(pawl_free_running(client_), ItemOf(table, keys, values)), PAWL_OK) << pawl_error();
  EXPECT_EQ(values, (std::vector<float>{-6, -8, -3, -4, -6, -8}));
}

TEST_F(PawlTest, ScanGivesPagesOfRowsAndSlots) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Connect());
  const uint32_t table = CreateTable(R"({"name": "rows", "kind": "SPARSE", "row_width": 2,
                                         "optimizer": {"momentum": {"learning_rate": 1,
                                                                    "momentum": 0.5}}})");
  std::vector<uint64_t> pushed;
  for (uint64_t key = 0; key < 50; ++key) pushed.push_back(key * 0x9e3779b97f4a7c15u);
  std::vector<float> gradients(pushed.size() * 2, 3);
  ASSERT_EQ(Push(pawl_free_running(client_), ItemOf(table, pushed, gradients)), PAWL_OK);
  std::set<uint64_t> found;
  for (uint32_t partition = 0; partition < 8; ++partition) {
    uint64_t keys[3];
    float values[6];
    float slots[6];
    pawl_call* call;
    json page = {{"next_key", 0}};
    while (page.contains("next_key")) {
      std::string result;
      const int code = pawl_scan(client_, table, partition, page["next_key"].get<uint64_t>(), keys,
                                 values, slots, 3, 0, &call);
      ASSERT_EQ(Finish(code, call, &result), PAWL_OK) << pawl_error();
      page = json::parse(result);
      for (int i = 0; i < page["rows"].get<int>(); ++i) {
        EXPECT_TRUE(found.insert(keys[i]).second) << keys[i];
        EXPECT_EQ(slots[2 * i + 1], 3);
        EXPECT_EQ(values[2 * i], -3);
      }
    }
  }
  EXPECT_EQ(found, std::set<uint64_t>(pushed.begin(), pushed.end()));
  pawl_call* call;
  EXPECT_EQ(pawl_scan(client_, table, 0, 0, nullptr, nullptr, nullptr, 3, 0, &call),
            PAWL_INVALID_ARGUMENT);
  uint64_t key;
  float row[2];
  const int code = pawl_scan(client_, table, 8, 0, &key, row, nullptr, 1, 0, &call);
  EXPECT_EQ(Finish(code, call), PAWL_INVALID_ARGUMENT);
}

TEST(HashTest, KeysAreThoseOfTheBuiltInModels) {
  const uint64_t column_end = 6;
  uint64_t seed = 0;
  pawl_hash64("origin", &column_end, 1, 0, &seed);
  const uint64_t ends[] = {3, 3};
  uint64_t keys[2];
  pawl_hash64("LAS", ends, 2, seed, keys);
  // The same as in worker/data/feature_key_test.cc.
  EXPECT_EQ(keys[0], 6108944475798487922u);
  EXPECT_EQ(keys[1], 250766445698304742u);
}

TEST_F(PawlTest, UniqueGivesDistinctKeysWithTheirPlaces) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Connect());
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 1000; ++i) keys.push_back(i * i % 301);
  const std::vector<uint64_t> few = {7, 7};
  const uint32_t table = CreateTable();
  const uint32_t other = CreateTable(R"({"name": "other", "kind": "SPARSE", "row_width": 2,
                      "optimizer": {"sgd": {"learning_rate": 1}}})");
  std::vector<float> no_values;
  pawl_item items[] = {ItemOf(table, keys, no_values), ItemOf(other, few, no_values)};
  std::vector<uint64_t> distinct(keys.size() + few.size());
  std::vector<int64_t> places(distinct.size());
  ASSERT_EQ(pawl_unique_items(client_, items, 2, distinct.data(), places.data()), PAWL_OK);
  const size_t count = items[0].key_count;
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(distinct.at(places[i]), keys[i]);
  EXPECT_EQ(std::set<uint64_t>(keys.begin(), keys.end()).size(), count);
  EXPECT_EQ(items[1].key_count, 1u);
  EXPECT_EQ(items[1].keys, distinct.data() + count);
  EXPECT_EQ(distinct[count], 7u);
  EXPECT_EQ(places[1000], static_cast<int64_t>(count));
  EXPECT_EQ(places[1001], static_cast<int64_t>(count));
  EXPECT_EQ(items[1].flags, static_cast<uint32_t>(PAWL_KEYS_ARE_DISTINCT));
  // Once in this order, they keep it.
  distinct.resize(count);
  pawl_item item = ItemOf(table, distinct, no_values);
  std::vector<uint64_t> again(count);
  ASSERT_EQ(pawl_unique_items(client_, &item, 1, again.data(), places.data()), PAWL_OK);
  EXPECT_EQ(again, distinct);
}

TEST_F(PawlTest, LongestTimeIsNotInThePast) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Connect());
  pawl_call* call;
  const int code = pawl_status(client_, INT64_MAX, &call);
  EXPECT_EQ(Finish(code, call), PAWL_OK) << pawl_error();
}

TEST_F(PawlTest, NullHasNoSessionsAndNoSlots) {
  EXPECT_EQ(pawl_free_running(nullptr), nullptr);
  EXPECT_EQ(pawl_rank(nullptr, 0), nullptr);
  EXPECT_EQ(pawl_slot_count(nullptr, 1), 0u);
}

TEST_F(PawlTest, DescriptorBecomesReadableWhenTheOperationHasEnded) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Connect());
  const uint32_t table = CreateTable();
  const std::vector<uint64_t> keys = {1};
  std::vector<float> values(2);
  const pawl_item item = ItemOf(table, keys, values);
  pawl_call* call;
  ASSERT_EQ(pawl_pull(pawl_free_running(client_), &item, 1, -1, 0, &call), PAWL_OK);
  pollfd poll_for = {.fd = pawl_call_fd(call), .events = POLLIN, .revents = 0};
  ASSERT_GE(poll_for.fd, 0);
  EXPECT_EQ(poll(&poll_for, 1, kTimeoutMs), 1);
  EXPECT_EQ(pawl_wait(call, 0), PAWL_OK);
  EXPECT_EQ(pawl_call_fd(call), poll_for.fd);
  pawl_release(call);
}

TEST_F(PawlTest, WrongArgumentsAreRefusedByName) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Connect());
  pawl_call* call;
  EXPECT_EQ(pawl_create_table(client_, "{\"nam\": 1}", 0, &call), PAWL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(pawl_error()).find("nam"), std::string::npos) << pawl_error();
  const std::vector<uint64_t> keys = {1};
  std::vector<float> values(2);
  EXPECT_EQ(Pull(pawl_free_running(client_), ItemOf(99, keys, values)), PAWL_NOT_FOUND);
  EXPECT_NE(std::string(pawl_error()).find("table 99"), std::string::npos) << pawl_error();
  const uint32_t table = CreateTable();
  values.resize(3);
  EXPECT_EQ(Pull(pawl_free_running(client_), ItemOf(table, keys, values)), PAWL_INVALID_ARGUMENT);
  EXPECT_EQ(Push(pawl_free_running(client_), ItemOf(table, keys, values, 64)),
            PAWL_INVALID_ARGUMENT);
  EXPECT_EQ(pawl_open_table(client_, "absent", 0, &call), PAWL_OK);
  EXPECT_EQ(Finish(PAWL_OK, call), PAWL_NOT_FOUND);
  pawl_session* const not_hosted = pawl_rank(client_, 0);
  EXPECT_EQ(not_hosted, nullptr);
  EXPECT_EQ(pawl_push(not_hosted, nullptr, 0, 0, &call), PAWL_FAILED_PRECONDITION);
  EXPECT_NE(std::string(pawl_error()).find("rank that it does not host"), std::string::npos)
      << pawl_error();
  EXPECT_EQ(pawl_give_up_ranks(client_, nullptr, 1, 0, &call), PAWL_INVALID_ARGUMENT);
  pawl_item item = ItemOf(table, keys, values);
  EXPECT_EQ(pawl_unique_items(client_, &item, 1, nullptr, nullptr), PAWL_INVALID_ARGUMENT);
  EXPECT_EQ(pawl_unique_items(client_, nullptr, 1, nullptr, nullptr), PAWL_INVALID_ARGUMENT);
  EXPECT_EQ(pawl_end_step(pawl_free_running(client_), 0, &call), PAWL_INVALID_ARGUMENT);
  EXPECT_EQ(pawl_step(pawl_free_running(client_)), 0u);
}

TEST_F(PawlTest, WorkerTakesOverRanksAndEndsTheJob) {
  ASSERT_NO_FATAL_FAILURE(Start(/*workers=*/1));
  ASSERT_NO_FATAL_FAILURE(Connect(/*is_worker=*/true));
  const uint32_t table = CreateTable();
  pawl_call* call;
  std::string result;
  int code = pawl_assignment(client_, 0, 0, &call);
  ASSERT_EQ(Finish(code, call, &result), PAWL_OK) << pawl_error();
  ASSERT_EQ(json::parse(result)["logical_workers"].size(), 2u) << result;

  const std::vector<uint64_t> keys = {5};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    code = pawl_take_over(client_, rank, 0, &call);
    ASSERT_EQ(Finish(code, call), PAWL_OK) << pawl_error();
    pawl_session* const session = pawl_rank(client_, rank);
    ASSERT_NE(session, nullptr);
    EXPECT_EQ(pawl_step(session), 0u);
    std::vector<float> gradient = {rank + 1.0f, 0};
    ASSERT_EQ(Push(session, ItemOf(table, keys, gradient)), PAWL_OK) << pawl_error();
    code = pawl_end_step(session, 0, &call);
    ASSERT_EQ(Finish(code, call), PAWL_OK) << pawl_error();
    EXPECT_EQ(pawl_step(session), 1u);
  }
  std::vector<float> values(2);
  ASSERT_EQ(Pull(pawl_rank(client_, 1), ItemOf(table, keys, values)), PAWL_OK) << pawl_error();
  EXPECT_EQ(values, (std::vector<float>{-1.5, 0}));

  ASSERT_EQ(pawl_report_progress(client_, "{\"steps_min\": 1, \"steps_max\": 1}"), PAWL_OK);
  ASSERT_EQ(pawl_log_metric(client_, "ctr", 0, 0.5), PAWL_OK) << pawl_error();
  ASSERT_EQ(pawl_log_metric(client_, "ctr", 1, 0.25), PAWL_OK) << pawl_error();
  EXPECT_EQ(pawl_log_metric(client_, "c t r", 1, 0.25), PAWL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(pawl_error()).find("'c t r' must have 1 to 128"), std::string::npos)
      << pawl_error();
  EXPECT_EQ(pawl_log_metric(client_, NULL, 1, 0.25), PAWL_INVALID_ARGUMENT);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    pawl_close_rank(client_, rank);
    EXPECT_EQ(pawl_rank(client_, rank), nullptr);
    code = pawl_finish_rank(client_, rank, "{\"steps_min\": 1, \"steps_max\": 1}", 0, &call);
    ASSERT_EQ(Finish(code, call), PAWL_OK) << pawl_error();
  }
  EXPECT_EQ(pawl_wait_for_end(client_, kTimeoutMs), PAWL_OK);
  code = pawl_status(client_, 0, &call);
  ASSERT_EQ(Finish(code, call, &result), PAWL_OK) << pawl_error();
  EXPECT_EQ(json::parse(result)["metrics"],
            json::parse(R"([{"name": "ctr", "step": "1", "value": 0.25}])"))
      << result;
  const char* description;
  ASSERT_EQ(pawl_describe(client_, &description), PAWL_OK);
  EXPECT_EQ(json::parse(description)["state"], "COMPLETED") << description;
}

TEST_F(PawlTest, DisconnectEndsConnectAndPendingOperations) {
  // Nothing listens at port 1.
  const pawl_options options = {.size = sizeof(options), .scheduler = "127.0.0.1:1"};
  pawl_call* connecting;
  ASSERT_EQ(pawl_connect(&options, &client_, &connecting), PAWL_OK);
  pawl_call* call;
  EXPECT_EQ(pawl_status(client_, 0, &call), PAWL_FAILED_PRECONDITION);
  EXPECT_EQ(pawl_free_running(client_), nullptr);
  EXPECT_EQ(pawl_wait(connecting, 0), PAWL_PENDING);
  pawl_disconnect(client_);
  client_ = nullptr;
  EXPECT_EQ(pawl_wait(connecting, 0), PAWL_CANCELLED);
  pawl_release(connecting);

  ASSERT_NO_FATAL_FAILURE(Start(/*workers=*/1));
  ASSERT_NO_FATAL_FAILURE(Connect(/*is_worker=*/true));
  // The barrier has one party of five.
  ASSERT_EQ(pawl_barrier(client_, "b", 5, 0, 0, &call), PAWL_OK);
  EXPECT_EQ(pawl_wait(call, 0), PAWL_PENDING);
  pawl_disconnect(client_);
  client_ = nullptr;
  EXPECT_EQ(Finish(PAWL_OK, call), PAWL_CANCELLED);
}

TEST_F(PawlTest, ExampleLearnsTheWeight) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(
      cluster_->AddProcess("example", "client_lib/c/example", {cluster_->scheduler_address()})
          .ok());
  ChildProcess& example = cluster_->node("example");
  ASSERT_TRUE(example.WaitUntil(Clock::Real().Now() + std::chrono::milliseconds(kTimeoutMs)));
  EXPECT_TRUE(example.Succeeded()) << cluster_->Describe();
}

}  // namespace
}  // namespace pawl
