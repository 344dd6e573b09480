// What ends or delays the calls of a session: deadlines, failures, and the limits on calls in
// flight.
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/futures.h"
#include "client_lib/testing/client_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(ClientTest, UnansweredCallEndsAtItsDeadline) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPull);
  std::vector<float> values(2);
  CallOptions options;
  options.timeout = milliseconds(200);
  const MonotonicTime begin = Clock::Real().Now();
  EXPECT_EQ(client_->free_running()
                .Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}, options)
                .get()
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(Clock::Real().Now() - begin, milliseconds(200));
  // A late answer has no effect; the session continues.
  cluster_.Release(Method::kPull);
  EXPECT_TRUE(client_->free_running()
                  .Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}})
                  .get()
                  .ok());
}

TEST_F(ClientTest, CallToAnAbsentSchedulerEndsAtItsDeadline) {
  Connect();
  cluster_.SetSchedulerDown(true);
  CallOptions options;
  options.timeout = milliseconds(100);
  const absl::Status status = client_->ListTables(options).get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("the last error: "), std::string::npos) << status;
}

TEST_F(ClientTest, WaitingCallEndsAtItsDeadline) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kEndStep);
  std::future<absl::Status> end = worker->EndStep();
  CallOptions options;
  options.timeout = milliseconds(100);
  std::vector<float> values(2);
  EXPECT_EQ(
      worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}, options)
          .get()
          .code(),
      absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(PushRow(*worker, table, options).get().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kEndStep) == 3; }));
  cluster_.Release(Method::kEndStep);
  EXPECT_TRUE(end.get().ok());
}

TEST_F(ClientTest, FailedPushBreaksTheSession) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.SetIntercept(
      [](const std::string&, Method) { return absl::InvalidArgumentError("not finite"); });
  EXPECT_EQ(PushRow(*worker, table).get(), absl::InvalidArgumentError("not finite"));
  cluster_.SetIntercept(nullptr);
  EXPECT_EQ(PushRow(*worker, table).get(), absl::InvalidArgumentError("not finite"));
  EXPECT_EQ(worker->EndStep().get(), absl::InvalidArgumentError("not finite"));
  // Another rank is not affected.
  LogicalWorker* const other = *client_->OpenLogicalWorker(1);
  EXPECT_TRUE(PushRow(*other, table).get().ok());
}

TEST_F(ClientTest, RefusedPushOfALogicalWorkerBreaksTheSession) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* worker = *client_->OpenLogicalWorker(0);
  const std::vector<float> three(3);
  // Pipelined: the step is ended before the push's result is known.
  std::future<absl::Status> taken = PushRow(*worker, table);
  std::future<absl::Status> refused =
      worker->Push({{.table = table, .keys = key_, .gradients = three}});
  std::future<absl::Status> end = worker->EndStep();
  const absl::Status why = refused.get();
  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(end.get(), why);
  EXPECT_EQ(PushRow(*worker, table).get(), why);
  EXPECT_TRUE(taken.get().ok());
  for (uint32_t p = 0; p < kPartitions; ++p)
    EXPECT_EQ(cluster_.Clock(0, p), 0u) << "the step lacks a push";
  // The rank continues where the servers are.
  client_->CloseLogicalWorker(0);
  worker = *client_->TakeOver(0).get();
  EXPECT_EQ(worker->step(), 0u);
  EXPECT_TRUE(PushRow(*worker, table).get().ok());
  EXPECT_TRUE(worker->EndStep().get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), key_[0]), ones_) << "the earlier push is recognised";
}

// The session exists until its function has returned; AddressSanitizer shows if it does not.
TEST_F(ClientTest, CallbackMayCloseItsRank) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  for (const bool ends_step : {false, true}) {
    LogicalWorker* const worker = *client_->TakeOver(0).get();
    std::promise<absl::Status> done;
    const auto close = [&](absl::Status status) {
      client_->CloseLogicalWorker(0);
      done.set_value(std::move(status));
    };
    CallOptions options;
    options.timeout = milliseconds(0);
    if (ends_step) {
      worker->EndStep(options, close);
    } else {
      worker->Push({{.table = table, .keys = key_, .gradients = ones_}}, options, close);
    }
    EXPECT_FALSE(done.get_future().get().ok());
  }
}

