#include "client_lib/security/admission/connection_ledger.h"

#include <algorithm>
#include <utility>

namespace pawl {
namespace {

// The least that a call adds to its message: metadata, frames and TLS records.
constexpr int64_t kCallOverheadBytes = 1024;
// Frames and TLS records add less than this part of a message.
constexpr int64_t kFramingDivisor = 32;
// A peer that receives answers with window updates, which are less than this part.
constexpr int64_t kAcknowledgementDivisor = 16;
// gRPC is asked for its counts when this much is not explained.
constexpr int64_t kUnexplainedBytes = 256 << 10;
// gRPC needs less time for what belongs to calls that have ended, and real metadata is smaller.
constexpr int kMinStrayLooks = 3;
constexpr uint64_t kMinStrayBytes = uint64_t{1} << 20;
// The most that gRPC needs a second for (LedgerLimits::burst_stray_seconds).
constexpr double kStrayBytesPerSecond = 8 << 20;
constexpr double kMaxStrayDebtSeconds = 5;
// After a longer time the process may have been stopped.
constexpr std::chrono::seconds kMaxLookInterval{2};
// No message is larger (kMaxBulkMessageBytes).
constexpr uint64_t kMaxMessageBytes = uint64_t{64} << 20;
// Counts that agree before calls count as lost: each may be wrong by a call that starts or ends.
constexpr size_t kAgreeingCounts = 5;
// Refusals that gRPC may not have counted as ended yet.
constexpr uint64_t kLateRefusals = 1024;
constexpr absl::string_view kDebtReason = "its calls are refused, or cancelled before they arrive";
// Connections of a peer that offend at the same time count once.
constexpr std::chrono::seconds kOneOffence{1};
// From this offence on a peer loses all its connections.
constexpr int kOffencesOfAll = 2;

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

ConnectionLedger::Connection* ConnectionLedger::Find(const std::string& connection) {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : found->second.get();
}

size_t ConnectionLedger::Add(const std::string& name, MonotonicTime now) {
  MutexLock lock(mu_);
  auto& connection = connections_[name];
  if (connection != nullptr) Remove(*connection);
  connection = std::make_unique<Connection>();
  // The decisions of the gate on an earlier connection's calls may come late: take the slot that
  // has been empty for longest.
  const auto slot =
      std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
        return std::pair(a.connections, a.emptied) < std::pair(b.connections, b.emptied);
      });
  if (slot->connections++ == 0) {
    slot->admitted = slot->gate->passed;
    slot->lost = 0;
    slot->is_doubtful = false;
  }
  connection->slot = static_cast<size_t>(slot - slots_.begin());
  connection->sample.at = now;
  connection->sample.passed = slot->gate->passed;
  connection->refused = slot->gate->refused;
  return connection->slot;
}

void ConnectionLedger::Remove(Connection& connection) {
  SetIncomplete(connection, 0);
  Slot& slot = slots_[connection.slot];
  if (--slot.connections == 0) slot.emptied = ++emptied_;
  if (const auto peer = peers_.find(connection.peer);
      connection.is_identified && peer != peers_.end()) {
    --peer->second.connections;
  }
}

void ConnectionLedger::Sweep(const std::function<bool(const std::string&)>& is_open,
                             MonotonicTime now) {
  MutexLock lock(mu_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto entry = it++;
    if (is_open(entry->first)) continue;
    Remove(*entry->second);
    connections_.erase(entry);
  }
  absl::erase_if(peers_, [&](auto& entry) {
    Peer& peer = entry.second;
    return peer.connections == 0 && peer.stray_seconds.IsFull(now) &&
           peer.forgiven_bytes.IsFull(now) &&
           (peer.offences == 0 || now - peer.offended_at >= limits_.offences_last);
  });
}

ConnectionLedger::Peer& ConnectionLedger::PeerAt(const std::string& name, MonotonicTime now) {
  return peers_.try_emplace(name, limits_, now).first->second;
}

