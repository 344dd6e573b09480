#include "scheduler/membership/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/transport.h"
#include "scheduler/status/user_metrics.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

const char* RoleWord(Role role) {
  switch (role) {
    case SERVER_ROLE:
      return "server";
    case WORKER_ROLE:
      return "worker";
    default:
      return "client";
  }
}

// The number in the name of a node of this role, if it is below the limit.
std::optional<uint32_t> NumberInName(const std::string& name, Role role, uint32_t limit) {
  const std::string prefix = absl::StrCat(RoleWord(role), "-");
  uint32_t number = 0;
  if (!absl::SimpleAtoi(absl::StripPrefix(name, prefix), &number) || number >= limit ||
      name != absl::StrCat(prefix, number)) {
    return std::nullopt;
  }
  return number;
}

// OK unless the request is older than the node's last registration, or impossibly newer.
absl::Status CheckOrder(const RegisterRequest& request, const Node& node) {
  if (request.process_nonce() == node.process_nonce &&
      (node.role != request.role() || node.address != request.address())) {
    return absl::InvalidArgumentError(absl::StrCat("process_nonce belongs to ", NodeText(node)));
  }
  if (request.start_count() > uint64_t{node.start_count} + kMaxStartCountStep) {
    return absl::InvalidArgumentError(absl::StrCat("start_count is ", request.start_count(),
                                                   ", and ", node.name, " has registered with ",
                                                   node.start_count));
  }
  const auto sent = std::pair(request.start_count(), request.registration());
  const auto known = std::pair(node.start_count, node.registration);
  if (request.process_nonce() != node.process_nonce && sent.first == known.first) {
    // The order of processes that do not count their starts is unknown. Two processes with the same
    // count have copies of one data directory.
    if (sent.first == 0) return absl::OkStatus();
  } else if (sent >= known) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat("this registration as ", node.name, " is of incarnation ", sent.first,
                   ", registration ", sent.second, ", and ", NodeText(node),
                   " has registered in incarnation ", known.first, ", registration ", known.second,
                   ": it is late, or from a copy of that node's data directory"));
}

}  // namespace

std::string NodeText(const Node& node) {
  std::string inside = node.description;
  if (!node.address.empty()) absl::StrAppend(&inside, inside.empty() ? "" : ", ", node.address);
  return inside.empty() ? node.name : absl::StrCat(node.name, " (", inside, ")");
}

bool IsRepeated(const RegisterRequest& request, const Node& node) {
  return request.process_nonce() == node.process_nonce &&
         request.registration() == node.registration;
}

absl::Status Membership::CheckReplaceable(uint64_t claimant, Node& node, MonotonicTime now) const {
  if (claimant != node.claimant) {
    node.claimant = claimant;
    node.claimant_since = now;
    node.claimant_is_refused = false;
  }
  if (node.claimant_is_refused) {
    const char* const folder =
        node.role == WORKER_ROLE
            ? "an empty --data_dir (pawl-worker) or PAWL_WORKER_DIR (Python), or without "
              "options.node (C, C++),"
            : "an empty --data_dir";
    absl::Status status = absl::AlreadyExistsError(
        absl::StrCat(NodeText(node), ", incarnation ", node.incarnation,
                     ", is alive and sends heartbeats: this process has a copy of ", node.name,
                     "'s data directory. Start it with ", folder, " to add a ", RoleWord(node.role),
                     ", or end ", node.name, " first"));
    status.SetPayload(kPushbackPayloadUrl, absl::Cord(kNeverAgain));
    return status;
  }
  // A node that this scheduler has never heard may not have found the scheduler yet.
  const MonotonicTime heard =
      node.has_sent_heartbeat ? node.last_heard : std::min(node.last_heard, node.claimant_since);
  const MonotonicDuration left = heard + options_.silence - now;
  if (left <= MonotonicDuration::zero()) return absl::OkStatus();
  absl::Status status = absl::UnavailableError(
      absl::StrCat(NodeText(node), ", incarnation ", node.incarnation,
                   ", may still be alive: it is replaced once it has ", "sent no heartbeat for ",
                   Seconds(options_.silence), " s"));
  const int64_t milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
  status.SetPayload(kPushbackPayloadUrl, absl::Cord(absl::StrCat(milliseconds)));
  return status;
}

