// Assignments of weights and slots, and learning rates, survive the death of their server. A SYNC
// job that begins with assignments has the bits of a job that was initialized so.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/client.h"
#include "tests/harness/plain_client.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kStartTimeout{20};
constexpr uint32_t kPartitions = 8;
constexpr uint32_t kWidth = 3;
constexpr uint64_t kElements = kBlockElements + 700;
constexpr float kInitial = 0.25f;

// Different numbers with many bits.
std::vector<float> Numbers(size_t count, float first) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = first + 1.0f / static_cast<float>(i + 3);
  return numbers;
}

std::vector<uint64_t> Keys(size_t count) {
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = i * 7919 + 1;
  return keys;
}

// Weights and slots of a table.
struct Content {
  bool operator==(const Content&) const = default;
  std::vector<float> values;
  std::vector<float> slots;
};

class AssignTest : public ClusterTest {
 protected:
  void StartServing(const std::string& consistency, uint32_t ranks, uint32_t workers) {
    ProcessClusterOptions options;
    options.job = absl::StrCat("name: 'assign' seed: 3 partitions: ", kPartitions,
                               " durability: LOG logical_workers: ", ranks, " consistency { ",
                               consistency, " }");
    options.servers = 2;
    options.replicas = 1;
    options.expected_workers = workers;
    cluster_ = StartCluster(options);
    ASSERT_NE(cluster_, nullptr);
  }

  std::unique_ptr<Client> Join(Role role, std::vector<uint32_t> ranks = {}) {
    ClientOptions options;
    options.scheduler = cluster_->scheduler_address();
    options.role = role;
    options.logical_workers = std::move(ranks);
    auto client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  void KillAndRestart(const std::string& server) {
    ASSERT_TRUE(cluster_->Kill(server).ok());
    ASSERT_TRUE(cluster_->Restart(server).ok());
    const auto member = cluster_->WaitUntilMember(server, kStartTimeout);
    ASSERT_TRUE(member.ok()) << member.status();
  }

  static Content Read(Session& session, const Table& table, const std::vector<uint64_t>& keys) {
    Content content;
    if (table.dense()) {
      content.values.resize(table.elements());
      for (uint64_t begin = 0; begin < table.elements(); begin += kBlockElements) {
        content.slots.resize(content.slots.size() + table.SlotFloats(std::min<uint64_t>(
                                                        kBlockElements, table.elements() - begin)));
      }
    } else {
      content.values.resize(keys.size() * table.row_width());
      content.slots.resize(keys.size() * table.SlotFloats(table.row_width()));
    }
    const PullItem item = {.table = table,
                           .keys = table.dense() ? absl::Span<const uint64_t>() : keys,
                           .values = absl::MakeSpan(content.values),
                           .slots = absl::MakeSpan(content.slots)};
    const absl::Status pulled = session.Pull({&item, 1}).get();
    EXPECT_TRUE(pulled.ok()) << pulled;
    return content;
  }

  ProcessCluster* cluster_ = nullptr;
};

TEST_F(AssignTest, KilledServerKeepsAssignedWeightsAndSlots) {
  ASSERT_NO_FATAL_FAILURE(StartServing("mode: ASYNC", 1, 0));
  const std::unique_ptr<Client> client = Join(CLIENT_ROLE);
  ASSERT_NE(client, nullptr);
  Session& session = client->free_running();
  TableSpec rows_spec = SparseTableSpec("rows", kWidth);
  rows_spec.mutable_optimizer()->mutable_adam()->set_learning_rate(0.5f);
  TableSpec tensor_spec = DenseTableSpec("tensor", {kElements});
  *tensor_spec.mutable_optimizer() = rows_spec.optimizer();
  const Table rows = *client->CreateTable(rows_spec).get();
  const Table tensor = *client->CreateTable(tensor_spec).get();

  const std::vector<uint64_t> keys = Keys(100);
  const std::vector<float> values = Numbers(keys.size() * kWidth, 1);
  std::vector<float> slots = Numbers(keys.size() * rows.SlotFloats(kWidth), 2);
  // The numbers of updates.
  for (size_t i = 0; i < keys.size(); ++i) {
    slots[(i + 1) * rows.SlotFloats(kWidth) - 1] = static_cast<float>(i);
  }
  const std::vector<float> weights = Numbers(kElements, -1);
  const AssignItem items[] = {{.table = rows, .keys = keys, .values = values, .slots = slots},
                              {.table = tensor, .values = weights}};
  const absl::Status assigned = session.Assign(items).get();
  ASSERT_TRUE(assigned.ok()) << assigned;
  EXPECT_EQ(Read(session, rows, keys), (Content{values, slots}));

  // Gradients on top, so that the recovery must repeat them in order.
  const std::vector<float> gradients = Numbers(values.size(), 0);
  const std::vector<float> tensor_gradients = Numbers(kElements, 0);
  const PushItem pushes[] = {{.table = rows, .keys = keys, .gradients = gradients},
                             {.table = tensor, .gradients = tensor_gradients}};
  ASSERT_TRUE(session.Push(pushes).get().ok());
  // Half of the rows get new weights and keep their slots.
  const std::vector<uint64_t> half(keys.begin(), keys.begin() + 50);
  const std::vector<float> half_values = Numbers(half.size() * kWidth, 5);
  ASSERT_TRUE(
      session.Assign({{.table = rows, .keys = half, .values = half_values, .keep_slots = true}})
          .get()
          .ok());
  const Content rows_before = Read(session, rows, keys);
  const Content tensor_before = Read(session, tensor, {});
  EXPECT_NE(rows_before.slots, slots);
  EXPECT_EQ(std::vector<float>(rows_before.values.begin(), rows_before.values.begin() + 150),
            half_values);
  for (const char* server : {"server-0", "server-1"}) {
    ASSERT_NO_FATAL_FAILURE(KillAndRestart(server));
    EXPECT_EQ(Read(session, rows, keys), rows_before);
    EXPECT_EQ(Read(session, tensor, {}), tensor_before);
  }

  // Pulled rows and slots make an equal table elsewhere, which then learns alike.
  rows_spec.set_name("copy");
  const Table copy = *client->CreateTable(rows_spec).get();
  ASSERT_TRUE(session
                  .Assign({{.table = copy,
                            .keys = keys,
                            .values = rows_before.values,
                            .slots = rows_before.slots}})
                  .get()
                  .ok());
  const PushItem again[] = {{.table = rows, .keys = keys, .gradients = gradients},
                            {.table = copy, .keys = keys, .gradients = gradients}};
  ASSERT_TRUE(session.Push(again).get().ok());
  EXPECT_EQ(Read(session, copy, keys), Read(session, rows, keys));
  EXPECT_NE(Read(session, rows, keys), rows_before);
}

// Jobs of two ranks in SYNC mode.
class SyncAssignTest : public AssignTest {
 protected:
  static constexpr uint64_t kSteps = 4;