void ConnectionLedger::Identify(const std::string& name, const std::string& peer_name,
                                bool is_trusted, MonotonicTime now) {
  MutexLock lock(mu_);
  Connection* const connection = Find(name);
  if (connection == nullptr || connection->is_identified) return;
  connection->is_identified = true;
  connection->is_trusted = is_trusted;
  connection->peer = NameInTable(peers_, peer_name);
  Peer& peer = PeerAt(connection->peer, now);
  ++peer.connections;
  peer.incomplete_bytes += connection->incomplete_bytes;
  if (is_trusted || now >= peer.excluded_until) return;
  Close(name, *connection, "");
}

void ConnectionLedger::OnAdmitted(const std::string& name, uint64_t bytes) {
  MutexLock lock(mu_);
  Connection* const connection = Find(name);
  if (connection == nullptr) return;
  ++connection->admitted;
  connection->admitted_bytes += bytes;
  ++slots_[connection->slot].admitted;
}

void ConnectionLedger::OnAbandoned(const std::string& name) {
  MutexLock lock(mu_);
  Connection* const connection = Find(name);
  if (connection == nullptr) return;
  ++connection->admitted;
  ++connection->abandoned;
  ++slots_[connection->slot].admitted;
}

uint64_t ConnectionLedger::OpenCalls(Slot& slot) {
  const uint64_t passed = slot.gate->passed;
  if (passed < slot.admitted + slot.lost) {
    slot.lost = Minus(passed, slot.admitted);
    slot.is_doubtful = true;
  }
  return Minus(passed, slot.admitted + slot.lost);
}

int64_t ConnectionLedger::Explained(const Connection& connection, uint64_t sent) {
  const auto admitted_bytes = static_cast<int64_t>(connection.admitted_bytes);
  return admitted_bytes + admitted_bytes / kFramingDivisor +
         static_cast<int64_t>(connection.admitted) * kCallOverheadBytes +
         static_cast<int64_t>(sent) / kAcknowledgementDivisor;
}

void ConnectionLedger::OnBytes(const std::string& name, Bytes bytes, double processor_seconds,
                               MonotonicTime now) {
  MutexLock lock(mu_);
  Connection* const connection = Find(name);
  if (connection == nullptr || connection->is_trusted || connection->is_offender) return;
  Slot& slot = slots_[connection->slot];
  const Sample last = connection->sample;
  Sample sample;
  sample.at = now;
  sample.processor_seconds = processor_seconds;
  sample.received = static_cast<int64_t>(bytes.received);
  sample.explained = Explained(*connection, bytes.sent);
  sample.admitted_bytes = connection->admitted_bytes;
  sample.passed = slot.gate->passed;
  sample.admitted = connection->admitted;
  sample.unread = bytes.unread;
  const uint64_t open = OpenCalls(slot);
  const int64_t received = (sample.received - last.received) - (sample.explained - last.explained);
  const uint64_t stray =
      CountIncomplete(*connection, received, open, now) + std::exchange(connection->stray.found, 0);
  CountStray(name, *connection, sample, stray, open);
  connection->sample = sample;
  connection->unexplained = std::min(connection->unexplained, sample.received - sample.explained);
}

uint64_t ConnectionLedger::CountIncomplete(Connection& connection, int64_t received, uint64_t open,
                                           MonotonicTime now) {
  const int64_t all = static_cast<int64_t>(connection.incomplete_bytes) + received;
  SetIncomplete(connection, static_cast<uint64_t>(std::max<int64_t>(all, 0)));
  Forgive(connection, open, std::exchange(connection.abandoned, 0), now);
  const uint64_t excess = Minus(connection.incomplete_bytes, open * kMaxMessageBytes);
  SetIncomplete(connection, connection.incomplete_bytes - excess);
  // Earlier bytes belong to calls that have ended.
  return std::min(excess, static_cast<uint64_t>(std::max<int64_t>(received, 0)));
}

void ConnectionLedger::Forgive(Connection& connection, uint64_t open, uint64_t ended,
                               MonotonicTime now) {
  if (ended == 0 || !connection.is_identified) return;
  Peer& peer = PeerAt(connection.peer, now);
  // Each call counts with the average.
  const uint64_t kept = connection.incomplete_bytes / (open + ended) * open;
  const auto connections = static_cast<double>(peer.connections);
  const double forgiven = std::min(static_cast<double>(connection.incomplete_bytes - kept),
                                   std::max(peer.forgiven_bytes.TokensAt(now), 0.0) * connections);
  peer.forgiven_bytes.Take(forgiven / connections, now);
  SetIncomplete(connection, connection.incomplete_bytes - static_cast<uint64_t>(forgiven));
}