absl::Status Membership::CheckRoom(Role role) const {
  // NextNumber limits the clients.
  if (role == CLIENT_ROLE) return absl::OkStatus();
  const uint32_t limit = role == SERVER_ROLE ? kMaxServers : kMaxWorkers;
  if (Present(role).size() < limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("there are ", limit, " ", RoleWord(role), "s, the limit"));
}

absl::Status Membership::CheckRoomForReader() const {
  const std::vector<const Node*> clients = Present(CLIENT_ROLE);
  const auto readers = std::count_if(clients.begin(), clients.end(),
                                     [](const Node* client) { return client->only_reads; });
  if (static_cast<size_t>(readers) < kMaxReaders) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("there are ", kMaxReaders,
                   " clients with a certificate or token for the roles reader and operator, the "
                   "limit; end one, or wait for a lease to run out"));
}

absl::StatusOr<uint32_t> Membership::NextNumber(const RegisterRequest& request) {
  const Role role = request.role();
  PAWL_RETURN_IF_ERROR(CheckRoom(role));
  if (role == WORKER_ROLE) return next_worker_++;
  // A node that was forgotten, or that is known only from a lost state, gets its number again. A
  // server's data directory contains its name, and another client with this client's number would
  // block its pushes.
  if (const std::optional<uint32_t> former =
          NumberInName(request.node(), role, role == SERVER_ROLE ? next_server_ : kMaxClients);
      former.has_value() && request.job_id() == options_.job_id &&
      !nodes_.contains({role, *former})) {
    return *former;
  }
  if (role == SERVER_ROLE) return next_server_++;
  for (uint32_t tried = 0; tried < kMaxClients; ++tried) {
    const uint32_t number = next_client_;
    next_client_ = (next_client_ + 1) % kMaxClients;
    if (!nodes_.contains({role, number})) return number;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "there are ", kMaxClients, " clients, the limit; end one, or wait for a lease to run out"));
}

const Node* Membership::FindReturning(const RegisterRequest& request) const {
  if (const auto it = by_nonce_.find(request.process_nonce()); it != by_nonce_.end()) {
    // A late registration may have given a forgotten client another name.
    const bool is_another =
        request.role() == CLIENT_ROLE && !request.node().empty() && request.node() != it->second;
    if (!is_another) return FindByName(it->second);
  }
  if (request.role() == CLIENT_ROLE || request.node().empty()) return nullptr;
  if (request.job_id() != 0 && request.job_id() != options_.job_id) return nullptr;
  const Node* const node = FindByName(request.node());
  return node != nullptr && node->role == request.role() ? node : nullptr;
}

