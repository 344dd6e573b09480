#include "scheduler/status/event_log.h"

#include <utility>

#include "client_lib/base/bounded_text.h"

namespace pawl {

void EventLog::Add(ClusterEvent event) {
  event.set_number(++last_number_);
  if (unix_ms_ != nullptr) event.set_unix_ms(unix_ms_());
  event.set_text(BoundedText(event.text(), kMaxEventTextBytes));
  ++counts_[event.kind()];
  events_.push_back(std::move(event));
  if (events_.size() > kMaxEvents) events_.pop_front();
}

void EventLog::Add(EventKind kind, const std::string& node, const std::string& text) {
  ClusterEvent event;
  event.set_kind(kind);
  event.set_node(node);
  event.set_text(text);
  Add(std::move(event));
}

std::vector<ClusterEvent> EventLog::After(uint64_t after) const {
  std::vector<ClusterEvent> events;
  for (const ClusterEvent& event : events_) {
    if (event.number() > after) events.push_back(event);
  }
  return events;
}

StoredEvents EventLog::Save() const {
  StoredEvents stored;
  for (const ClusterEvent& event : events_) *stored.add_events() = event;
  stored.set_last_number(last_number_);
  return stored;
}

void EventLog::Restore(const StoredEvents& stored) {
  events_.assign(stored.events().begin(), stored.events().end());
  counts_.clear();
  for (const ClusterEvent& event : events_) ++counts_[event.kind()];
  last_number_ = stored.last_number();
}

}  // namespace pawl
