#include "client_lib/security/admission/connection_ledger.h"

#include <algorithm>
#include <utility>

namespace pawl {
namespace {

// What a call adds to its message, at least: metadata, frames and TLS records.
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

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// The bytes of incomplete messages that belong to the `open` calls. The others are no longer in
// memory; calls count with their average.
uint64_t WithoutEnded(uint64_t bytes, uint64_t open, uint64_t ended) {
  return ended == 0 ? bytes : bytes / (open + ended) * open;
}

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
    slot->lost = Minus(slot->gate->passed, slot->admitted);
    slot->is_doubtful = false;
  }
  connection->slot = static_cast<size_t>(slot - slots_.begin());
  connection->passed = slot->gate->passed;
  connection->refused = slot->gate->refused;
  connection->sampled_at = now;
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
  // Peers beyond the table share the limits of one.
  const bool has_room = peers_.size() < kMaxPeers || peers_.contains(peer_name);
  connection->peer = has_room ? peer_name : "";
  Peer& peer = PeerAt(connection->peer, now);
  ++peer.connections;
  peer.incomplete_bytes += connection->incomplete_bytes;
  if (is_trusted || now >= peer.excluded_until) return;
  connection->is_offender = true;
  offenders_.push_back({name, connection->peer, ""});
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
  return passed - slot.admitted - slot.lost;
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
  Connection* const found = Find(name);
  if (found == nullptr || found->is_trusted || found->is_offender) return;
  Connection& connection = *found;
  Slot& slot = slots_[connection.slot];
  const uint64_t passed = slot.gate->passed;
  const uint64_t open = OpenCalls(slot);
  const auto received = static_cast<int64_t>(bytes.received);
  const int64_t explained = Explained(connection, bytes.sent);
  const int64_t growth = (received - connection.received) - (explained - connection.explained);
  const bool has_call = slot.is_doubtful || connection.had_open_calls || open > 0 ||
                        passed != connection.passed ||
                        connection.admitted != connection.admitted_then;
  const bool is_busy = bytes.unread > 0 || growth > 0;
  const double seconds = Seconds(now - connection.sampled_at);
  if (!has_call && is_busy && now - connection.sampled_at <= kMaxLookInterval) {
    ++connection.stray_looks;
    connection.stray_bytes += static_cast<uint64_t>(std::max<int64_t>(growth, 0));
    connection.stray_seconds +=
        std::min(seconds, std::max(processor_seconds - connection.processor_seconds, 0.0));
    CheckStray(name, connection, now);
  } else {
    connection.stray_looks = 0;
    connection.stray_bytes = 0;
    connection.stray_seconds = 0;
  }
  if (has_call) {
    const int64_t incomplete =
        std::max<int64_t>(static_cast<int64_t>(connection.incomplete_bytes) + growth, 0);
    SetIncomplete(connection, std::min(static_cast<uint64_t>(incomplete), open * kMaxMessageBytes));
  }
  connection.sampled_at = now;
  connection.processor_seconds = processor_seconds;
  connection.received = received;
  connection.explained = explained;
  connection.passed = passed;
  connection.admitted_then = connection.admitted;
  connection.had_open_calls = open > 0;
  connection.unexplained = std::min(connection.unexplained, received - explained);
}

void ConnectionLedger::SetIncomplete(Connection& connection, uint64_t bytes) {
  if (connection.is_identified) {
    const auto peer = peers_.find(connection.peer);
    if (peer != peers_.end()) peer->second.incomplete_bytes += bytes - connection.incomplete_bytes;
  }
  connection.incomplete_bytes = bytes;
}

void ConnectionLedger::CheckStray(const std::string& name, Connection& connection,
                                  MonotonicTime now) {
  if (!connection.is_identified || connection.stray_looks < kMinStrayLooks ||
      connection.stray_bytes < kMinStrayBytes) {
    return;
  }
  Peer& peer = PeerAt(connection.peer, now);
  peer.stray_seconds.Take(connection.stray_seconds, now, kMaxStrayDebtSeconds);
  connection.stray_seconds = 0;
  if (peer.stray_seconds.TokensAt(now) < 0)
    Offend(name, connection, "it sends bytes that belong to no message", now);
}