absl::StatusOr<Membership::Registration> Membership::Register(const RegisterRequest& request,
                                                              MonotonicTime now, bool only_reads) {
  PAWL_RETURN_IF_ERROR(CheckRegistration(request));
  const Node* const before = FindReturning(request);
  if (before != nullptr) {
    PAWL_RETURN_IF_ERROR(CheckOrder(request, *before));
    if (before->gone && IsRepeated(request, *before) && request.registration() != 0) {
      // It may be late, from a dead process, so it begins no incarnation. A living process
      // registers once more.
      return absl::AbortedError(
          absl::StrCat("registration ", request.registration(), " of ", before->name,
                       " started an incarnation that has ended; register with a higher number"));
    }
    if (!before->gone && IsRepeated(request, *before)) {
      Node& node = nodes_.at(by_name_.at(before->name));
      if (node.refused) {
        return absl::UnavailableError(
            absl::StrCat(node.name, " has adopted no routing for too long; its lease expires"));
      }
      node.last_heard = now;
      return Registration{&node, false};
    }
    if (!before->gone && request.process_nonce() != before->process_nonce) {
      PAWL_RETURN_IF_ERROR(
          CheckReplaceable(request.process_nonce(), nodes_.at(by_name_.at(before->name)), now));
    }
  }
  if (request.role() == SERVER_ROLE) {
    for (const Node* other : Present(SERVER_ROLE)) {
      if (other->address == request.address() && other != before) {
        return absl::AlreadyExistsError(
            absl::StrCat("address ", request.address(), " is that of ", NodeText(*other)));
      }
    }
  }
  Registration registration{nullptr, true};
  Node node;
  if (before == nullptr) {
    if (only_reads) PAWL_RETURN_IF_ERROR(CheckRoomForReader());
    PAWL_ASSIGN_OR_RETURN(node.number, NextNumber(request));
    node.name = absl::StrCat(RoleWord(request.role()), "-", node.number);
  } else {
    if (before->gone) PAWL_RETURN_IF_ERROR(CheckRoom(before->role));
    registration.returned = true;
    if (!before->gone) registration.former = *before;
    node.name = before->name;
    node.number = before->number;
    // It may have died while leaving.
    node.leave_requested = before->leave_requested;
    node.draining = before->leave_requested;
    node.earlier = before->earlier;
    // Workers that report by rank have their samples counted by rank.
    if (before->progress.ranks().empty())
      node.earlier.set_samples(before->earlier.samples() + before->progress.samples());
    node.earlier.set_steps_min(std::max(before->earlier.steps_min(), before->progress.steps_min()));
    node.earlier.set_steps_max(std::max(before->earlier.steps_max(), before->progress.steps_max()));
    gone_.erase(std::remove(gone_.begin(), gone_.end(), before->name), gone_.end());
    Forget(std::string(before->name));
  }
  node.role = request.role();
  node.incarnation = ++last_incarnation_;
  node.process_nonce = request.process_nonce();
  node.start_count = request.start_count();
  node.registration = request.registration();
  node.address = request.address();
  node.description = request.description();
  node.zone = request.zone();
  node.only_reads = only_reads;
  node.registered_at = now;
  node.last_heard = now;
  node.adopted_at = now;
  const std::pair<int, uint32_t> key(node.role, node.number);
  by_name_[node.name] = key;
  by_nonce_[node.process_nonce] = node.name;
  registration.node = &nodes_.emplace(key, std::move(node)).first->second;
  return registration;
}

const Node* Membership::FindByName(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &nodes_.at(it->second);
}

absl::StatusOr<Node*> Membership::Find(const std::string& name, uint64_t incarnation) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    return absl::AbortedError(
        absl::StrCat("node '", BoundedText(name, kMaxNodeNameBytes), "' is not part of the job"));
  }
  Node& node = nodes_.at(it->second);
  if (node.incarnation != incarnation) {
    return absl::AbortedError(
        absl::StrCat(name, ": incarnation ", incarnation, " is superseded by ", node.incarnation));
  }
  if (node.gone) return absl::AbortedError(absl::StrCat(name, " has left or was declared dead"));
  return &node;
}