TEST_F(ClientTest, RefusedPushDoesNotEndEarlierCalls) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kPush);
  std::vector<std::future<absl::Status>> earlier;
  earlier.push_back(PushRow(*worker, table));
  earlier.push_back(worker->EndStep());
  earlier.push_back(PushRow(*worker, table));
  std::vector<float> values(2);
  earlier.push_back(
      worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}));
  const std::vector<float> three(3);
  const absl::Status why = worker->Push({{.table = table, .keys = key_, .gradients = three}}).get();
  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
  // No callback of another call has run inside the refused one.
  for (const std::future<absl::Status>& call : earlier) EXPECT_FALSE(IsReady(call));
  // The step that lacks the push is not ended.
  EXPECT_EQ(worker->EndStep().get(), why);
  EXPECT_EQ(worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}).get(),
            why);
  cluster_.Release(Method::kPush);
  for (std::future<absl::Status>& call : earlier) EXPECT_EQ(call.get(), absl::OkStatus());
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(cluster_.Clock(0, p), 1u);
  EXPECT_EQ(PushRow(*worker, table).get(), why);
}

TEST_F(ClientTest, PushOfTooManySegmentsDoesNotBreakAFreeRunningSession) {
  Connect();
  const Table table = Sparse("a", 2);
  // Each item is a segment of its own.
  const std::vector<float> gradients(2);
  const std::vector<PushItem> items(kMaxSegmentsAhead + 1,
                                    {.table = table, .keys = key_, .gradients = gradients});
  Session& session = client_->free_running();
  EXPECT_EQ(session.Push(items).get().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Push(absl::MakeSpan(items).subspan(0, 1)).get(), absl::OkStatus());
}

TEST_F(ClientTest, PushBeyondTheLimitBreaksALogicalWorker) {
  ConnectWorker();
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kEndStep);
  std::future<absl::Status> end = worker->EndStep();
  std::vector<std::future<absl::Status>> waiting;
  for (size_t i = 0; i < kMaxWaitingCalls; ++i) waiting.push_back(worker->Push({}));
  const absl::Status refused = worker->Push({}).get();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(worker->EndStep().get(), refused);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kEndStep) == 3; }));
  cluster_.Release(Method::kEndStep);
  EXPECT_TRUE(end.get().ok());
  for (std::future<absl::Status>& push : waiting) EXPECT_EQ(push.get(), absl::OkStatus());
}

TEST_F(ClientTest, FailedJobEndsCallsWithTheSchedulersMessage) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kPush);
  cluster_.Hold(Method::kPull);
  std::vector<float> values(2), more(2);
  std::vector<std::future<absl::Status>> pending;
  pending.push_back(PushRow(*worker, table));
  pending.push_back(
      worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}));
  pending.push_back(worker->EndStep());
  pending.push_back(PushRow(*worker, table));
  pending.push_back(worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(more)}}));
  ASSERT_TRUE(Eventually(
      [&] { return cluster_.held(Method::kPush) == 1 && cluster_.held(Method::kPull) == 1; }));
  cluster_.FailJob("server-1 has died");
  const absl::Status expected =
      absl::FailedPreconditionError("the job has failed: server-1 has died");
  for (std::future<absl::Status>& call : pending) EXPECT_EQ(call.get(), expected);
  EXPECT_EQ(PushRow(*worker, table).get(), expected);
  EXPECT_EQ(client_->status(), expected);
  EXPECT_EQ(client_->OpenTable("a").get().status(), expected);
  EXPECT_TRUE(client_->WaitForEnd(seconds(10)));
  EXPECT_EQ(client_->job_state(), FAILED);
}

TEST_F(ClientTest, DestructorEndsCallsAndSaysGoodbye) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPush);
  std::future<absl::Status> push = PushRow(client_->free_running(), table);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  client_.reset();
  EXPECT_EQ(push.get().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(cluster_.said_goodbye());
}

