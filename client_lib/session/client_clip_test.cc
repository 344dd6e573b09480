// How sessions close the steps of a job with Job.clip_global_norm.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/testing/faulty_transport.h"
#include "client_lib/testing/client_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

constexpr size_t kServers = 3;

// The norm of each step is 4, so its gradients are halved.
class ClientClipTest : public ClientTest {
 protected:
  ClientClipTest() { cluster_.SetClipGlobalNorm(2, std::vector<double>(kPartitions, 1)); }

  static bool IsReady(const std::future<absl::Status>& call) {
    return call.wait_for(milliseconds(0)) == std::future_status::ready;
  }
  bool AwaitsAreHeld(size_t count) {
    return Eventually([&] { return cluster_.held_awaits() == count; });
  }
  // The numbers of the events with that phase for the step.
  std::vector<size_t> Events(EndStepRequest::Phase phase, uint64_t step) const {
    std::vector<size_t> numbers;
    const std::vector<FakeCluster::Event> events = cluster_.events();
    for (size_t i = 0; i < events.size(); ++i) {
      if (events[i].method == Method::kEndStep && events[i].phase == phase &&
          events[i].header.step() == step) {
        numbers.push_back(i);
      }
    }
    return numbers;
  }
  // The partitions in which the step has been closed with that scale.
  size_t Closed(uint64_t step, float scale) const {
    std::set<uint32_t> partitions;
    const std::vector<FakeCluster::Event> events = cluster_.events();
    for (const size_t i : Events(EndStepRequest::CLOSE, step)) {
      EXPECT_EQ(events[i].scale, scale);
      partitions.insert(events[i].partitions.begin(), events[i].partitions.end());
    }
    return partitions.size();
  }
};

TEST_F(ClientClipTest, StepClosesInTheBackgroundAndHoldsBackTheNextOne) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  std::future<absl::Status> push = PushRow(*worker, table);
  // Done although another rank may not have ended it.
  ASSERT_TRUE(worker->EndStep().get().ok());
  ASSERT_TRUE(push.get().ok());
  ASSERT_TRUE(AwaitsAreHeld(kServers));
  std::future<absl::Status> next = PushRow(*worker, table);
  std::future<absl::Status> end = worker->EndStep();
  std::vector<float> values(2);
  // A pull waits at its server.
  ASSERT_TRUE(
      worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}, {.step = 1})
          .get()
          .ok());
  EXPECT_FALSE(IsReady(next));
  EXPECT_FALSE(IsReady(end));
  EXPECT_TRUE(Events(EndStepRequest::CLOSE, 0).empty());
  cluster_.ReleaseAwaits();
  EXPECT_TRUE(next.get().ok());
  EXPECT_TRUE(end.get().ok());
  EXPECT_EQ(Closed(0, 0.5f), kPartitions);
  // The last step closes too.
  EXPECT_TRUE(Eventually([&] { return Closed(1, 0.5f) == kPartitions; }));
  const std::vector<FakeCluster::Event> events = cluster_.events();
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].method != Method::kPush || events[i].header.step() == 0) continue;
    for (const size_t close : Events(EndStepRequest::CLOSE, 0)) EXPECT_LT(close, i);
  }
}

TEST_F(ClientClipTest, PullOfTheNextStepDoesNotWaitForTheClose) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  ASSERT_TRUE(worker->EndStep().get().ok());
  ASSERT_TRUE(AwaitsAreHeld(kServers));
  std::vector<float> values(2);
  EXPECT_TRUE(
      worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}).get().ok());
}

TEST_F(ClientClipTest, SmallNormsAreNotScaled) {
  cluster_.SetClipGlobalNorm(4, std::vector<double>(kPartitions, 1));
  cluster_.ReleaseAwaits();
  ConnectWorker();
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  ASSERT_TRUE(worker->EndStep().get().ok());
  EXPECT_TRUE(Eventually([&] { return Closed(0, 1) == kPartitions; }));
}

