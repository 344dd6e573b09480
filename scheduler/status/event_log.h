// What has happened to the cluster, for people and programs that ask.
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

// Those that are kept, the last ones; they are saved with every state of the scheduler.
inline constexpr size_t kMaxEvents = 2000;
inline constexpr size_t kMaxEventTextBytes = 256;

// Not thread-safe.
class EventLog {
 public:
  // The wall clock; null: events have no time.
  explicit EventLog(std::function<uint64_t()> unix_ms) : unix_ms_(std::move(unix_ms)) {}

  // Gives the event its number and time.
  void Add(ClusterEvent event);
  // Without a partition.
  void Add(EventKind kind, const std::string& node, const std::string& text);

  // Ascending; those with higher numbers than `after`.
  std::vector<ClusterEvent> After(uint64_t after) const;
  // How many of each kind there were; after a restart, of those that were kept.
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
