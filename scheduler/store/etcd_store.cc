#include "scheduler/store/etcd_store.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::KeyValue;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using etcdserverpb::RequestOp;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

// The client leaves an endpoint that is silent for this long. etcd answers in milliseconds unless
// it elects a leader.
constexpr std::chrono::milliseconds kAttemptTimeout{3000};
constexpr std::chrono::milliseconds kCampaignInterval{200};
// Campaign tries at least once, with this much time.
constexpr std::chrono::milliseconds kMinCampaignTime{500};
// Revoking the lease must not delay the end of the process.
constexpr std::chrono::milliseconds kLeaveTimeout{1000};

constexpr char kExpired[] =
    "the lease has expired: etcd was unreachable, or this process stood still";

MonotonicTime Now() { return Clock::Real().Now(); }

MonotonicTime LeaseNow() { return Clock::Real().LeaseNow(); }

MonotonicTime CallDeadline() { return Now() + kMaxStoreCallTime; }

std::string RevisionText(uint64_t revision) { return absl::StrFormat("%020d", revision); }

std::string Identity() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, " pid ", getpid());
}

RangeRequest RangeOf(std::string key) {
  RangeRequest request;
  request.set_key(std::move(key));
  return request;
}

RequestOp RangeOp(std::string key) {
  RequestOp op;
  *op.mutable_request_range() = RangeOf(std::move(key));
  return op;
}

RequestOp PutOp(std::string key, absl::string_view value, int64_t lease = 0) {
  RequestOp op;
  op.mutable_request_put()->set_key(std::move(key));
  op.mutable_request_put()->set_value(std::string(value));
  op.mutable_request_put()->set_lease(lease);
  return op;
}

// Deletes the keys from `begin`, before `end`.
RequestOp DeleteOp(std::string begin, std::string end) {
  RequestOp op;
  op.mutable_request_delete_range()->set_key(std::move(begin));
  op.mutable_request_delete_range()->set_range_end(std::move(end));
  return op;
}

// The first pair of a response; null if there is none.
const KeyValue* FirstOf(const RangeResponse& response) {
  return response.kvs().empty() ? nullptr : &response.kvs(0);
}

// The first pair that the `index`-th operation of a transaction read; null if there is none.
const KeyValue* FirstOf(const TxnResponse& response, int index) {
  return index < response.responses_size() ? FirstOf(response.responses(index).response_range())
                                           : nullptr;
}

}  // namespace

EtcdStore::EtcdStore(EtcdStoreOptions options)
    : options_(std::move(options)),
      client_({.endpoints = options_.endpoints,
               .tls_dir = options_.tls_dir,
               .attempt_timeout = kAttemptTimeout}) {}

EtcdStore::~EtcdStore() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (lease_thread_.joinable()) lease_thread_.join();
  int64_t lease = pending_lease_;
  {
    MutexLock lock(mu_);
    if (leadership_.has_value()) lease = leadership_->lease;
  }
  if (lease == 0) return;
  // This deletes the key `leader` too.
  const absl::Status revoked = client_.RevokeLease(lease, Now() + kLeaveTimeout);
  if (!revoked.ok())
    spdlog::warn("{}: the lease was not revoked and will expire: {}", Describe(),
                 revoked.ToString());
}

std::string EtcdStore::Describe() const {
  return absl::StrCat("etcd://", absl::StrJoin(options_.endpoints, ","), "/", options_.prefix);
}

std::string EtcdStore::Key(absl::string_view name) const {
  return absl::StrCat(options_.prefix, "/", name);
}

std::string EtcdStore::ChunkKey(absl::string_view folder, size_t index) const {
  return Key(absl::StrFormat("state/%s/%06d", folder, index));
}

TxnRequest EtcdStore::LeaderTxn(int64_t create_revision) const {
  TxnRequest request;
  Compare& leads = *request.add_compare();
  leads.set_key(Key("leader"));
  leads.set_target(Compare::CREATE);
  leads.set_result(Compare::EQUAL);
  leads.set_create_revision(create_revision);
  *request.add_failure() = RangeOp(Key("leader"));
  return request;
}

bool EtcdStore::IsLeader() const { return CurrentLeadership().ok(); }

absl::StatusOr<EtcdStore::Leadership> EtcdStore::CurrentLeadership() const {
  MutexLock lock(mu_);
  if (leadership_.has_value() && LeaseNow() < leadership_->until) return *leadership_;
  if (leadership_.has_value())
    return absl::AbortedError(absl::StrCat(Describe(), ": the lease has expired"));
  if (!lost_why_.ok()) return lost_why_;
  return absl::AbortedError(absl::StrCat(Describe(), ": this process is not the leader"));
}