absl::StatusOr<Node*> Membership::Heartbeat(const HeartbeatRequest& request, uint64_t newest_epoch,
                                            MonotonicTime now) {
  PAWL_ASSIGN_OR_RETURN(Node* const node, Find(request.node(), request.incarnation()));
  if (node->refused)
    return absl::AbortedError(absl::StrCat(node->name, " has adopted no routing for too long"));
  if (request.job_id() != 0 && request.job_id() != options_.job_id) {
    return absl::AbortedError(absl::StrCat(node->name, " of job ", request.job_id(),
                                           " is not part of this one, ", options_.job_id));
  }
  node->last_heard = now;
  node->has_sent_heartbeat = true;
  if (request.challenge() != 0 && request.challenge() == node->claimant)
    node->claimant_is_refused = true;
  node->security = request.security();
  node->security.DiscardUnknownFields();
  node->security.set_reload_failure(
      BoundedText(request.security().reload_failure(), kMaxFailureBytes));
  if (node->role == SERVER_ROLE) {
    if (request.has_server()) {
      node->counters = request.server();
      node->counters.DiscardUnknownFields();
    }
    node->draining = request.draining() || node->leave_requested;
    if (request.has_disk_failure()) {
      if (node->disk_failure.empty()) {
        node->disk_failed_at = now - std::chrono::milliseconds(request.disk_failure().lasts_ms());
        spdlog::warn("{}: its log cannot be written: {}", NodeText(*node),
                     request.disk_failure().reason());
      }
      node->disk_failure = BoundedText(request.disk_failure().reason(), kMaxFailureBytes);
      if (node->disk_failure.empty()) node->disk_failure = "unknown";
    } else if (!std::exchange(node->disk_failure, "").empty()) {
      spdlog::info("{}: its log can be written again", NodeText(*node));
    }
    // No server can have adopted a routing that is not published yet.
    const uint64_t adopted = std::min(request.routing_epoch(), newest_epoch);
    if (adopted > node->adopted_epoch || node->adopted_epoch >= newest_epoch)
      node->adopted_at = now;
    node->adopted_epoch = std::max(node->adopted_epoch, adopted);
  }
  if (node->role == WORKER_ROLE && request.has_worker()) {
    const absl::Status status = CheckProgress(request.worker());
    std::string refusal(status.message());
    if (status.ok()) {
      node->progress = KnownProgress(request.worker());
    } else if (node->refused_progress != refusal) {
      spdlog::warn("{}: its progress is ignored: {}", NodeText(*node), refusal);
    }
    node->refused_progress = std::move(refusal);
  }
  return node;
}

void Membership::RefuseStaleServers(uint64_t newest_epoch, MonotonicDuration limit,
                                    MonotonicTime now) {
  for (auto& [key, node] : nodes_) {
    if (node.role != SERVER_ROLE || node.gone || node.refused) continue;
    if (node.adopted_epoch >= newest_epoch || now - node.adopted_at <= limit) continue;
    spdlog::error(
        "{} sends heartbeats, but has been at routing epoch {} for {:.1f} s, and there is {}: its "
        "lease ends",
        NodeText(node), node.adopted_epoch, Seconds(now - node.adopted_at), newest_epoch);
    node.refused = true;
  }
}

bool Membership::TellToLeave(const std::string& name) {
  Node& node = nodes_.at(by_name_.at(name));
  node.draining = true;
  return !std::exchange(node.leave_requested, true);
}

absl::Status Membership::CheckProgress(const WorkerProgress& progress) const {
  const auto ranks = static_cast<uint32_t>(progress.ranks_size());
  if (ranks > options_.logical_workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "progress is of ", ranks, " ranks, and the job has ", options_.logical_workers));
  }
  PAWL_RETURN_IF_ERROR(UserMetrics::Check(progress));
  WorkerProgress rest = progress;
  rest.clear_metrics();
  if (const size_t bytes = rest.ByteSizeLong(); bytes > kMaxProgressBytes) {
    return absl::InvalidArgumentError(absl::StrCat("progress has ", bytes, " bytes; at most ",
                                                   kMaxProgressBytes, " are possible"));
  }
  return absl::OkStatus();
}

WorkerProgress Membership::KnownProgress(WorkerProgress progress) {
  // It is saved with every save of the scheduler's state.
  progress.DiscardUnknownFields();
  progress.clear_metrics();
  if (!progress.failure().empty())
    progress.set_failure(BoundedText(progress.failure(), kMaxFailureBytes));
  return progress;
}

absl::Status Membership::Leave(const std::string& name, uint64_t incarnation) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return absl::OkStatus();
  Node& node = nodes_.at(it->second);
  if (node.incarnation > incarnation) return absl::OkStatus();
  if (node.incarnation < incarnation) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": incarnation ", incarnation, " was never assigned"));
  }
  // Starting the process again means that it is wanted.
  node.leave_requested = false;
  if (!node.gone) MarkGone(node);
  return absl::OkStatus();
}

std::vector<Node> Membership::ExpireLeases(MonotonicTime now) {
  std::vector<std::string> expired;
  for (const auto& [key, node] : nodes_) {
    if (node.gone || now - node.last_heard <= options_.lease || now <= node.former_lease_until)
      continue;
    expired.push_back(node.name);
  }
  std::vector<Node> dead;
  for (const std::string& name : expired) {
    Node& node = nodes_.at(by_name_.at(name));
    dead.push_back(node);
    MarkGone(node);
  }
  return dead;
}