// The predecessor may have died after the end, and no other rank may be left to close the step.
TEST_F(ClientClipTest, SuccessorClosesTheStepBefore) {
  ConnectWorker();
  for (uint32_t p = 0; p < kPartitions; ++p) cluster_.SetClock(2, p, p < 5 ? 8 : 7);
  // Does not wait for other ranks, which may be taken over later by the same thread.
  absl::StatusOr<LogicalWorker*> worker = client_->TakeOver(2).get();
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->step(), 8u);
  ASSERT_TRUE(AwaitsAreHeld(kServers));
  std::future<absl::Status> end = (*worker)->EndStep();
  EXPECT_FALSE(IsReady(end));
  cluster_.ReleaseAwaits();
  EXPECT_TRUE(end.get().ok());
  EXPECT_EQ(Closed(7, 0.5f), kPartitions);
  // In the first step there is none before.
  absl::StatusOr<LogicalWorker*> first = client_->TakeOver(3).get();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE((*first)->EndStep().get().ok());
}

TEST_F(ClientClipTest, FinishedWorkIsReportedOnceTheLastStepHasClosed) {
  ConnectWorker();
  for (const uint32_t rank : {0u, 1u})
    ASSERT_TRUE((*client_->OpenLogicalWorker(rank))->EndStep().get().ok());
  ASSERT_TRUE(AwaitsAreHeld(2 * kServers));
  // The worker drops a session when its rank has finished.
  client_->CloseLogicalWorker(0);
  const std::vector<uint32_t> ranks = {0};
  std::future<absl::Status> finished = client_->FinishWork(WorkerProgress(), {}, ranks);
  std::future<absl::Status> all_finished = client_->FinishWork(WorkerProgress());
  ReportEvaluationRequest report;
  report.set_rank(1);
  auto reported = client_->ReportEvaluation(report);
  report.set_rank(2);
  EXPECT_TRUE(client_->ReportEvaluation(report).get().ok()) << "another rank";
  EXPECT_FALSE(IsReady(finished));
  EXPECT_FALSE(IsReady(all_finished));
  EXPECT_EQ(reported.wait_for(milliseconds(0)), std::future_status::timeout);
  cluster_.ReleaseAwaits();
  EXPECT_TRUE(finished.get().ok());
  EXPECT_TRUE(all_finished.get().ok());
  EXPECT_TRUE(reported.get().ok());
  EXPECT_EQ(Closed(0, 0.5f), kPartitions);
}

TEST_F(ClientClipTest, FinishedWorkHasADeadline) {
  ConnectWorker();
  ASSERT_TRUE((*client_->OpenLogicalWorker(0))->EndStep().get().ok());
  ASSERT_TRUE(AwaitsAreHeld(kServers));
  const absl::Status status =
      client_->FinishWork(WorkerProgress(), {.timeout = milliseconds(50)}).get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(status.message().find("logical workers 0"), absl::string_view::npos) << status;
  WorkerProgress failed;
  failed.set_failure("out of memory");
  EXPECT_TRUE(client_->FinishWork(failed).get().ok()) << "a failure is reported at once";
}

TEST_F(ClientClipTest, CloseReachesEveryPartitionThroughLossesAndNewRouting) {
  FaultyTransport::Options faults;
  faults.seed = 4;
  faults.lose_request = 0.2;
  faults.lose_reply = 0.2;
  cluster_.ReleaseAwaits();
  ClientOptions options;
  options.role = WORKER_ROLE;
  Connect(options, std::make_shared<FaultyTransport>(cluster_.transport(), faults));
  // The last close may still be sent after the test.
  const auto calls = std::make_shared<std::atomic<uint32_t>>(0);
  cluster_.SetIntercept([this, calls](const std::string&, Method) {
    if (const uint32_t call = ++*calls; call % 7 == 0) cluster_.MovePartitions(call / 7);
    return absl::OkStatus();
  });
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  for (uint64_t step = 0; step < 5; ++step) {
    ASSERT_TRUE(worker->EndStep().get().ok());
    EXPECT_EQ(Closed(step - 1, 0.5f), step == 0 ? 0 : kPartitions);
  }
}

TEST_F(ClientClipTest, FailedCloseBreaksTheSession) {
  cluster_.ReleaseAwaits();
  ConnectWorker();
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  const auto ends = std::make_shared<std::atomic<int>>(0);
  cluster_.SetIntercept([ends](const std::string&, Method method) {
    return method == Method::kEndStep && ++*ends > 4 ? absl::AbortedError("superseded")
                                                     : absl::OkStatus();
  });
  ASSERT_TRUE(worker->EndStep().get().ok());
  EXPECT_TRUE(absl::IsAborted(worker->EndStep().get()));
  // The successor closes the step.
  EXPECT_TRUE(client_->FinishWork(WorkerProgress()).get().ok());
}

}  // namespace
}  // namespace pawl