absl::Status EtcdStore::Campaign(MonotonicTime deadline) {
  if (IsLeader()) return absl::OkStatus();
  std::optional<Leadership> expired;
  {
    MutexLock lock(mu_);
    expired = leadership_;
  }
  if (expired.has_value()) EndLeadership(expired->lease, kExpired).IgnoreError();
  // The thread reports the loss and ends.
  if (lease_thread_.joinable()) lease_thread_.join();
  deadline = std::max(deadline, Now() + kMinCampaignTime);
  while (true) {
    absl::Status status = TryToLead(deadline);
    if (status.ok()) break;
    if (!absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status)) return status;
    const MonotonicTime next = Now() + kCampaignInterval;
    if (next >= deadline) return status;
    std::this_thread::sleep_until(next);
  }
  lease_thread_ = std::thread([this] { KeepLease(); });
  return absl::OkStatus();
}

absl::StatusOr<MonotonicTime> EtcdStore::KeepPendingLease(MonotonicTime deadline) {
  const MonotonicTime asked = LeaseNow();
  if (pending_lease_ != 0) {
    PAWL_ASSIGN_OR_RETURN(const std::chrono::seconds ttl,
                          client_.RenewLease(pending_lease_, deadline));
    if (ttl.count() > 0) return asked + ttl;
    pending_lease_ = 0;
  }
  PAWL_ASSIGN_OR_RETURN(const etcdserverpb::LeaseGrantResponse granted,
                        client_.GrantLease(options_.lease_ttl, deadline));
  pending_lease_ = granted.id();
  if (pending_lease_ == 0 || granted.ttl() <= 0)
    return absl::InternalError(absl::StrCat(Describe(), " granted no lease"));
  return asked + std::chrono::seconds(granted.ttl());
}

absl::Status EtcdStore::TryToLead(MonotonicTime deadline) {
  const std::string key = Key("leader");
  PAWL_ASSIGN_OR_RETURN(const RangeResponse range, client_.Range(RangeOf(key), deadline));
  // The leader is this process if the response to an earlier try was lost.
  if (const KeyValue* const leader = FirstOf(range);
      leader != nullptr && (leader->lease() == 0 || leader->lease() != pending_lease_)) {
    return absl::DeadlineExceededError(
        absl::StrCat(Describe(), ": the leader is ", leader->value()));
  }
  PAWL_ASSIGN_OR_RETURN(const MonotonicTime until, KeepPendingLease(deadline));
  // A create revision of 0: there is no leader.
  TxnRequest request = LeaderTxn(/*create_revision=*/0);
  *request.add_success() = PutOp(key, Identity(), pending_lease_);
  PAWL_ASSIGN_OR_RETURN(const TxnResponse response, client_.Txn(request, deadline));

  Leadership mine;
  mine.lease = pending_lease_;
  mine.until = until;
  if (response.succeeded()) {
    mine.create_revision = response.header().revision();
  } else {
    const KeyValue* const leader = FirstOf(response, 0);
    if (leader == nullptr || leader->lease() != pending_lease_) {
      return absl::DeadlineExceededError(
          absl::StrCat(Describe(), ": another process was quicker to lead"));
    }
    mine.create_revision = leader->create_revision();
  }
  if (mine.create_revision <= 0)
    return absl::InternalError(absl::StrCat(Describe(), " answers without a revision"));
  pending_lease_ = 0;
  MutexLock lock(mu_);
  leadership_ = mine;
  return absl::OkStatus();
}

void EtcdStore::KeepLease() {
  // One silent endpoint must leave time for the next.
  EtcdClient client({.endpoints = options_.endpoints,
                     .tls_dir = options_.tls_dir,
                     .attempt_timeout = std::chrono::milliseconds(options_.lease_ttl) / 4});
  const MonotonicDuration interval = std::chrono::milliseconds(options_.lease_ttl) / 3;
  MonotonicTime next = Now() + interval;
  while (true) {
    Leadership mine;
    {
      MutexLock lock(mu_);
      while (!stopping_ && leadership_.has_value() && Now() < next) changed_.WaitUntil(mu_, next);
      if (!leadership_.has_value()) break;
      if (stopping_) return;
      mine = *leadership_;
    }
    const MonotonicTime asked = LeaseNow();
    if (asked >= mine.until) {
      EndLeadership(mine.lease, kExpired).IgnoreError();
      continue;
    }
    next = Now() + interval;
    const absl::StatusOr<std::chrono::seconds> ttl =
        client.RenewLease(mine.lease, Now() + (mine.until - asked));
    if (!ttl.ok()) {
      spdlog::warn("{}: the lease was not renewed: {}", Describe(), ttl.status().ToString());
      // The lease may expire before the next regular renewal.
      next = std::min(next, Now() + std::chrono::milliseconds(options_.lease_ttl) / 10);
    } else if (ttl->count() <= 0) {
      EndLeadership(mine.lease, "etcd has ended the lease").IgnoreError();
    } else {
      MutexLock lock(mu_);
      if (leadership_.has_value()) leadership_->until = asked + *ttl;
    }
  }
  absl::Status why;
  {
    MutexLock lock(mu_);
    why = lost_why_;
  }
  spdlog::error("{}", why.ToString());
  if (lost_) lost_(why);
}

