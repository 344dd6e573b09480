// Malformed messages, each with one mistake, from a client that may send anything. Each must get
// the right status code and change nothing.
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"
#include "tests/harness/plain_client.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 4;
constexpr uint32_t kRowWidth = 19;  // a full vector and a tail for any vector width
constexpr uint64_t kTensorElements = kBlockElements + 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One cluster for all cases, because they change nothing.
class BadMessageTest : public ClusterTest {
 protected:
  void SetUp() override {
    ProcessClusterOptions options;
    options.job = "name: 'bad' seed: 3 partitions: 4 logical_workers: 2 consistency { mode: SYNC }";
    options.expected_workers = 1;
    cluster_ = StartCluster(options);
    ASSERT_NE(cluster_, nullptr);
    auto worker = PlainClient::Join(cluster_->scheduler_address(), WORKER_ROLE, {0, 1});
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    auto client = PlainClient::Join(cluster_->scheduler_address());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);

    TableSpec rows = SparseTableSpec("rows", kRowWidth);
    rows.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.1f);
    auto created = client_->CreateTable(rows);
    ASSERT_TRUE(created.ok()) << created.status();
    rows_ = *created;
    created = client_->CreateTable(WithSgd(DenseTableSpec("tensor", {kTensorElements}), 0.1f));
    ASSERT_TRUE(created.ok()) << created.status();
    tensor_ = *created;

    for (uint64_t key = 0; keys_.size() < 2; ++key) {
      if (PartitionOf(rows_.id(), key, kPartitions) == kPartition) keys_.push_back(key);
    }
    ASSERT_TRUE(client_->PushRows(rows_, keys_, std::vector<float>(2 * kRowWidth, 0.5f)).ok());
    next_ordinal_ = 1;
  }

  // A valid push of the two rows.
  PushRequest GoodPush() const {
    PushRequest request;
    *request.mutable_header() = client_->ClientHeader();
    *request.add_segments() = PlainClient::Segment(rows_, kPartition, next_ordinal_, keys_,
                                                   std::vector<float>(2 * kRowWidth, 0.25f));
    return request;
  }
  PullRequest GoodPull() const {
    PullRequest request;
    *request.mutable_header() = client_->ClientHeader();
    PullSegment& segment = *request.add_segments();
    segment.set_table(rows_.id());
    segment.set_partition(kPartition);
    segment.set_keys(PlainClient::PackKeys(keys_));
    return request;
  }

  std::string Parameters() const {
    auto text = client_->ParameterText();
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }
  uint64_t Refused() const {
    const auto answers = client_->Inspect();
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? (*answers)[0].counters().requests_refused() : 0;
  }

  // Applies `spoil` to a valid push and sends it. It must be refused with one of the codes and
  // `word` in the message, and change nothing. The valid push with the same push ids must then be
  // accepted.
  void ExpectRefused(const std::string& what, grpc::StatusCode code, const std::string& word,
                     const std::function<void(PushRequest&)>& spoil) {
    SCOPED_TRACE(what);
    const std::string before = Parameters();
    PushRequest request = GoodPush();
    spoil(request);
    const grpc::Status status = client_->Push(0, request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_NE(status.error_message().find(word), std::string::npos) << status.error_message();
    EXPECT_EQ(Parameters(), before);
  }

  static constexpr uint32_t kPartition = 1;
  ProcessCluster* cluster_ = nullptr;
  std::unique_ptr<PlainClient> worker_;
  std::unique_ptr<PlainClient> client_;
  TableSpec rows_;
  TableSpec tensor_;
  std::vector<uint64_t> keys_;
  uint64_t next_ordinal_ = 0;
};

void SetValue(PushRequest& request, size_t index, float value) {
  std::string& bytes = *request.mutable_segments(0)->mutable_values();
  bytes.replace(index * sizeof(float), sizeof(float), reinterpret_cast<const char*>(&value),
                sizeof(float));
}

