#include "scheduler/parked_rpcs.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

class ParkedRpcsTest : public testing::Test {
 protected:
  template <typename Key, typename Response>
  Ticket Park(ParkedCalls<Key, Response>& calls, Key key) {
    const Ticket ticket = parked_.NewTicket();
    calls.Park(ticket, std::move(key), [this, ticket](const absl::StatusOr<Response>& answer) {
      answered_.push_back(ticket);
      last_ = answer.status();
    });
    return ticket;
  }
  void ParkOneOfEach() {
    Park(parked_.routing, RoutingWanted{3, true});
    Park(parked_.tables, 1u);
    Park(parked_.barriers, {"b", 0, "worker-0"});
    Park(parked_.assignments, {"worker-0", 0});
    Park(parked_.joins, std::string("worker-0"));
    Park(parked_.exchanges, {1, "addresses"});
    Park(parked_.watches, uint64_t{1});
    Park(parked_.evaluations, uint64_t{1});
    Park(parked_.checkpoints, std::string("/c"));
  }

  ParkedRpcs parked_;
  std::vector<Ticket> answered_;
  absl::Status last_;
};

TEST_F(ParkedRpcsTest, NoKindIsForgottenWhenAllAreAnswered) {
  ParkOneOfEach();
  {
    DeferredActions actions;
    parked_.AnswerAll(absl::UnavailableError("the job is over"), actions);
    EXPECT_TRUE(answered_.empty()) << "not under the lock";
  }
  EXPECT_EQ(answered_.size(), 9u);
  EXPECT_EQ(last_, absl::UnavailableError("the job is over"));
}

TEST_F(ParkedRpcsTest, ATicketNamesOneCallWhateverItsKind) {
  ParkOneOfEach();
  for (Ticket ticket = 1; ticket <= 9; ++ticket) {
    DeferredActions actions;
    parked_.AnswerOne(ticket, absl::CancelledError("gone"), actions);
    parked_.AnswerOne(ticket, absl::CancelledError("gone"), actions);
  }
  EXPECT_EQ(answered_, (std::vector<Ticket>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(ParkedRpcsTest, AllKindsShareOneLimit) {
  ParkOneOfEach();
  for (size_t i = 9; i < kMaxParkedCalls; ++i) {
    ASSERT_TRUE(parked_.CheckRoom().ok()) << i;
    Park(parked_.routing, RoutingWanted{i, false});
  }
  EXPECT_EQ(parked_.CheckRoom().code(), absl::StatusCode::kResourceExhausted);
  DeferredActions actions;
  parked_.AnswerOne(5, absl::CancelledError("gone"), actions);
  EXPECT_TRUE(parked_.CheckRoom().ok());
}

}  // namespace
}  // namespace pawl
