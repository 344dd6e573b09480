// The log of events in the cluster.
#ifndef PAWL_SCHEDULER_STATUS_EVENT_LOG_H_
#define PAWL_SCHEDULER_STATUS_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"

namespace pawl {

// How many of the newest events are kept. They are saved with every state of the scheduler.
inline constexpr size_t kMaxEvents = 2000;
inline constexpr size_t kMaxEventTextBytes = 256;

// Numbers and timestamps events, and keeps the newest. Not thread-safe.
class EventLog {
 public:
  // `unix_ms` is the wall clock; null: events have no time.
  explicit EventLog(std::function<uint64_t()> unix_ms) : unix_ms_(std::move(unix_ms)) {}

  // Adds the event with its number and time.
  void Add(ClusterEvent event);
  // The same, for an event without a partition.
  void Add(EventKind kind, const std::string& node, const std::string& text);

  // The events with higher numbers than `after`, ascending.
  std::vector<ClusterEvent> After(uint64_t after) const;
  // The number of events of each kind; after a restart it counts the kept ones.
  const std::map<EventKind, uint64_t>& counts() const { return counts_; }

  StoredEvents Save() const;
  void Restore(const StoredEvents& stored);

 private:
  const std::function<uint64_t()> unix_ms_;
  std::deque<ClusterEvent> events_;
  std::map<EventKind, uint64_t> counts_;
  uint64_t last_number_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_EVENT_LOG_H_
