#include "client_lib/security/admission/peer_quotas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// How often idle peers are removed from a full table.
constexpr std::chrono::seconds kSweepInterval{1};

}  // namespace

struct PeerQuotas::Peer {
  Peer(const PeerLimits& limits, MonotonicTime now)
      : tokens(limits.tokens_per_second, limits.burst_tokens, now) {}

  struct OfKind {
    size_t pending_calls = 0;
    uint64_t pending_bytes = 0;
    std::deque<Call*> waiting;
  };
  std::array<OfKind, kCallKinds> kinds;
  size_t waiting_calls = 0;
  TokenBucket tokens;

  OfKind& Of(const Call& call) { return kinds[static_cast<size_t>(call.cost.kind)]; }
  const OfKind& Of(const Call& call) const { return kinds[static_cast<size_t>(call.cost.kind)]; }
  bool IsIdle() const {
    return waiting_calls == 0 && std::all_of(kinds.begin(), kinds.end(), [](const OfKind& kind) {
             return kind.pending_calls == 0;
           });
  }
};

CallCost CostOf(absl::string_view method) {
  if (method == "/pawl.Parameter/Pull" || method == "/pawl.Parameter/Scan")
    return {CallKind::kPull, 0};
  if (absl::StartsWith(method, "/pawl.Parameter/")) return {CallKind::kPush, 0};
  if (absl::StartsWith(method, "/pawl.Replication/")) return {CallKind::kReplication, 0};
  if (method == "/pawl.Scheduler/Register") return {CallKind::kControl, kRegistrationCost};
  return {CallKind::kControl, 1};
}

std::string PeerName(const std::vector<std::string>& uris, absl::string_view host) {
  std::string name;
  for (const std::string& uri : uris) absl::StrAppend(&name, uri, " ");
  absl::StrAppend(&name, host);
  return name;
}

absl::string_view UrisOfPeer(absl::string_view peer) { return peer.substr(0, peer.rfind(' ') + 1); }

PeerQuotas::Peer& PeerQuotas::PeerAt(const std::string& name, MonotonicTime now, Call& call) {
  if (peers_.size() >= kMaxPeers && !peers_.contains(name) &&
      (!swept_at_.has_value() || now - *swept_at_ >= kSweepInterval)) {
    swept_at_ = now;
    absl::erase_if(peers_, [&](const auto& entry) {
      return entry.second->IsIdle() && entry.second->tokens.IsFull(now);
    });
  }
  std::shared_ptr<Peer>& peer = peers_[NameInTable(peers_, name)];
  if (peer == nullptr) peer = std::make_shared<Peer>(limits_, now);
  call.peer = peer;
  return *peer;
}

bool PeerQuotas::HasRoom(const Peer& peer, const Call& call) const {
  if (call.cost.kind == CallKind::kReplication) return true;
  const Peer::OfKind& kind = peer.Of(call);
  // A single call may exceed the bytes.
  return kind.pending_calls == 0 || (kind.pending_calls < limits_.max_pending_calls &&
                                     kind.pending_bytes + call.bytes <= limits_.max_pending_bytes);
}

void PeerQuotas::Run(Peer& peer, Call& call, MonotonicTime now) {
  Peer::OfKind& kind = peer.Of(call);
  ++kind.pending_calls;
  kind.pending_bytes += call.bytes;
  if (call.cost.tokens > 0) peer.tokens.Take(call.cost.tokens, now, limits_.max_debt_seconds);
  call.runs = true;
}

PeerQuotas::Verdict PeerQuotas::Begin(const std::string& name, Call& call, MonotonicTime now) {
  MutexLock lock(mu_);
  Peer& peer = PeerAt(name, now, call);
  Peer::OfKind& kind = peer.Of(call);
  const double tokens = peer.tokens.TokensAt(now);
  if (kind.waiting.empty() && tokens >= 1 && HasRoom(peer, call)) {
    Run(peer, call, now);
    return Verdict::kRun;
  }
  if (peer.waiting_calls < limits_.max_waiting_calls) {
    kind.waiting.push_back(&call);
    ++peer.waiting_calls;
    ++waiting_;
    ++delayed_;
    with_waiting_.insert(call.peer);
    return Verdict::kWait;
  }
  ++refused_;
  const bool is_deep_in_debt = IsDeepInDebt(peer, now);
  peer.tokens.Take(1, now, limits_.max_debt_seconds);
  return is_deep_in_debt ? Verdict::kRefuseAndClose : Verdict::kRefuse;
}