TEST_F(BadMessageTest, MalformedPushIsRefusedWhole) {
  using grpc::StatusCode;
  const uint64_t refused_before = Refused();
  ExpectRefused("unknown table", StatusCode::NOT_FOUND, "77",
                [](auto& r) { r.mutable_segments(0)->set_table(77); });
  ExpectRefused("table 0", StatusCode::NOT_FOUND, "0",
                [](auto& r) { r.mutable_segments(0)->clear_table(); });
  ExpectRefused("partition outside", StatusCode::OUT_OF_RANGE, "partition 4",
                [](auto& r) { r.mutable_segments(0)->set_partition(kPartitions); });
  ExpectRefused("key of another partition", StatusCode::INVALID_ARGUMENT, "partition",
                [](auto& r) { r.mutable_segments(0)->set_partition(2); });
  ExpectRefused("keys cut", StatusCode::INVALID_ARGUMENT, "keys",
                [](auto& r) { r.mutable_segments(0)->mutable_keys()->pop_back(); });
  ExpectRefused("values cut", StatusCode::INVALID_ARGUMENT, "values",
                [](auto& r) { r.mutable_segments(0)->mutable_values()->pop_back(); });
  ExpectRefused("a value too many", StatusCode::INVALID_ARGUMENT, "values",
                [](auto& r) { r.mutable_segments(0)->mutable_values()->append(4, '\0'); });
  ExpectRefused("no values", StatusCode::INVALID_ARGUMENT, "values",
                [](auto& r) { r.mutable_segments(0)->clear_values(); });
  ExpectRefused("values of another element type", StatusCode::INVALID_ARGUMENT, "values",
                [](auto& r) { r.mutable_segments(0)->set_element_type(BFLOAT16); });
  ExpectRefused("unknown element type", StatusCode::INVALID_ARGUMENT, "element type", [](auto& r) {
    r.mutable_segments(0)->set_element_type(static_cast<ElementType>(9));
  });
  ExpectRefused("another job", StatusCode::UNAVAILABLE, "job",
                [](auto& r) { r.mutable_header()->set_job_id(1); });
  ExpectRefused("old epoch", StatusCode::FAILED_PRECONDITION, "epoch",
                [](auto& r) { r.mutable_header()->set_epoch(0); });
  ExpectRefused("epoch of the future", StatusCode::UNAVAILABLE, "epoch",
                [](auto& r) { r.mutable_header()->set_epoch(1000); });
  ExpectRefused("no sender", StatusCode::INVALID_ARGUMENT, "sender",
                [](auto& r) { r.mutable_header()->clear_sender(); });
  ExpectRefused("client number outside", StatusCode::OUT_OF_RANGE, "client",
                [](auto& r) { r.mutable_header()->set_client(1 << 20); });
  ExpectRefused("rank outside", StatusCode::OUT_OF_RANGE, "logical_worker",
                [](auto& r) { r.mutable_header()->set_logical_worker(2); });
  ExpectRefused("ordinal beyond the window", StatusCode::OUT_OF_RANGE, "ordinal",
                [](auto& r) { r.mutable_segments(0)->set_ordinal(100000); });
  ExpectRefused("superseded incarnation", StatusCode::ABORTED, "incarnation",
                [](auto& r) { r.mutable_header()->set_incarnation(0); });
  ExpectRefused("a good segment and then a bad one", StatusCode::NOT_FOUND, "77", [](auto& r) {
    *r.add_segments() = r.segments(0);
    r.mutable_segments(1)->set_table(77);
    r.mutable_segments(1)->set_ordinal(r.segments(0).ordinal() + 1);
  });
  EXPECT_GE(Refused(), refused_before + 15);

  PushResponse response;
  const grpc::Status status = client_->Push(0, GoodPush(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.accepted(), 1u);
}

TEST_F(BadMessageTest, NonFiniteValueIsRefusedAtAnyPosition) {
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    // In the first and the last row: the first element, those around the vector's end, and the
    // last.
    for (const size_t index :
         {size_t{0}, size_t{7}, size_t{8}, size_t{15}, size_t{16}, size_t{kRowWidth - 1},
          size_t{kRowWidth}, size_t{2 * kRowWidth - 3}, size_t{2 * kRowWidth - 1}}) {
      ExpectRefused("index " + std::to_string(index), grpc::StatusCode::INVALID_ARGUMENT,
                    "NaN or an infinity", [&](auto& r) { SetValue(r, index, value); });
    }
  }
}