void ConnectionLedger::SetIncomplete(Connection& connection, uint64_t bytes) {
  if (connection.is_identified) {
    const auto peer = peers_.find(connection.peer);
    if (peer != peers_.end()) peer->second.incomplete_bytes += bytes - connection.incomplete_bytes;
  }
  connection.incomplete_bytes = bytes;
}

void ConnectionLedger::CountStray(const std::string& name, Connection& connection,
                                  const Sample& sample, uint64_t bytes, uint64_t open) {
  const Sample& last = connection.sample;
  const MonotonicDuration interval = sample.at - last.at;
  const bool has_calls = sample.passed != last.passed || sample.admitted != last.admitted;
  // gRPC works on what it has read earlier, unless it serves calls or waits for their messages.
  const bool is_stuck =
      sample.unread > 0 && !has_calls && connection.incomplete_bytes >= open * kMaxMessageBytes;
  if ((bytes == 0 && !is_stuck) || slots_[connection.slot].is_doubtful ||
      interval > kMaxLookInterval) {
    connection.stray = {};
    return;
  }
  double seconds =
      std::min(Seconds(interval), std::max(sample.processor_seconds - last.processor_seconds, 0.0));
  if (!is_stuck) seconds = std::min(seconds, static_cast<double>(bytes) / kStrayBytesPerSecond);
  Stray& stray = connection.stray;
  ++stray.looks;
  stray.bytes += bytes;
  stray.seconds += seconds;
  if (!connection.is_identified || stray.looks < kMinStrayLooks || stray.bytes < kMinStrayBytes)
    return;
  Peer& peer = PeerAt(connection.peer, sample.at);
  peer.stray_seconds.Take(std::exchange(stray.seconds, 0), sample.at, kMaxStrayDebtSeconds);
  if (peer.stray_seconds.TokensAt(sample.at) < 0)
    Offend(name, connection, "it sends bytes that belong to no message", sample.at);
}

void ConnectionLedger::CheckIncomplete(const std::string& name, MonotonicTime now) {
  const Peer& peer = PeerAt(name, now);
  const uint64_t limit = std::max(limits_.max_incomplete_bytes,
                                  peer.connections * limits_.incomplete_bytes_per_connection);
  if (peer.incomplete_bytes <= limit) return;
  // The largest, until the others are far below the limit.
  std::vector<std::pair<uint64_t, std::pair<const std::string*, Connection*>>> largest;
  for (auto& [other, connection] : connections_) {
    if (connection->is_identified && connection->peer == name && !connection->is_offender &&
        connection->incomplete_bytes > 0) {
      largest.push_back({connection->incomplete_bytes, {&other, connection.get()}});
    }
  }
  std::sort(largest.begin(), largest.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [bytes, entry] : largest) {
    // The offence of one may have ended all.
    if (peer.incomplete_bytes <= limit / 2) break;
    Offend(*entry.first, *entry.second, "its messages do not end", now);
  }
}

bool ConnectionLedger::WantsStreams(const std::string& name) {
  MutexLock lock(mu_);
  const Connection* const connection = Find(name);
  return connection != nullptr && connection->is_identified && !connection->is_trusted &&
         !connection->is_offender &&
         connection->sample.received - connection->sample.explained - connection->unexplained >=
             kUnexplainedBytes;
}

