// Tests the contract of all back ends (collective.h) on Gloo's and on the one that stages for it
// (tested_members.h).
#include "worker/collective/collective.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/testing/tested_members.h"

// Debian's Gloo does not free the addresses of a host that it cannot bind to.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:gloo::transport::tcp::CreateDeviceAttr\n";
}

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Done = Collective::Done;

constexpr CollectiveType kTypes[] = {CollectiveType::kInt64, CollectiveType::kFloat32};
constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMin};
constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 1023, 65537};
constexpr size_t kMembers[] = {1, 2, 3, 4};

template <typename T>
void Put(std::vector<char>& to, size_t at, T value) {
  std::memcpy(to.data() + at * sizeof(T), &value, sizeof(T));
}

std::vector<char> Encode(const std::vector<int>& values, CollectiveType type) {
  std::vector<char> bytes(values.size() * BytesOf(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == CollectiveType::kInt64) {
      Put(bytes, i, int64_t{values[i]});
    } else {
      Put(bytes, i, static_cast<float>(values[i]));
    }
  }
  return bytes;
}

int Reduced(int a, int b, Reduction reduction) {
  return reduction == Reduction::kSum ? a + b : std::min(a, b);
}

// The input of member `place`: 1 to 3, different for each place.
std::vector<int> Input(size_t place, size_t count) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = 1 + static_cast<int>((i * 7 + place * 5 + i / 11) % 3);
  return values;
}

std::vector<int> ReducedInputs(size_t members, size_t count, Reduction reduction) {
  std::vector<int> result = Input(0, count);
  for (size_t place = 1; place < members; ++place) {
    const std::vector<int> input = Input(place, count);
    for (size_t i = 0; i < count; ++i) result[i] = Reduced(result[i], input[i], reduction);
  }
  return result;
}

class CollectiveTest : public testing::TestWithParam<size_t> {};