absl::Status EtcdStore::EndLeadership(int64_t lease, absl::string_view why) {
  absl::Status status =
      absl::AbortedError(absl::StrCat(Describe(), ": the leadership is lost: ", why));
  MutexLock lock(mu_);
  if (leadership_.has_value() && leadership_->lease == lease) {
    leadership_.reset();
    lost_why_ = status;
    changed_.NotifyAll();
  }
  return status;
}

absl::Status EtcdStore::CheckStillLeads(const Leadership& leadership, const TxnResponse& response) {
  const KeyValue* const leader = FirstOf(response, 0);
  if (leader == nullptr) return EndLeadership(leadership.lease, "the lease has expired");
  if (leader->create_revision() == leadership.create_revision) return absl::OkStatus();
  return EndLeadership(leadership.lease, absl::StrCat("the leader is now ", leader->value()));
}

absl::Status EtcdStore::NotLeader(const Leadership& leadership, const TxnResponse& response) {
  PAWL_RETURN_IF_ERROR(CheckStillLeads(leadership, response));
  return absl::InternalError(
      absl::StrCat(Describe(), " refuses a transaction whose condition holds"));
}

absl::StatusOr<EtcdStore::Newest> EtcdStore::ParseNewest(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  Newest newest;
  if (parts.size() != 4 || parts[0].size() != 20 || parts[1].size() != 8 ||
      !absl::SimpleAtoi(parts[0], &newest.revision) ||
      !absl::SimpleHexAtoi(parts[1], &newest.crc) || !absl::SimpleAtoi(parts[2], &newest.bytes) ||
      newest.bytes > kMaxStateBytes) {
    return absl::DataLossError(absl::StrCat("is \"", text, "\", not REVISION CRC32C BYTES FOLDER"));
  }
  newest.folder = std::string(parts[3]);
  return newest;
}

absl::StatusOr<std::optional<StoredState>> EtcdStore::Load() {
  PAWL_ASSIGN_OR_RETURN(const Leadership leadership, CurrentLeadership());
  const MonotonicTime deadline = CallDeadline();
  const std::string key = Key("newest");
  // Without a write if there is a state: a full etcd can still be read.
  TxnRequest read = LeaderTxn(leadership.create_revision);
  *read.add_success() = RangeOp(key);
  PAWL_ASSIGN_OR_RETURN(TxnResponse response, client_.Txn(read, deadline));
  if (!response.succeeded()) return NotLeader(leadership, response);
  const KeyValue* const pair = FirstOf(response, 0);
  if (pair == nullptr) {
    // Save compares with a revision, and etcd takes no condition on an absent value.
    TxnRequest create = LeaderTxn(leadership.create_revision);
    *create.add_success() = PutOp(key, absl::StrCat(RevisionText(0), " 00000000 0 none"));
    PAWL_ASSIGN_OR_RETURN(response, client_.Txn(create, deadline));
    if (!response.succeeded()) return NotLeader(leadership, response);
    loaded_create_revision_ = leadership.create_revision;
    return std::nullopt;
  }
  const absl::StatusOr<Newest> newest = ParseNewest(pair->value());
  if (!newest.ok()) return Annotate(newest.status(), absl::StrCat(Describe(), ": the key ", key));
  if (newest->revision == 0) {
    loaded_create_revision_ = leadership.create_revision;
    return std::nullopt;
  }
  // Only the leader, this process, changes chunks.
  absl::StatusOr<std::string> state = ReadState(*newest, deadline);
  if (absl::IsNotFound(state.status())) {
    // Unless this process was overtaken meanwhile, and the folder removed.
    PAWL_ASSIGN_OR_RETURN(response, client_.Txn(LeaderTxn(leadership.create_revision), deadline));
    if (!response.succeeded()) return NotLeader(leadership, response);
    return absl::DataLossError(state.status().message());
  }
  if (!state.ok()) return state.status();
  loaded_create_revision_ = leadership.create_revision;
  return StoredState{newest->revision, *std::move(state)};
}