  struct Result {
    Content rows;
    Content tensor;
    std::string digests;
  };

  // Trains tables whose elements are all kInitial at first: by their initializer, or assigned by
  // rank 0, whose process and a server die meanwhile.
  Result Train(bool assigns) {
    Result result;
    StartServing("mode: SYNC", 2, 1);
    const std::unique_ptr<Client> client = Join(WORKER_ROLE, {0, 1});
    if (client == nullptr) return result;
    TableSpec rows_spec = SparseTableSpec("rows", kWidth);
    rows_spec.mutable_optimizer()->mutable_momentum()->set_learning_rate(0.1f);
    rows_spec.mutable_optimizer()->mutable_momentum()->set_momentum(0.9f);
    if (!assigns) rows_spec.mutable_initializer()->mutable_constant()->set_value(kInitial);
    TableSpec tensor_spec = DenseTableSpec("tensor", {kElements});
    *tensor_spec.mutable_optimizer() = rows_spec.optimizer();
    *tensor_spec.mutable_initializer() = rows_spec.initializer();
    const Table rows = *client->CreateTable(rows_spec).get();
    const Table tensor = *client->CreateTable(tensor_spec).get();
    const std::vector<uint64_t> keys = Keys(60);
    std::vector<LogicalWorker*> workers = {*client->OpenLogicalWorker(0),
                                           *client->OpenLogicalWorker(1)};
    if (assigns) {
      AssignByRank0(*client, workers, rows, tensor, keys);
      if (HasFatalFailure()) return result;
    }
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (LogicalWorker* worker : workers) Step(*worker, rows, tensor, keys);
      const float rate = 0.1f / static_cast<float>(step + 1);
      EXPECT_TRUE(workers[0]
                      ->SetLearningRates({{.table = rows, .learning_rate = rate},
                                          {.table = tensor, .learning_rate = 2 * rate}})
                      .get()
                      .ok());
      // The server must know the rates and the gradients of the open step again.
      if (assigns && step == 2) KillAndRestart("server-0");
      std::vector<std::future<absl::Status>> ends;
      for (LogicalWorker* worker : workers) ends.push_back(worker->EndStep());
      for (auto& end : ends) EXPECT_TRUE(end.get().ok());
    }
    result.rows = Read(client->free_running(), rows, keys);
    result.tensor = Read(client->free_running(), tensor, {});
    auto plain = PlainClient::Join(cluster_->scheduler_address());
    EXPECT_TRUE(plain.ok()) << plain.status();
    if (plain.ok()) result.digests = *(*plain)->ParameterText();
    return result;
  }