bool PeerQuotas::IsDeepInDebt(Peer& peer, MonotonicTime now) const {
  return peer.tokens.TokensAt(now) <= -limits_.tokens_per_second * limits_.max_debt_seconds / 2;
}

PeerQuotas::Verdict PeerQuotas::OnAbandoned(const std::string& name, MonotonicTime now) {
  return Charge(name, kAbandonedCost, now) ? Verdict::kRefuseAndClose : Verdict::kRun;
}

bool PeerQuotas::Charge(const std::string& name, double tokens, MonotonicTime now) {
  MutexLock lock(mu_);
  Call call;
  Peer& peer = PeerAt(name, now, call);
  peer.tokens.Take(tokens, now, limits_.max_debt_seconds);
  if (!IsDeepInDebt(peer, now)) return false;
  ++refused_;
  return true;
}

void PeerQuotas::OnRefused(Call& call, MonotonicTime now) {
  MutexLock lock(mu_);
  if (call.peer != nullptr) call.peer->tokens.Take(kRefusedCost, now, limits_.max_debt_seconds);
}

void PeerQuotas::End(Call& call, MonotonicTime) {
  if (!call.runs) return;
  MutexLock lock(mu_);
  Peer::OfKind& kind = call.peer->Of(call);
  --kind.pending_calls;
  kind.pending_bytes -= call.bytes;
  call.runs = false;
}

std::vector<PeerQuotas::Call*> PeerQuotas::TakeReady(MonotonicTime now) {
  std::vector<Call*> ready;
  MutexLock lock(mu_);
  for (auto it = with_waiting_.begin(); it != with_waiting_.end();) {
    const std::shared_ptr<Peer>& peer = *it;
    for (bool moved = true; moved;) {
      moved = false;
      // In turn, so that no kind keeps out another.
      for (Peer::OfKind& kind : peer->kinds) {
        if (kind.waiting.empty() || !peer->tokens.HasToken(now) ||
            !HasRoom(*peer, *kind.waiting.front())) {
          continue;
        }
        Call& call = *kind.waiting.front();
        kind.waiting.pop_front();
        --peer->waiting_calls;
        --waiting_;
        Run(*peer, call, now);
        ready.push_back(&call);
        moved = true;
      }
    }
    if (peer->waiting_calls == 0) {
      with_waiting_.erase(it++);
    } else {
      ++it;
    }
  }
  return ready;
}

std::vector<PeerQuotas::Call*> PeerQuotas::TakeAll() {
  std::vector<Call*> all;
  MutexLock lock(mu_);
  for (const std::shared_ptr<Peer>& peer : with_waiting_) {
    for (Peer::OfKind& kind : peer->kinds) {
      for (Call* const call : kind.waiting) {
        kind.pending_calls += 1;
        kind.pending_bytes += call->bytes;
        call->runs = true;
        all.push_back(call);
      }
      kind.waiting.clear();
    }
    peer->waiting_calls = 0;
  }
  with_waiting_.clear();
  waiting_ = 0;
  return all;
}

std::optional<MonotonicTime> PeerQuotas::NextReady(MonotonicTime now) {
  MutexLock lock(mu_);
  std::optional<MonotonicTime> next;
  for (const std::shared_ptr<Peer>& peer : with_waiting_) {
    bool has_room = false;
    for (const Peer::OfKind& kind : peer->kinds)
      has_room = has_room || (!kind.waiting.empty() && HasRoom(*peer, *kind.waiting.front()));
    // A peer with tokens waits for the end of one of its calls.
    if (!has_room) continue;
    const MonotonicTime at = peer->tokens.HasTokenAt(now);
    next = next.has_value() ? std::min(*next, at) : at;
  }
  return next;
}

}  // namespace pawl
