// All members of a group in one process, each with a thread of its own.
#ifndef PAWL_WORKER_COLLECTIVE_TESTING_MEMBERS_IN_THREADS_H_
#define PAWL_WORKER_COLLECTIVE_TESTING_MEMBERS_IN_THREADS_H_

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/rpc/futures.h"
#include "gtest/gtest.h"
#include "worker/collective/gloo/collective.h"

namespace pawl {

inline constexpr std::chrono::seconds kTestTimeout{30};
// Operations have ended by then.
inline constexpr std::chrono::seconds kEndLimit{2 * kTestTimeout};

// Waits for the operation that `call` starts with the given Done.
inline absl::Status Wait(const std::function<void(Collective::Done)>& call) {
  std::future<absl::Status> ended;
  call(Fulfilling(ended));
  if (ended.wait_for(kEndLimit) == std::future_status::ready) return ended.get();
  return absl::DeadlineExceededError("the operation has not ended long after its own deadline");
}

template <typename Member>
class MembersOf {
 public:
  using Make =
      std::function<absl::StatusOr<std::unique_ptr<Member>>(const GlooCollective::Options&)>;

  // Connects the members unless `connect` is false.
  MembersOf(const Make& make, size_t size, bool connect, std::chrono::milliseconds pair_timeout) {
    for (size_t place = 0; place < size; ++place) {
      auto member = make({.size = size, .place = place, .pair_timeout = pair_timeout});
      EXPECT_TRUE(member.ok()) << member.status();
      members_.push_back(*std::move(member));
      introductions_.push_back(members_.back()->introduction());
    }
    if (!connect) return;
    ForEach([this](Member& member) {
      const absl::Status status = Wait([&](Collective::Done done) {
        member.Connect(introductions_, kTestTimeout, std::move(done));
      });
      EXPECT_TRUE(status.ok()) << status;
    });
  }

  size_t size() const { return members_.size(); }
  Member& member(size_t place) { return *members_[place]; }
  const std::vector<std::string>& introductions() const { return introductions_; }
  // Simulates the death of a member's process, as seen by the others.
  void Drop(size_t place) { members_[place].reset(); }

  // Runs `action` for all members concurrently; returns when all are done.
  void ForEach(const std::function<void(Member&)>& action) {
    std::vector<std::thread> threads;
    for (const auto& member : members_) {
      if (member != nullptr) threads.emplace_back([&] { action(*member); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::string> introductions_;
};

// Members of Gloo's back end.
class MembersInThreads : public MembersOf<GlooCollective> {
 public:
  explicit MembersInThreads(size_t size, bool connect = true,
                            std::chrono::milliseconds pair_timeout = kTestTimeout)
      : MembersOf<GlooCollective>(GlooCollective::Create, size, connect, pair_timeout) {}
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_TESTING_MEMBERS_IN_THREADS_H_
