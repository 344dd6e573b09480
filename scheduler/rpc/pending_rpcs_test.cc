#include "scheduler/rpc/pending_rpcs.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

class PendingRpcsTest : public testing::Test {
 protected:
  template <typename Key, typename Response>
  Ticket Suspend(PendingCalls<Key, Response>& calls, Key key) {
    const Ticket ticket = pending_.NewTicket();
    calls.Suspend(ticket, std::move(key), [this, ticket](const absl::StatusOr<Response>& answer) {
      answered_.push_back(ticket);
      last_ = answer.status();
    });
    return ticket;
  }
  void ParkOneOfEach() {
    Suspend(pending_.routing, RoutingRequest{3, true});
    Suspend(pending_.tables, 1u);
    Suspend(pending_.barriers, {"b", 0, "worker-0"});
    Suspend(pending_.assignments, {"worker-0", 0});
    Suspend(pending_.joins, std::string("worker-0"));
    Suspend(pending_.exchanges, {1, "addresses"});
    Suspend(pending_.watches, uint64_t{1});
    Suspend(pending_.evaluations, PendingRpcs::EvaluationCall{.evaluation = 1});
    Suspend(pending_.checkpoints, std::string("/c"));
  }

  PendingRpcs pending_;
  std::vector<Ticket> answered_;
  absl::Status last_;
};

TEST_F(PendingRpcsTest, AnswerAllAnswersEveryKind) {
  ParkOneOfEach();
  {
    DeferredActions actions;
    pending_.AnswerAll(absl::UnavailableError("the job has ended"), actions);
    EXPECT_TRUE(answered_.empty()) << "not under the lock";
  }
  EXPECT_EQ(answered_.size(), 9u);
  EXPECT_EQ(last_, absl::UnavailableError("the job has ended"));
}

TEST_F(PendingRpcsTest, TicketsAreUniqueAcrossKinds) {
  ParkOneOfEach();
  for (Ticket ticket = 1; ticket <= 9; ++ticket) {
    DeferredActions actions;
    pending_.AnswerOne(ticket, absl::CancelledError("gone"), actions);
    pending_.AnswerOne(ticket, absl::CancelledError("gone"), actions);
  }
  EXPECT_EQ(answered_, (std::vector<Ticket>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(PendingRpcsTest, AllKindsShareOneLimit) {
  ParkOneOfEach();
  for (size_t i = 9; i < kMaxPendingCalls; ++i) {
    ASSERT_TRUE(pending_.CheckRoom().ok()) << i;
    Suspend(pending_.routing, RoutingRequest{i, false});
  }
  EXPECT_EQ(pending_.CheckRoom().code(), absl::StatusCode::kResourceExhausted);
  DeferredActions actions;
  pending_.AnswerOne(5, absl::CancelledError("gone"), actions);
  EXPECT_TRUE(pending_.CheckRoom().ok());
}

}  // namespace
}  // namespace pawl