void ConnectionLedger::OnStreams(const std::string& name, Streams streams, MonotonicTime now) {
  MutexLock lock(mu_);
  Connection* const found = Find(name);
  if (found == nullptr || !found->is_identified || found->is_trusted || found->is_offender) return;
  Connection& connection = *found;
  Slot& slot = slots_[connection.slot];
  connection.unexplained = connection.sample.received - connection.sample.explained;
  const uint64_t open_streams = Minus(streams.started, streams.ended);
  const uint64_t incomplete = std::min(open_streams, Minus(streams.started, connection.admitted));
  if (slot.connections == 1) CountLost(slot, connection, OpenCalls(slot), open_streams);
  const uint64_t unadmitted = Minus(streams.started, connection.admitted + open_streams);
  if (unadmitted > connection.unadmitted) {
    const uint64_t more = unadmitted - std::exchange(connection.unadmitted, unadmitted);
    const uint64_t refused = TakeRefused(connection, more);
    Forgive(connection, incomplete, more - refused, now);
    const double tokens = static_cast<double>(refused) * kRefusedCost +
                          static_cast<double>(more - refused) * kAbandonedCost;
    if (quotas_->Charge(connection.peer, tokens, now)) Offend(name, connection, kDebtReason, now);
  }
  // The other calls only seemed open, except those that have just been admitted.
  const uint64_t excess = Minus(connection.incomplete_bytes, incomplete * kMaxMessageBytes);
  SetIncomplete(connection, connection.incomplete_bytes - excess);
  connection.stray.found =
      Minus(excess, connection.admitted_bytes - connection.sample.admitted_bytes);
  CheckIncomplete(connection.peer, now);
}

void ConnectionLedger::CountLost(Slot& slot, Connection& connection, uint64_t open,
                                 uint64_t open_streams) {
  connection.excess.push_back(Minus(open, open_streams));
  if (connection.excess.size() > kAgreeingCounts) connection.excess.pop_front();
  const uint64_t lost = *std::min_element(connection.excess.begin(), connection.excess.end());
  if (connection.excess.size() < kAgreeingCounts || lost == 0) return;
  slot.lost += lost;
  for (uint64_t& excess : connection.excess) excess -= lost;
}

uint64_t ConnectionLedger::TakeRefused(Connection& connection, uint64_t calls) {
  const Slot& slot = slots_[connection.slot];
  const uint64_t all = slot.gate->refused;
  // Others may have been refused.
  const bool is_shared = slot.connections > 1;
  const uint64_t refused = is_shared ? 0 : std::min(calls, Minus(all, connection.refused));
  connection.refused =
      is_shared ? all : std::max(connection.refused + refused, Minus(all, kLateRefusals));
  return refused;
}

bool ConnectionLedger::OnDebt(const std::string& name, MonotonicTime now) {
  MutexLock lock(mu_);
  Connection* const connection = Find(name);
  if (connection == nullptr || !connection->is_identified) return true;
  if (connection->is_trusted) return false;
  if (!connection->is_offender) Offend(name, *connection, kDebtReason, now);
  return true;
}

void ConnectionLedger::Close(const std::string& name, Connection& connection,
                             absl::string_view reason) {
  connection.is_offender = true;
  SetIncomplete(connection, 0);
  offenders_.push_back({name, connection.peer, reason});
}

void ConnectionLedger::Offend(const std::string& name, Connection& connection,
                              absl::string_view reason, MonotonicTime now) {
  Close(name, connection, reason);
  // Others on the host may have no certificate either.
  if (UrisOfPeer(connection.peer).empty()) return;
  Peer& peer = PeerAt(connection.peer, now);
  if (peer.offences > 0 && now - peer.offended_at < kOneOffence) return;
  if (now - peer.offended_at >= limits_.offences_last) peer.offences = 0;
  peer.offended_at = now;
  std::chrono::milliseconds exclusion = limits_.first_exclusion;
  for (int i = 0; i < peer.offences && exclusion < limits_.max_exclusion; ++i)
    exclusion *= kExclusionGrowth;
  ++peer.offences;
  peer.excluded_until = now + std::min(exclusion, limits_.max_exclusion);
  excluded_until_ = std::max(excluded_until_, peer.excluded_until);
  if (peer.offences < kOffencesOfAll) return;
  for (auto& [other_name, other] : connections_) {
    if (other->peer == connection.peer && other->is_identified && !other->is_offender)
      Close(other_name, *other, "");
  }
}

std::vector<ConnectionLedger::Offender> ConnectionLedger::TakeOffenders() {
  MutexLock lock(mu_);
  return std::exchange(offenders_, {});
}

bool ConnectionLedger::HasExcluded(MonotonicTime now) {
  MutexLock lock(mu_);
  return now < excluded_until_;
}

}  // namespace pawl