TEST_P(CollectiveTest, OperationsMatchAPlainLoopForAllTypesAndSizes) {
  const size_t k = GetParam();
  TestedMembers members(k);
  for (const CollectiveType type : kTypes) {
    for (const size_t count : kCounts) {
      for (const Reduction reduction : kReductions) {
        // The reduction of elements does not depend on their number.
        if (count > 7 && reduction != Reduction::kSum) continue;
        SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(type) << " count " << count
                                        << " reduction " << static_cast<int>(reduction));
        const std::vector<char> reduced = Encode(ReducedInputs(k, count, reduction), type);
        const std::vector<char> wide = Encode(ReducedInputs(k, count * k, reduction), type);
        std::vector<char> gathered;
        for (size_t place = 0; place < k; ++place) {
          const std::vector<char> part = Encode(Input(place, count), type);
          gathered.insert(gathered.end(), part.begin(), part.end());
        }
        members.ForEach([&](ConnectableCollective& member) {
          const size_t place = member.place();
          const std::vector<char> input = Encode(Input(place, count), type);
          const auto all_reduce = [&](const void* from, void* to) {
            return Wait([&](Done done) {
              member.AllReduce(from, to, count, type, reduction, kTestTimeout, std::move(done));
            });
          };
          std::vector<char> source = input;
          std::vector<char> output(input.size(), 'x');
          EXPECT_TRUE(all_reduce(source.data(), output.data()).ok());
          EXPECT_EQ(output, reduced) << "all-reduce";
          EXPECT_EQ(source, input) << "the input is not the output";
          EXPECT_TRUE(all_reduce(source.data(), source.data()).ok());
          EXPECT_EQ(source, reduced) << "all-reduce in place";

          const std::vector<char> long_input = Encode(Input(place, count * k), type);
          std::vector<char> share(input.size(), 'x');
          EXPECT_TRUE(Wait([&](Done done) {
                        member.ReduceScatter(long_input.data(), share.data(), count, type,
                                             reduction, kTestTimeout, std::move(done));
                      }).ok());
          EXPECT_EQ(share, std::vector<char>(wide.begin() + place * input.size(),
                                             wide.begin() + (place + 1) * input.size()))
              << "reduce-scatter";
          EXPECT_EQ(long_input, Encode(Input(place, count * k), type));
          std::vector<char> in_place = long_input;
          EXPECT_TRUE(Wait([&](Done done) {
                        member.ReduceScatter(in_place.data(), in_place.data(), count, type,
                                             reduction, kTestTimeout, std::move(done));
                      }).ok());
          EXPECT_TRUE(std::equal(share.begin(), share.end(), in_place.begin()))
              << "reduce-scatter in place";
          if (reduction != Reduction::kSum) return;

          const size_t root = count % k;
          std::vector<char> data = place == root ? input : std::vector<char>(input.size(), 'x');
          EXPECT_TRUE(Wait([&](Done done) {
                        member.Broadcast(data.data(), count, type, root, kTestTimeout,
                                         std::move(done));
                      }).ok());
          EXPECT_EQ(data, Encode(Input(root, count), type)) << "broadcast from " << root;

          std::vector<char> all(gathered.size(), 'x');
          EXPECT_TRUE(Wait([&](Done done) {
                        member.AllGather(input.data(), all.data(), count, type, kTestTimeout,
                                         std::move(done));
                      }).ok());
          EXPECT_EQ(all, gathered) << "all-gather";
          std::fill(all.begin(), all.end(), 'x');
          std::copy(input.begin(), input.end(), all.begin());
          EXPECT_TRUE(Wait([&](Done done) {
                        member.AllGather(all.data(), all.data(), count, type, kTestTimeout,
                                         std::move(done));
                      }).ok());
          EXPECT_EQ(all, gathered) << "all-gather in place";
        });
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(CollectiveTest, ResultsHaveTheSameBitsOnAllMembersAndRuns) {
  const size_t k = GetParam();
  constexpr size_t kCount = 300001;
  // Numbers whose sum depends on the order of addition.
  std::vector<std::vector<float>> inputs(k);
  std::mt19937 random(11);
  for (std::vector<float>& input : inputs) {
    for (size_t i = 0; i < kCount * k; ++i) {
      input.push_back(
          std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 60) - 62));
    }
  }
  std::vector<float> first_sum, first_shares;
  // Two groups of the same members, each twice.
  for (int group = 0; group < 2; ++group) {
    TestedMembers members(k);
    for (int run = 0; run < 2; ++run) {
      std::vector<std::vector<float>> sums(k, std::vector<float>(kCount));
      std::vector<float> shares(kCount * k);
      members.ForEach([&](ConnectableCollective& member) {
        const size_t place = member.place();
        // Members arrive at different times.
        std::this_thread::sleep_for(milliseconds((place * 5 + run * 3) % 7));
        EXPECT_TRUE(Wait([&](Done done) {
                      member.AllReduce(inputs[place].data(), sums[place].data(), kCount,
                                       CollectiveType::kFloat32, Reduction::kSum, kTestTimeout,
                                       std::move(done));
                    }).ok());
        EXPECT_TRUE(Wait([&](Done done) {
                      member.ReduceScatter(inputs[place].data(), shares.data() + place * kCount,
                                           kCount, CollectiveType::kFloat32, Reduction::kSum,
                                           kTestTimeout, std::move(done));
                    }).ok());
      });
      for (size_t place = 1; place < k; ++place) EXPECT_EQ(sums[place], sums[0]) << place;
      if (first_sum.empty()) {
        first_sum = sums[0];
        first_shares = shares;
      }
      EXPECT_EQ(sums[0], first_sum);
      EXPECT_EQ(shares, first_shares);
    }
  }
}

TEST_P(CollectiveTest, ConcurrentOperationsEndInOrder) {
  TestedMembers members(GetParam());
  constexpr int kOperations = 200;
  members.ForEach([&](ConnectableCollective& member) {
    std::vector<int64_t> values(kOperations, 1);
    std::vector<int> order;
    std::promise<void> all;
    for (int i = 0; i < kOperations; ++i) {
      member.AllReduce(&values[i], &values[i], 1, CollectiveType::kInt64, Reduction::kSum,
                       kTestTimeout, [&, i](absl::Status status) {
                         EXPECT_TRUE(status.ok()) << status;
                         order.push_back(i);
                         if (i + 1 == kOperations) all.set_value();
                       });
    }
    all.get_future().wait();
    for (int i = 0; i < kOperations; ++i) {
      EXPECT_EQ(order[i], i);
      EXPECT_EQ(values[i], static_cast<int64_t>(members.size()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Members, CollectiveTest, testing::ValuesIn(kMembers));

// Errors ------------------------------------------------------------------------

// An operation that needs all members.
absl::Status Sum(Collective& member, MonotonicDuration timeout = kTestTimeout,
                 size_t count = 1 << 20) {
  std::vector<float> values(count, 1);
  return Wait([&](Done done) {
    member.AllReduce(values.data(), values.data(), count, CollectiveType::kFloat32, Reduction::kSum,
                     timeout, std::move(done));
  });
}

TEST(CollectiveErrorTest, AbsentMemberIsNotAwaitedBeyondTheDeadline) {
  TestedMembers members(3);
  std::vector<absl::Status> results(3);
  const MonotonicTime begin = Clock::Real().Now();
  members.ForEach([&](ConnectableCollective& member) {
    if (member.place() == 2) return;
    results[member.place()] = Sum(member, milliseconds(300));
  });
  EXPECT_LT(Clock::Real().Now() - begin, seconds(10));
  // One member times out first; its end may be the other's error.
  EXPECT_TRUE(absl::IsDeadlineExceeded(results[0]) || absl::IsDeadlineExceeded(results[1]))
      << results[0] << results[1];
  for (const int place : {0, 1}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(results[place]) || absl::IsUnavailable(results[place]))
        << results[place];
    EXPECT_EQ(Sum(members.member(place)), results[place]) << "the error stays";
  }
  // The late member finds a broken group.
  EXPECT_TRUE(absl::IsUnavailable(Sum(members.member(2)))) << "at once";
}

TEST(CollectiveErrorTest, DeadlineAppliesToTheWholeOperation) {
  TestedMembers members(2);
  absl::Status result;
  const MonotonicTime begin = Clock::Real().Now();
  members.ForEach([&](ConnectableCollective& member) {
    // 160 MiB take longer, but each wait in it, for a piece of 1 MiB, is short.
    const absl::Status status =
        Sum(member, member.place() == 0 ? milliseconds(20) : kTestTimeout, size_t{40} << 20);
    if (member.place() == 0) result = status;
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(result)) << result;
  EXPECT_LT(Clock::Real().Now() - begin, kTestTimeout);
}

TEST(CollectiveErrorTest, AbortEndsTheOperationEverywhere) {
  TestedMembers members(3);
  const absl::Status reason = absl::AbortedError("worker-1 died");
  std::vector<absl::Status> results(3);
  std::atomic<int> waiting{0};
  members.ForEach([&](ConnectableCollective& member) {
    if (member.place() == 2) {
      while (waiting < 2) std::this_thread::yield();
      members.member(0).Abort(reason);
      return;
    }
    ++waiting;
    results[member.place()] = Sum(member, std::chrono::hours(1));
  });
  EXPECT_EQ(results[0], reason);
  EXPECT_TRUE(absl::IsUnavailable(results[1])) << results[1];
  EXPECT_EQ(Sum(members.member(0)), reason);
  members.member(0).Abort(absl::InternalError("another one"));
  EXPECT_EQ(Sum(members.member(0)), reason) << "the first reason stays";
}

TEST(CollectiveErrorTest, AbortOfAnIdleMemberReachesTheOthers) {
  TestedMembers members(2);
  EXPECT_TRUE(members.member(0).status().ok());
  members.member(0).Abort(absl::AbortedError("over"));
  EXPECT_EQ(members.member(0).status(), absl::AbortedError("over"));
  // A member that waits for something else notices as well.
  const MonotonicTime limit = Clock::Real().Now() + kTestTimeout;
  while (members.member(1).status().ok() && Clock::Real().Now() < limit) std::this_thread::yield();
  EXPECT_TRUE(absl::IsUnavailable(members.member(1).status())) << members.member(1).status();
  EXPECT_TRUE(absl::IsUnavailable(Sum(members.member(1), std::chrono::hours(1))));
  EXPECT_EQ(Sum(members.member(0)), absl::AbortedError("over"));
}

TEST(CollectiveErrorTest, LostPeerIsNoticedAtOnce) {
  TestedMembers members(3);
  std::vector<absl::Status> results(3);
  std::atomic<int> waiting{0};
  std::thread dropping([&] {
    while (waiting < 2) std::this_thread::yield();
    members.Drop(2);
  });
  std::vector<std::thread> threads;
  for (const int place : {0, 1}) {
    threads.emplace_back([&, place] {
      ++waiting;
      results[place] = Sum(members.member(place), std::chrono::hours(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  dropping.join();
  EXPECT_TRUE(absl::IsUnavailable(results[0])) << results[0];
  EXPECT_TRUE(absl::IsUnavailable(results[1])) << results[1];
}

TEST(CollectiveErrorTest, DestructionEndsAllOperations) {
  int ended = 0;
  {
    TestedMembers members(2);
    std::vector<float> values(1000);
    for (int i = 0; i < 10; ++i) {
      members.member(0).AllReduce(values.data(), values.data(), values.size(),
                                  CollectiveType::kFloat32, Reduction::kSum, std::chrono::hours(1),
                                  [&](absl::Status status) {
                                    EXPECT_TRUE(absl::IsCancelled(status)) << status;
                                    ++ended;
                                  });
    }
    members.Drop(0);
    EXPECT_EQ(ended, 10);
  }
}

TEST(CollectiveErrorTest, UnknownArgumentsAreRefused) {
  const auto fails = [](const std::function<void(ConnectableCollective&, char*, Done)>& call) {
    TestedMembers members(2);
    char data[64] = {};
    return Wait([&](Done done) { call(members.member(0), data, std::move(done)); });
  };
  EXPECT_TRUE(
      absl::IsInvalidArgument(fails([](ConnectableCollective& member, char* data, Done done) {
        member.AllReduce(data, data, 1, static_cast<CollectiveType>(77), Reduction::kSum,
                         kTestTimeout, std::move(done));
      })));
  EXPECT_TRUE(
      absl::IsInvalidArgument(fails([](ConnectableCollective& member, char* data, Done done) {
        member.AllReduce(data, data, 1, CollectiveType::kInt64, static_cast<Reduction>(77),
                         kTestTimeout, std::move(done));
      })));
  EXPECT_TRUE(
      absl::IsInvalidArgument(fails([](ConnectableCollective& member, char* data, Done done) {
        member.Broadcast(data, 1, CollectiveType::kInt64, 2, kTestTimeout, std::move(done));
      })));
  EXPECT_TRUE(
      absl::IsInvalidArgument(fails([](ConnectableCollective& member, char* data, Done done) {
        member.AllGather(data, data + 8, SIZE_MAX / 4, CollectiveType::kInt64, kTestTimeout,
                         std::move(done));
      })));
}

// Connecting --------------------------------------------------------------------

TEST(CollectiveConnectTest, AbortEndsTheWaitForAnUnconnectedMember) {
  TestedMembers members(2, /*connect=*/false);
  std::promise<absl::Status> connected;
  members.member(0).Connect(members.introductions(), std::chrono::hours(1),
                            [&](absl::Status status) { connected.set_value(status); });
  members.member(0).Abort(absl::AbortedError("over"));
  EXPECT_EQ(connected.get_future().get(), absl::AbortedError("over"));
}

TEST(CollectiveConnectTest, UnconnectedMemberIsNotAwaitedForLong) {
  auto member = GlooCollective::Create({.size = 2, .place = 0, .pair_timeout = milliseconds(200)});
  auto other = GlooCollective::Create({.size = 2, .place = 1});
  ASSERT_TRUE(member.ok() && other.ok());
  const absl::Status status = Wait([&](Done done) {
    (*member)->Connect({(*member)->introduction(), (*other)->introduction()}, milliseconds(200),
                       std::move(done));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) << status;
  EXPECT_EQ(Sum(**member), status) << "it is not connected";
}

TEST(CollectiveConnectTest, LostMemberDoesNotConnect) {
  TestedMembers members(3, /*connect=*/false, milliseconds(300));
  members.Drop(2);
  std::vector<absl::Status> results(3);
  members.ForEach([&](ConnectableCollective& member) {
    results[member.place()] = Wait(
        [&](Done done) { member.Connect(members.introductions(), seconds(2), std::move(done)); });
  });
  for (const int place : {0, 1}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(results[place]) || absl::IsUnavailable(results[place]))
        << results[place];
  }
}

TEST(CollectiveConnectTest, MalformedIntroductionsAreRefused) {
  for (const std::string& bad : {std::string(),
                                 std::string("\x05"
                                             "abc"),
                                 std::string(1, '\0'),
                                 std::string("\x01"
                                             "a\x01"
                                             "b")}) {
    TestedMembers members(2, /*connect=*/false);
    const absl::Status status = Wait([&](Done done) {
      members.member(0).Connect({members.introductions()[0], bad}, kTestTimeout, std::move(done));
    });
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  TestedMembers members(2, /*connect=*/false);
  EXPECT_TRUE(absl::IsInvalidArgument(Wait([&](Done done) {
    members.member(0).Connect({members.introductions()[0]}, kTestTimeout, std::move(done));
  })));
}

TEST(CollectiveConnectTest, OperationsNeedAConnection) {
  TestedMembers members(1, /*connect=*/false);
  EXPECT_TRUE(absl::IsFailedPrecondition(Sum(members.member(0))));
}

TEST(CollectiveConnectTest, InvalidPlaceAndUnreachableHostAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(GlooCollective::Create({.size = 2, .place = 2}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(GlooCollective::Create({.size = kMaxGlooMembers + 1}).status()));
  // An address for documentation that belongs to no machine.
  EXPECT_TRUE(absl::IsFailedPrecondition(
      GlooCollective::Create({.size = 2, .host = "192.0.2.1"}).status()));
}

}  // namespace
}  // namespace pawl
