// What happens in a simulation, in the order of the simulated time, in one thread.
#ifndef PAWL_TESTS_SIMULATION_EVENT_LOOP_H_
#define PAWL_TESTS_SIMULATION_EVENT_LOOP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "client_lib/base/clock.h"

namespace pawl {

// One incarnation of a simulated process: nothing of it happens while it is paused, or after its
// death.
struct Incarnation {
  Incarnation(std::string name, int site) : name(std::move(name)), site(site) {}

  const std::string name;
  // The machine, as far as the network is concerned.
  const int site;
  bool alive = true;
  bool paused = false;
};

// Random numbers that are the same on every machine for the same seed.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next();
  // 0 to bound - 1. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1.0p-53 < probability;
  }
  MonotonicDuration Between(MonotonicDuration low, MonotonicDuration high) {
    return MonotonicDuration(static_cast<MonotonicDuration::rep>(
        Between(static_cast<uint64_t>(low.count()), static_cast<uint64_t>(high.count()))));
  }

 private:
  uint64_t state_;
};

// Not thread-safe. Events at the same time run in the order in which they were scheduled.
class EventLoop {
 public:
  using Action = absl::AnyInvocable<void()>;

  // For the trace: an event that has run.
  struct Ran {
    MonotonicDuration at;
    uint64_t number;
    std::string owner;
    std::string what;
  };

  EventLoop() = default;
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  MonotonicTime now() const { return now_; }
  MonotonicDuration elapsed() const { return now_ - kBegin; }

  // `owner` null: the world, which is neither paused nor dies. `what` names the event in the trace.
  void Schedule(MonotonicDuration delay, std::shared_ptr<Incarnation> owner, std::string_view what,
                Action action);

  // Runs the next event that is not a dead incarnation's; those of paused lives are kept until
  // Resume. False: there is none.
  bool Step();

  // What the incarnation has missed happens now, in order.
  void Resume(const std::shared_ptr<Incarnation>& incarnation);

  // Adds a line to the trace.
  void Note(std::string_view what);

  uint64_t events() const { return number_; }
  // Of all that has happened so far: equal for equal runs, and hardly otherwise.
  uint64_t hash() const { return hash_; }
  // The last events, oldest first.
  const std::deque<Ran>& trace() const { return trace_; }
  // Prints every event as it runs.
  void PrintEverything() { print_ = true; }

 private:
  // Not 0: some code takes the beginning of time for "never".
  static constexpr MonotonicTime kBegin{std::chrono::hours(1)};

  struct Event {
    std::shared_ptr<Incarnation> owner;
    std::string what;
    Action action;
  };

  void Trace(std::string_view owner, std::string_view what);

  MonotonicTime now_ = kBegin;
  uint64_t next_ = 0;
  uint64_t number_ = 0;
  uint64_t hash_ = 14695981039346656037u;
  bool print_ = false;
  std::map<std::pair<MonotonicTime, uint64_t>, Event> events_;
  std::map<std::shared_ptr<Incarnation>, std::deque<Event>> held_;
  std::deque<Ran> trace_;
};

// The clock of one simulated machine, which began to count elsewhere. Now() stands still while the
// machine is suspended, LeaseNow() goes on and drifts.
class MachineClock final : public Clock {
 public:
  // `drift`: by how much LeaseNow is faster than the world, in parts of a million.
  MachineClock(const EventLoop& loop, MonotonicDuration offset, int drift = 0)
      : loop_(loop), offset_(offset), drift_(drift) {}

  MonotonicTime Now() const override {
    const MonotonicDuration still = suspended_since_ == MonotonicTime::max()
                                        ? MonotonicDuration::zero()
                                        : loop_.now() - suspended_since_;
    return loop_.now() + offset_ - suspended_ - still;
  }
  MonotonicTime LeaseNow() const override {
    if (leases_stand_still_) return Now();
    return loop_.now() + offset_ + loop_.elapsed() / 1'000'000 * drift_;
  }

  void Suspend() { suspended_since_ = loop_.now(); }
  // Without effect unless suspended.
  void Resume() {
    if (suspended_since_ == MonotonicTime::max()) return;
    suspended_ += loop_.now() - suspended_since_;
    suspended_since_ = MonotonicTime::max();
  }
  bool is_suspended() const { return suspended_since_ != MonotonicTime::max(); }
  // As if leases ran on Now().
  void LetLeasesStandStill() { leases_stand_still_ = true; }

 private:
  const EventLoop& loop_;
  const MonotonicDuration offset_;
  const int drift_;
  bool leases_stand_still_ = false;
  MonotonicDuration suspended_{};
  MonotonicTime suspended_since_ = MonotonicTime::max();
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_EVENT_LOOP_H_