TEST_F(BadMessageTest, TensorBlocksAreChecked) {
  using grpc::StatusCode;
  const auto block = [&](uint64_t key, size_t values) {
    return [this, key, values](PushRequest& r) {
      *r.mutable_segments(0) =
          PlainClient::Segment(tensor_, PartitionOf(tensor_.id(), key, kPartitions), 0, {key},
                               std::vector<float>(values, 1.0f));
    };
  };
  ExpectRefused("no such block", StatusCode::OUT_OF_RANGE, "block 2", block(2, kBlockElements));
  ExpectRefused("last block too long", StatusCode::INVALID_ARGUMENT, "values",
                block(1, kBlockElements));
  ExpectRefused("first block too short", StatusCode::INVALID_ARGUMENT, "values", block(0, 100));
  ExpectRefused("NaN in the last block's tail", StatusCode::INVALID_ARGUMENT, "NaN or an infinity",
                [&](PushRequest& r) {
                  block(1, 100)(r);
                  SetValue(r, 99, kNan);
                });
}

TEST_F(BadMessageTest, StepOutOfOrderIsRefused) {
  const std::string before = Parameters();
  PushRequest push;
  *push.mutable_header() = worker_->WorkerHeader(0, 0);
  *push.add_segments() =
      PlainClient::Segment(rows_, kPartition, 1, keys_, std::vector<float>(2 * kRowWidth, 0.25f));
  ASSERT_TRUE(worker_->Push(0, push).ok());
  EndStepRequest end;
  *end.mutable_header() = worker_->WorkerHeader(0, 0);
  grpc::Status status = worker_->EndStep(0, end);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION)
      << "ordinal 0 is missing: " << status.error_message();
  end.mutable_header()->set_step(1);
  status = worker_->EndStep(0, end);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION)
      << "step 0 has not ended: " << status.error_message();
  // The push that completes the step is accepted.
  push.mutable_segments(0)->set_ordinal(0);
  EXPECT_TRUE(worker_->Push(0, push).ok());
  end.mutable_header()->set_step(0);
  EXPECT_TRUE(worker_->EndStep(0, end).ok());
  // A push of a step that its rank has ended can only be a late repetition.
  PushResponse response;
  EXPECT_TRUE(worker_->Push(0, push, &response).ok());
  EXPECT_EQ(response.accepted(), 0u);
  EXPECT_EQ(response.deduplicated(), 1u);
  // The other rank has not ended the step, so nothing is applied.
  EXPECT_EQ(Parameters(), before);
}