absl::StatusOr<std::string> EtcdStore::ReadState(const Newest& newest, MonotonicTime deadline) {
  std::string state;
  for (size_t index = 0; index == 0 || state.size() < newest.bytes; ++index) {
    const std::string chunk_key = ChunkKey(newest.folder, index);
    PAWL_ASSIGN_OR_RETURN(const RangeResponse range, client_.Range(RangeOf(chunk_key), deadline));
    const KeyValue* const chunk = FirstOf(range);
    if (chunk == nullptr || (chunk->value().empty() && newest.bytes != 0)) {
      return absl::NotFoundError(absl::StrCat(Describe(), ": the key ", chunk_key, " of revision ",
                                              newest.revision, " is missing or empty"));
    }
    state += chunk->value();
  }
  const uint32_t crc = Crc32c(0, state.data(), state.size());
  if (state.size() != newest.bytes || crc != newest.crc) {
    return absl::DataLossError(absl::StrFormat(
        "%s: the keys under %s hold %d bytes with CRC32C %08x, but %s says %d bytes with %08x",
        Describe(), Key(absl::StrCat("state/", newest.folder)), state.size(), crc, Key("newest"),
        newest.bytes, newest.crc));
  }
  return state;
}

absl::StatusOr<std::optional<StoredState>> EtcdStore::Peek() {
  const MonotonicTime deadline = CallDeadline();
  PAWL_ASSIGN_OR_RETURN(const RangeResponse range, client_.Range(RangeOf(Key("newest")), deadline));
  const KeyValue* const pair = FirstOf(range);
  if (pair == nullptr) return std::nullopt;
  PAWL_ASSIGN_OR_RETURN(const Newest newest, ParseNewest(pair->value()));
  if (newest.revision == 0) return std::nullopt;
  // NOT_FOUND: the leader has saved a newer one meanwhile.
  PAWL_ASSIGN_OR_RETURN(std::string state, ReadState(newest, deadline));
  return StoredState{newest.revision, std::move(state)};
}

absl::Status EtcdStore::Save(uint64_t revision, absl::string_view state) {
  PAWL_RETURN_IF_ERROR(CheckState(revision, state));
  PAWL_ASSIGN_OR_RETURN(const Leadership leadership, CurrentLeadership());
  if (loaded_create_revision_ != leadership.create_revision) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(), ": a new leader must Load before its first Save"));
  }
  const MonotonicTime deadline = CallDeadline();
  const std::string key = Key("newest");
  const size_t total = state.size();
  const uint32_t crc = Crc32c(0, state.data(), total);
  const std::string folder = absl::StrCat(leadership.create_revision, "-", ++folders_made_);
  TxnRequest request = LeaderTxn(leadership.create_revision);
  Compare& is_newer = *request.add_compare();
  is_newer.set_key(key);
  is_newer.set_target(Compare::VALUE);
  is_newer.set_result(Compare::LESS);
  is_newer.set_value(RevisionText(revision));
  *request.add_failure() = RangeOp(key);
  TxnResponse response;
  size_t index = 0;
  do {
    const absl::string_view chunk = state.substr(0, kEtcdChunkBytes);
    state.remove_prefix(chunk.size());
    request.clear_success();
    *request.add_success() = PutOp(ChunkKey(folder, index++), chunk);
    if (state.empty()) {
      // All folders but this one. '0' follows '/', so "FOLDER0" ends the range of a folder's keys.
      *request.add_success() = DeleteOp(Key("state/"), Key(absl::StrCat("state/", folder, "/")));
      *request.add_success() = DeleteOp(Key(absl::StrCat("state/", folder, "0")), Key("state0"));
      *request.add_success() =
          PutOp(key, absl::StrFormat("%s %08x %d %s", RevisionText(revision), crc, total, folder));
    }
    PAWL_ASSIGN_OR_RETURN(response, client_.Txn(request, deadline));
  } while (response.succeeded() && !state.empty());
  if (response.succeeded()) return absl::OkStatus();

  PAWL_RETURN_IF_ERROR(CheckStillLeads(leadership, response));
  const KeyValue* const pair = FirstOf(response, 1);
  const absl::StatusOr<Newest> newest = ParseNewest(pair == nullptr ? "" : pair->value());
  if (!newest.ok()) return Annotate(newest.status(), absl::StrCat(Describe(), ": the key ", key));
  if (newest->revision == revision && newest->crc == crc && newest->bytes == total)
    return absl::OkStatus();
  return NotNewer(Describe(), revision, newest->revision);
}

}  // namespace pawl