void ConnectionLedger::CheckIncomplete(const std::string& name, MonotonicTime now) {
  const Peer& peer = PeerAt(name, now);
  const uint64_t limit = limits_.max_incomplete_bytes >> std::min<int>(peer.offences, kMaxHalvings);
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
    if (peer.incomplete_bytes <= limit / 2) break;
    Offend(*entry.first, *entry.second, "its messages do not end", now);
  }
}

bool ConnectionLedger::WantsStreams(const std::string& name) {
  MutexLock lock(mu_);
  const Connection* const connection = Find(name);
  return connection != nullptr && connection->is_identified && !connection->is_trusted &&
         !connection->is_offender &&
         connection->received - connection->explained - connection->unexplained >=
             kUnexplainedBytes;
}

void ConnectionLedger::OnStreams(const std::string& name, Streams streams, MonotonicTime now) {
  MutexLock lock(mu_);
  Connection* const found = Find(name);
  if (found == nullptr || !found->is_identified || found->is_trusted || found->is_offender) return;
  Connection& connection = *found;
  Slot& slot = slots_[connection.slot];
  connection.unexplained = connection.received - connection.explained;
  const uint64_t open_streams = Minus(streams.started, streams.ended);
  const uint64_t incomplete = std::min(open_streams, Minus(streams.started, connection.admitted));
  if (slot.connections == 1) {
    const uint64_t open = OpenCalls(slot);
    // The bytes were attributed to all that seemed open.
    if (open > incomplete) {
      SetIncomplete(connection,
                    WithoutEnded(connection.incomplete_bytes, incomplete, open - incomplete));
    }
    connection.excess.push_back(Minus(open, open_streams));
    if (connection.excess.size() > kAgreeingCounts) connection.excess.pop_front();
    const uint64_t lost = *std::min_element(connection.excess.begin(), connection.excess.end());
    if (connection.excess.size() == kAgreeingCounts && lost > 0) {
      slot.lost += lost;
      for (uint64_t& excess : connection.excess) excess -= lost;
    }
  }
  const uint64_t unadmitted = Minus(streams.started, connection.admitted + open_streams);
  if (unadmitted > connection.unadmitted) {
    const uint64_t more = unadmitted - connection.unadmitted;
    connection.unadmitted = unadmitted;
    SetIncomplete(connection, WithoutEnded(connection.incomplete_bytes, incomplete, more));
    ChargeUnadmitted(name, connection, more, now);
  }
  CheckIncomplete(connection.peer, now);
}

void ConnectionLedger::ChargeUnadmitted(const std::string& name, Connection& connection,
                                        uint64_t calls, MonotonicTime now) {
  const uint64_t all_refused = slots_[connection.slot].gate->refused;
  const uint64_t refused = std::min(calls, Minus(all_refused, connection.refused));
  connection.refused = std::max(connection.refused + refused, Minus(all_refused, kLateRefusals));
  const double tokens = static_cast<double>(refused) * kRefusedCost +
                        static_cast<double>(calls - refused) * kAbandonedCost;
  if (quotas_->Charge(connection.peer, tokens, now)) Offend(name, connection, kDebtReason, now);
}

void ConnectionLedger::OnDebt(const std::string& name, MonotonicTime now) {
  MutexLock lock(mu_);
  Connection* const connection = Find(name);
  if (connection == nullptr || !connection->is_identified || connection->is_offender) return;
  Offend(name, *connection, kDebtReason, now);
}

void ConnectionLedger::Offend(const std::string& name, Connection& connection,
                              absl::string_view reason, MonotonicTime now) {
  connection.is_offender = true;
  SetIncomplete(connection, 0);
  offenders_.push_back({name, connection.peer, reason});
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