std::vector<const Node*> Membership::All() const {
  std::vector<const Node*> all;
  for (const auto& [key, node] : nodes_) all.push_back(&node);
  return all;
}

std::vector<const Node*> Membership::Present(Role role) const {
  std::vector<const Node*> present;
  // Other roles may have many more nodes.
  for (auto it = nodes_.lower_bound({role, 0}); it != nodes_.end() && it->second.role == role;
       ++it) {
    if (!it->second.gone) present.push_back(&it->second);
  }
  return present;
}

size_t Membership::PresentCount() const {
  size_t present = 0;
  for (const auto& [key, node] : nodes_) present += !node.gone;
  return present;
}

StoredMembership Membership::Save() const {
  StoredMembership stored;
  for (const auto& [key, node] : nodes_) {
    StoredNode& to = *stored.add_nodes();
    to.set_name(node.name);
    to.set_role(node.role);
    to.set_number(node.number);
    to.set_incarnation(node.incarnation);
    to.set_process_nonce(node.process_nonce);
    to.set_start_count(node.start_count);
    to.set_registration(node.registration);
    to.set_address(node.address);
    to.set_description(node.description);
    to.set_gone(node.gone);
    *to.mutable_counters() = node.counters;
    *to.mutable_progress() = node.progress;
    *to.mutable_earlier() = node.earlier;
    to.set_zone(node.zone);
    to.set_leave_requested(node.leave_requested);
  }
  stored.set_last_incarnation(last_incarnation_);
  stored.set_next_server(next_server_);
  stored.set_next_worker(next_worker_);
  stored.set_next_client(next_client_);
  for (const std::string& name : gone_) stored.add_gone(name);
  return stored;
}

void Membership::Restore(const StoredMembership& stored, MonotonicTime now,
                         MonotonicDuration longest_lease) {
  for (const StoredNode& from : stored.nodes()) {
    Node node;
    node.name = from.name();
    node.role = from.role();
    node.number = from.number();
    node.incarnation = from.incarnation();
    node.process_nonce = from.process_nonce();
    node.start_count = from.start_count();
    node.registration = from.registration();
    node.address = from.address();
    node.description = from.description();
    node.gone = from.gone();
    node.counters = from.counters();
    node.progress = KnownProgress(from.progress());
    node.earlier = from.earlier();
    node.zone = from.zone();
    node.leave_requested = from.leave_requested();
    node.draining = node.leave_requested && !node.gone;
    node.last_heard = now;
    node.former_lease_until = now + longest_lease;
    node.adopted_at = now;
    const std::pair<int, uint32_t> key(node.role, node.number);
    by_name_[node.name] = key;
    by_nonce_[node.process_nonce] = node.name;
    nodes_.emplace(key, std::move(node));
  }
  last_incarnation_ = stored.last_incarnation();
  next_server_ = stored.next_server();
  next_worker_ = stored.next_worker();
  next_client_ = stored.next_client() % kMaxClients;
  gone_.assign(stored.gone().begin(), stored.gone().end());
}

void Membership::MarkGone(Node& node) {
  if (node.role == CLIENT_ROLE) {
    Forget(std::string(node.name));
    return;
  }
  node.gone = true;
  // LogicalWorkers has the progress of each rank. One entry shows that its samples are counted by
  // rank.
  auto& ranks = *node.progress.mutable_ranks();
  if (ranks.size() > 1) ranks.DeleteSubrange(1, ranks.size() - 1);
  gone_.push_back(node.name);
  if (gone_.size() > kMaxGoneNodes) {
    const std::string oldest = gone_.front();
    gone_.pop_front();
    Forget(oldest);
  }
}

void Membership::Forget(const std::string& name) {
  const auto it = by_name_.find(name);
  const auto of_process = by_nonce_.find(nodes_.at(it->second).process_nonce);
  if (of_process != by_nonce_.end() && of_process->second == name) by_nonce_.erase(of_process);
  nodes_.erase(it->second);
  by_name_.erase(it);
}

}  // namespace pawl
