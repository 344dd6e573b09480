#include "tests/simulation/event_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace pawl {
namespace {

constexpr size_t kTraceLength = 400;
constexpr uint64_t kFnvPrime = 1099511628211u;

}  // namespace

uint64_t SeededRandom::Next() {
  // SplitMix64 (Steele, Lea, Flood 2014).
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

EventLoop::~EventLoop() = default;

void EventLoop::Schedule(MonotonicDuration delay, std::shared_ptr<Incarnation> owner,
                         std::string_view what, Action action) {
  if (owner != nullptr && !owner->alive) return;
  // Prevents an overflow by far deadlines.
  delay = std::clamp<MonotonicDuration>(delay, MonotonicDuration::zero(), std::chrono::hours(24));
  events_.emplace(std::pair(now_ + delay, next_++),
                  Event{std::move(owner), std::string(what), std::move(action)});
}

bool EventLoop::Step() {
  while (!events_.empty()) {
    const auto first = events_.begin();
    now_ = std::max(now_, first->first.first);
    Event event = std::move(first->second);
    events_.erase(first);
    if (event.owner != nullptr && !event.owner->alive) continue;
    if (event.owner != nullptr && event.owner->paused) {
      const std::shared_ptr<Incarnation> owner = event.owner;
      held_[owner].push_back(std::move(event));
      continue;
    }
    Trace(event.owner == nullptr ? std::string_view() : std::string_view(event.owner->name),
          event.what);
    event.action();
    return true;
  }
  return false;
}

void EventLoop::Resume(const std::shared_ptr<Incarnation>& incarnation) {
  incarnation->paused = false;
  const auto held = held_.find(incarnation);
  if (held == held_.end()) return;
  for (Event& event : held->second) events_.emplace(std::pair(now_, next_++), std::move(event));
  held_.erase(held);
}

void EventLoop::Note(std::string_view what) { Trace("", what); }

void EventLoop::Trace(std::string_view owner, std::string_view what) {
  ++number_;
  const auto mix = [this](std::string_view bytes) {
    for (const char c : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * kFnvPrime;
  };
  const auto at = static_cast<uint64_t>(elapsed().count());
  for (int shift = 0; shift < 64; shift += 8) hash_ = (hash_ ^ ((at >> shift) & 0xff)) * kFnvPrime;
  mix(owner);
  mix(what);
  trace_.push_back({elapsed(), number_, std::string(owner), std::string(what)});
  if (trace_.size() > kTraceLength) trace_.pop_front();
  if (print_) {
    std::printf("%12.6f #%llu %.*s: %.*s\n", Seconds(elapsed()),
                static_cast<unsigned long long>(number_), static_cast<int>(owner.size()),
                owner.data(), static_cast<int>(what.size()), what.data());
  }
}

}  // namespace pawl