TEST_F(ClientTest, BytesInFlightAreBounded) {
  ClientOptions options;
  options.max_bytes_in_flight = size_t{1} << 20;
  Connect(options);
  const Table table = Dense("d", kBlockElements);  // 256 KiB
  const std::vector<float> gradients(kBlockElements, 1.f);
  cluster_.Hold(Method::kPush);
  std::vector<std::future<absl::Status>> pending;
  for (int i = 0; i < 12; ++i) {
    pending.push_back(client_->free_running().Push({{.table = table, .gradients = gradients}}));
  }
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 4; }));
  while (cluster_.events().size() < 12) {
    cluster_.Release(Method::kPush);
    cluster_.Hold(Method::kPush);
  }
  cluster_.Release(Method::kPush);
  for (std::future<absl::Status>& push : pending) EXPECT_TRUE(push.get().ok());
  EXPECT_LE(cluster_.max_bytes_held(), options.max_bytes_in_flight);
  EXPECT_EQ(cluster_.Row(table.id(), 0)[0], 12.f);
}

TEST_F(ClientTest, CallLargerThanTheLimitIsSentAlone) {
  ClientOptions options;
  options.max_bytes_in_flight = 1;
  Connect(options);
  const Table table = Sparse("a", 2);
  std::future<absl::Status> first = PushRow(client_->free_running(), table);
  std::future<absl::Status> second = PushRow(client_->free_running(), table);
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(ClientTest, PushesStayWithinTheServersWindow) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPush);
  std::vector<std::future<absl::Status>> pending;
  for (uint64_t i = 0; i < kMaxSegmentsAhead + 10; ++i)
    pending.push_back(PushRow(client_->free_running(), table));
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == kMaxSegmentsAhead; }));
  EXPECT_EQ(cluster_.events().size(), kMaxSegmentsAhead);
  cluster_.Release(Method::kPush);
  for (std::future<absl::Status>& push : pending) EXPECT_TRUE(push.get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42)[0], kMaxSegmentsAhead + 10);
}

TEST_F(ClientTest, PushWaitingForTheWindowEndsAtItsDeadline) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPush);
  std::vector<std::future<absl::Status>> older;
  for (uint64_t i = 0; i < kMaxSegmentsAhead; ++i)
    older.push_back(PushRow(client_->free_running(), table));
  CallOptions options;
  options.timeout = milliseconds(100);
  std::future<absl::Status> late = PushRow(client_->free_running(), table, options);
  std::future<absl::Status> behind_it = PushRow(client_->free_running(), table);
  ASSERT_TRUE(Eventually([&] { return IsReady(late) && IsReady(behind_it); }));
  EXPECT_EQ(late.get().code(), absl::StatusCode::kDeadlineExceeded);
  // It is not sent without the one before it.
  EXPECT_EQ(behind_it.get().code(), absl::StatusCode::kDeadlineExceeded);
  cluster_.Release(Method::kPush);
  for (std::future<absl::Status>& push : older) EXPECT_TRUE(push.get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42)[0], kMaxSegmentsAhead);
}

TEST_F(ClientTest, NumberOfCallsInFlightIsBounded) {
  Connect();
  const Table table = Sparse("a", 1);
  cluster_.Hold(Method::kPull);
  std::vector<float> values(kMaxCallsInFlight + kMaxWaitingCalls + 1);
  std::vector<std::future<absl::Status>> pulls;
  for (float& value : values) {
    pulls.push_back(client_->free_running().Pull(
        {{.table = table, .keys = key_, .values = absl::MakeSpan(&value, 1)}}));
  }
  ASSERT_TRUE(IsReady(pulls.back()));
  EXPECT_EQ(pulls.back().get().code(), absl::StatusCode::kResourceExhausted);
  pulls.pop_back();
  EXPECT_FALSE(IsReady(pulls.back()));
  cluster_.Release(Method::kPull);
  for (std::future<absl::Status>& pull : pulls) EXPECT_TRUE(pull.get().ok());
}

TEST_F(ClientTest, MaximalTimeoutDoesNotOverflow) {
  ClientOptions options;
  options.connect_timeout = MonotonicDuration::max();
  options.call_timeout = MonotonicDuration::max();
  Connect(options);
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPush);
  std::future<absl::Status> push = PushRow(client_->free_running(), table);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  cluster_.Release(Method::kPush);
  EXPECT_TRUE(push.get().ok());
  CallOptions call_options;
  call_options.timeout = MonotonicDuration::max();
  EXPECT_TRUE(PushRow(client_->free_running(), table, call_options).get().ok());
  cluster_.FailJob("server-1 has died");
  EXPECT_TRUE(client_->WaitForEnd(MonotonicDuration::max()));
}

}  // namespace
}  // namespace pawl