TEST_F(BadMessageTest, MalformedPullIsRefused) {
  const std::vector<std::pair<grpc::StatusCode, std::function<void(PullRequest&)>>> cases = {
      {grpc::StatusCode::NOT_FOUND, [](PullRequest& r) { r.mutable_segments(0)->set_table(77); }},
      {grpc::StatusCode::OUT_OF_RANGE,
       [](PullRequest& r) { r.mutable_segments(0)->set_partition(kPartitions); }},
      {grpc::StatusCode::INVALID_ARGUMENT,
       [](PullRequest& r) { r.mutable_segments(0)->set_partition(2); }},
      {grpc::StatusCode::INVALID_ARGUMENT,
       [](PullRequest& r) { r.mutable_segments(0)->mutable_keys()->pop_back(); }},
      {grpc::StatusCode::UNAVAILABLE, [](PullRequest& r) { r.mutable_header()->set_job_id(1); }},
      {grpc::StatusCode::FAILED_PRECONDITION,
       [](PullRequest& r) { r.mutable_header()->set_epoch(0); }},
      {grpc::StatusCode::OUT_OF_RANGE,
       [](PullRequest& r) { r.mutable_header()->set_logical_worker(2); }},
      // Values of 64 MiB and more do not fit a response.
      {grpc::StatusCode::INVALID_ARGUMENT,
       [](PullRequest& r) {
         std::string keys;
         for (size_t i = 0; i < (size_t{65} << 20) / (kRowWidth * sizeof(float)); ++i) {
           keys += r.segments(0).keys().substr(0, 8);
         }
         r.mutable_segments(0)->set_keys(keys);
       }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    PullRequest request = GoodPull();
    cases[i].second(request);
    PullResponse response;
    const grpc::Status status = client_->Pull(0, request, &response);
    EXPECT_EQ(status.error_code(), cases[i].first)
        << "case " << i << ": " << status.error_message();
  }
}

TEST_F(BadMessageTest, OldEpochIsAnsweredWithTheRouting) {
  PullRequest request = GoodPull();
  request.mutable_header()->set_epoch(0);
  PullResponse response;
  const grpc::Status status = client_->Pull(0, request, &response);
  RoutingTable routing;
  ASSERT_TRUE(routing.ParseFromString(status.error_details()));
  EXPECT_EQ(routing.SerializeAsString(), client_->routing().SerializeAsString());
}

TEST_F(BadMessageTest, GarbageIsRefusedByEveryMethod) {
  const std::string before = Parameters();
  const std::string good = GoodPush().SerializeAsString();
  for (const std::string method :
       {"/pawl.Parameter/Push", "/pawl.Parameter/Pull", "/pawl.Parameter/EndStep"}) {
    for (const std::string& bytes :
         {std::string(1000, '\xff'), std::string("\x0a\xff\xff\xff\xff\x7f", 6),
          good.substr(0, good.size() - 5), std::string("hello")}) {
      const grpc::Status status = CallWithBytes(client_->channel(0), method, bytes);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << method << ": " << status.error_message();
    }
  }
  EXPECT_EQ(CallWithBytes(client_->channel(0), "/pawl.Parameter/Steal", good).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Parameters(), before);
}

TEST_F(BadMessageTest, CompressedMessageIsRefused) {
  const std::string before = Parameters();
  PushRequest request = GoodPush();
  // A decompression bomb: mostly zeros.
  request.mutable_segments(0)->set_values(std::string(32 << 20, '\0'));
  const grpc::Status status = CallWithBytes(client_->channel(0), "/pawl.Parameter/Push",
                                            request.SerializeAsString(), /*compressed=*/true);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_EQ(Parameters(), before);
}

TEST_F(BadMessageTest, OversizedMessageIsRefused) {
  const std::string before = Parameters();
  PushRequest request = GoodPush();
  request.mutable_segments(0)->set_values(std::string(80 << 20, '\0'));
  const grpc::Status status = client_->Push(0, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(Parameters(), before);
  EXPECT_TRUE(client_->Push(0, GoodPush()).ok());
}

TEST_F(BadMessageTest, InvalidTableIsRefusedByTheScheduler) {
  const auto create = [&](const std::function<void(TableSpec&)>& spoil) {
    TableSpec spec = rows_;
    spec.clear_id();
    spec.set_name("another");
    spoil(spec);
    return client_->CreateTable(spec).status().code();
  };
  EXPECT_EQ(create([](TableSpec& t) { t.set_row_width(0); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](TableSpec& t) { t.set_row_width(5000); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](TableSpec& t) { t.set_name("no spaces"); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](TableSpec& t) { t.clear_kind(); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](TableSpec& t) {
              t.mutable_optimizer()->mutable_adagrad()->set_learning_rate(kNan);
            }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](TableSpec& t) { t.set_name("rows"), t.set_row_width(7); }),
            absl::StatusCode::kAlreadyExists);
  // The servers have none of these tables.
  ListTablesResponse tables;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  ASSERT_TRUE(client_->scheduler().ListTables(&context, ListTablesRequest(), &tables).ok());
  EXPECT_EQ(tables.tables_size(), 2);
}

}  // namespace
}  // namespace pawl
