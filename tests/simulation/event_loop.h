// The events of a simulation, in the order of simulated time, in one thread.
#ifndef PAWL_TESTS_SIMULATION_EVENT_LOOP_H_
#define PAWL_TESTS_SIMULATION_EVENT_LOOP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "client_lib/base/clock.h"

namespace pawl {

// One incarnation of a simulated process. Its events do not run while it is paused or after its
// death.
struct Incarnation {
  Incarnation(std::string name, int site) : name(std::move(name)), site(site) {}

  const std::string name;
  // The machine, for the network.
  const int site;
  bool alive = true;
  bool paused = false;
};

// Random numbers that depend only on the seed.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next();
  // Returns 0 to bound - 1. REQUIRES: bound > 0.
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

// Events at the same time run in the order in which they were scheduled. Not thread-safe.
class EventLoop {
 public:
  using Action = absl::AnyInvocable<void()>;

  // An event that has run, for the trace.
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

  // If `owner` is null, the event belongs to the environment, which neither pauses nor dies. `what`
  // names the event in the trace.
  void Schedule(MonotonicDuration delay, std::shared_ptr<Incarnation> owner, std::string_view what,
                Action action);

  // Runs the next event whose incarnation is alive. Keeps the events of paused incarnations until
  // Resume. Returns false if no event is left.
  bool Step();

  // Runs the events that the incarnation missed, in order.
  void Resume(const std::shared_ptr<Incarnation>& incarnation);

  // Adds a line to the trace.
  void Note(std::string_view what);

  uint64_t events() const { return number_; }
  // A hash of all events so far. Different runs have different hashes with high probability.
  uint64_t hash() const { return hash_; }
  // The last events, oldest first.
  const std::deque<Ran>& trace() const { return trace_; }
  // Prints every event as it runs.
  void PrintEverything() { print_ = true; }

 private:
  // Not 0, because some code uses time 0 as "never".
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

// The clock of one simulated machine, with an offset of its own. While the machine is suspended
// Now() stops; LeaseNow() continues, with drift.
class MachineClock final : public Clock {
 public:
  // `drift`: how much faster LeaseNow runs than simulated time, in parts per million.
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
  // No effect unless suspended.
  void Resume() {
    if (suspended_since_ == MonotonicTime::max()) return;
    suspended_ += loop_.now() - suspended_since_;
    suspended_since_ = MonotonicTime::max();
  }
  bool is_suspended() const { return suspended_since_ != MonotonicTime::max(); }
  // Makes leases use Now().
  void StopLeasesWhileSuspended() { leases_stand_still_ = true; }

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
