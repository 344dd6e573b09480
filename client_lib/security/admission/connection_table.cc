#include "client_lib/security/admission/connection_table.h"

#include <algorithm>
#include <utility>

namespace pawl {

bool ConnectionTable::HasRoomFor(const RemoteAddress& remote) const {
  const auto host = hosts_.find(remote.host);
  return host == hosts_.end() || host->second.connections < limits_.max_connections_per_host;
}

void ConnectionTable::Add(int descriptor, uint64_t inode, const RemoteAddress& remote,
                          MonotonicTime now) {
  if (connections_.contains(descriptor)) Remove(descriptor);
  connections_.try_emplace(descriptor, Connection{inode, remote, Phase::kSilent, now});
  by_address_[remote.connection] = descriptor;
  Host& host = hosts_.try_emplace(remote.host, limits_, now).first->second;
  ++host.connections;
  ++host.silent;
  host.arrivals.emplace_back(descriptor, inode);
  arrivals_.emplace_back(descriptor, inode);
}

const ConnectionTable::Connection* ConnectionTable::Find(int descriptor) const {
  const auto found = connections_.find(descriptor);
  return found == connections_.end() ? nullptr : &found->second;
}

void ConnectionTable::Remove(int descriptor) {
  const auto found = connections_.find(descriptor);
  const Connection& connection = found->second;
  Host& host = hosts_.find(connection.remote.host)->second;
  --host.connections;
  if (connection.phase == Phase::kSilent) --host.silent;
  if (connection.phase == Phase::kQueued) --queued_;
  const auto address = by_address_.find(connection.remote.connection);
  if (address != by_address_.end() && address->second == descriptor) by_address_.erase(address);
  connections_.erase(found);
}

bool ConnectionTable::Is(const std::pair<int, uint64_t>& entry, Phase phase) const {
  const Connection* const connection = Find(entry.first);
  return connection != nullptr && connection->inode == entry.second && connection->phase == phase;
}

std::optional<int> ConnectionTable::SilentBeyondLimit(const std::string& name) {
  const auto found = hosts_.find(name);
  if (found == hosts_.end()) return std::nullopt;
  Host& host = found->second;
  while (!host.arrivals.empty() && !Is(host.arrivals.front(), Phase::kSilent))
    host.arrivals.pop_front();
  if (host.silent <= limits_.max_silent_per_host) return std::nullopt;
  return host.arrivals.front().first;
}

std::optional<int> ConnectionTable::OldestSilent() {
  for (const auto& entry : arrivals_) {
    if (Is(entry, Phase::kSilent)) return entry.first;
  }
  return std::nullopt;
}

void ConnectionTable::SetQueued(int descriptor) {
  Connection& connection = connections_.find(descriptor)->second;
  connection.phase = Phase::kQueued;
  Host& host = hosts_.find(connection.remote.host)->second;
  --host.silent;
  ++queued_;
  host.queue.emplace_back(descriptor, connection.inode);
}

std::vector<int> ConnectionTable::TakeTurns(MonotonicTime now) {
  std::vector<int> turns;
  if (queued_ == 0) return turns;
  for (auto& [name, host] : hosts_) {
    while (!host.queue.empty()) {
      const auto entry = host.queue.front();
      if (Is(entry, Phase::kQueued)) {
        if (!host.handshakes.HasToken(now)) break;
        host.handshakes.Take(1, now);
        connections_.find(entry.first)->second.phase = Phase::kHandedOver;
        --queued_;
        turns.push_back(entry.first);
      }
      host.queue.pop_front();
    }
  }
  return turns;
}

void ConnectionTable::OnShutDown(int descriptor, MonotonicTime now) {
  Connection& connection = connections_.find(descriptor)->second;
  if (std::exchange(connection.is_shut_down, true)) return;
  hosts_.find(connection.remote.host)->second.handshakes.Take(kExcludedHandshakes, now);
}

std::vector<int> ConnectionTable::Overdue(MonotonicTime now) {
  std::vector<int> overdue;
  while (!arrivals_.empty()) {
    const auto entry = arrivals_.front();
    if (Is(entry, Phase::kSilent) || Is(entry, Phase::kQueued)) {
      if (now - Find(entry.first)->since < limits_.max_silence) break;
      overdue.push_back(entry.first);
    }
    arrivals_.pop_front();
  }
  return overdue;
}

std::vector<int> ConnectionTable::NotHandedOver() const {
  std::vector<int> descriptors;
  for (const auto& [descriptor, connection] : connections_) {
    if (connection.phase != Phase::kHandedOver) descriptors.push_back(descriptor);
  }
  return descriptors;
}

void ConnectionTable::Sweep(MonotonicTime now,
                            const std::function<bool(int descriptor, uint64_t inode)>& is_open) {
  std::vector<int> ended;
  for (const auto& [descriptor, connection] : connections_) {
    if (connection.phase == Phase::kHandedOver && !is_open(descriptor, connection.inode))
      ended.push_back(descriptor);
  }
  for (const int descriptor : ended) Remove(descriptor);
  // A host without connections keeps its place until it has all its handshakes back.
  absl::erase_if(hosts_, [&](auto& entry) {
    return entry.second.connections == 0 && entry.second.handshakes.IsFull(now);
  });
}

std::optional<int> ConnectionTable::DescriptorOf(const std::string& connection) const {
  const auto found = by_address_.find(connection);
  return found == by_address_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace pawl