 private:
  void AssignByRank0(Client& client, std::vector<LogicalWorker*>& workers, const Table& rows,
                     const Table& tensor, const std::vector<uint64_t>& keys) {
    const std::vector<float> row_values(keys.size() * kWidth, kInitial);
    const std::vector<float> weights(kElements, kInitial);
    const AssignItem row_item = {.table = rows, .keys = keys, .values = row_values};
    const AssignItem tensor_item = {.table = tensor, .values = weights};
    ASSERT_TRUE(workers[0]->Assign({&row_item, 1}).get().ok());
    ASSERT_NO_FATAL_FAILURE(KillAndRestart("server-1"));
    // A successor begins again, and the other rank waits for it.
    client.CloseLogicalWorker(0);
    auto successor = client.TakeOver(0).get();
    ASSERT_TRUE(successor.ok()) << successor.status();
    workers[0] = *successor;
    EXPECT_EQ(workers[0]->step(), 0u);
    ASSERT_TRUE(workers[0]->Assign({&row_item, 1}).get().ok());
    ASSERT_TRUE(workers[0]->Assign({&tensor_item, 1}).get().ok());
    EXPECT_GT(client.counters().segments_deduplicated, 0u);
    auto first = client.Barrier("assigned", 2, 0);
    auto second = client.Barrier("assigned", 2, 1);
    ASSERT_TRUE(first.get().ok());
    ASSERT_TRUE(second.get().ok());
  }

  // Gradients that depend on the pulled weights.
  static void Step(LogicalWorker& worker, const Table& rows, const Table& tensor,
                   const std::vector<uint64_t>& keys) {
    std::vector<float> row_values(keys.size() * kWidth);
    std::vector<float> weights(kElements);
    const PullItem pulls[] = {{.table = rows, .keys = keys, .values = absl::MakeSpan(row_values)},
                              {.table = tensor, .values = absl::MakeSpan(weights)}};
    const absl::Status pulled = worker.Pull(pulls).get();
    ASSERT_TRUE(pulled.ok()) << pulled;
    for (std::vector<float>* values : {&row_values, &weights}) {
      for (size_t i = 0; i < values->size(); ++i) {
        float& value = (*values)[i];
        value = value * 0.3f + static_cast<float>(worker.rank() + 1) / static_cast<float>(i + 7);
      }
    }
    const PushItem pushes[] = {{.table = rows, .keys = keys, .gradients = row_values},
                               {.table = tensor, .gradients = weights}};
    const absl::Status pushed = worker.Push(pushes).get();
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
};

TEST_F(SyncAssignTest, JobThatBeginsWithAssignmentsHasTheBitsOfOneInitializedSo) {
  const Result initialized = Train(/*assigns=*/false);
  ASSERT_FALSE(HasFailure());
  const Result assigned = Train(/*assigns=*/true);
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(assigned.rows, initialized.rows);
  EXPECT_EQ(assigned.tensor, initialized.tensor);
  EXPECT_EQ(assigned.digests, initialized.digests);
  EXPECT_NE(assigned.digests, "");
}

TEST_F(SyncAssignTest, RankIsRefusedAfterTheFirstStep) {
  ASSERT_NO_FATAL_FAILURE(StartServing("mode: SYNC", 1, 1));
  const std::unique_ptr<Client> worker_client = Join(WORKER_ROLE, {0});
  ASSERT_NE(worker_client, nullptr);
  const Table table = *worker_client->CreateTable(WithSgd(SparseTableSpec("rows", kWidth))).get();
  LogicalWorker& worker = **worker_client->OpenLogicalWorker(0);
  ASSERT_TRUE(worker.EndStep().get().ok());
  const std::vector<uint64_t> keys = Keys(1);
  const std::vector<float> values(kWidth, 1);
  const AssignItem item = {.table = table, .keys = keys, .values = values};
  const absl::Status refused = worker.Assign({&item, 1}).get();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(refused.message()).find("only in the job's first step"), std::string::npos)
      << refused;
  // A free-running client may.
  const std::unique_ptr<Client> client = Join(CLIENT_ROLE);
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->free_running().Assign({&item, 1}).get().ok());
  EXPECT_EQ(Read(client->free_running(), table, keys).values, values);
}

}  // namespace
}  // namespace pawl
