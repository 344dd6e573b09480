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

using nlohmann::json;

// An endpoint that is silent for this long is left for the next; etcd answers in milliseconds
// unless it elects.
constexpr std::chrono::milliseconds kAttemptTimeout{3000};
// Between two looks at who leads.
constexpr std::chrono::milliseconds kCampaignInterval{200};
// Campaign tries at least once, with this much time.
constexpr std::chrono::milliseconds kMinCampaignTime{500};
// Leaving politely must not hold up the end of a process.
constexpr std::chrono::milliseconds kLeaveTimeout{1000};

constexpr char kRunOut[] =
    "the lease has run out: etcd could not be reached, or this process stood still";

MonotonicTime Now() { return Clock::Real().Now(); }

MonotonicTime CallDeadline() { return Now() + kMaxStoreCallTime; }

std::string RevisionText(uint64_t revision) { return absl::StrFormat("%020d", revision); }

std::string Identity() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, " pid ", getpid());
}

json Put(const std::string& key, absl::string_view value) {
  return {{"request_put", {{"key", EtcdBytes(key)}, {"value", EtcdBytes(value)}}}};
}

// All keys from `begin` on, before `end`.
json DeleteRange(const std::string& begin, const std::string& end) {
  return {{"request_delete_range", {{"key", EtcdBytes(begin)}, {"range_end", EtcdBytes(end)}}}};
}

json Range(const std::string& key) { return {{"request_range", {{"key", EtcdBytes(key)}}}}; }

bool Succeeded(const json& answer) { return answer.value("succeeded", json(false)) == json(true); }

// The first key-value of a range's answer; null if there is none.
json FirstOf(const json& range) {
  const auto found = range.find("kvs");
  return found != range.end() && found->is_array() && !found->empty() ? found->front() : json();
}

// The same of the `index`-th operation of a transaction.
json FirstOf(const json& answer, size_t index) {
  const auto responses = answer.find("responses");
  if (responses == answer.end() || !responses->is_array() || responses->size() <= index)
    return json();
  const json& response = (*responses)[index];
  const auto range = response.find("response_range");
  return range == response.end() ? json() : FirstOf(*range);
}

}  // namespace

EtcdStore::EtcdStore(EtcdStoreOptions options)
    : options_(std::move(options)), client_(options_.endpoints, kAttemptTimeout) {}

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
  // The key `leader` goes with its lease.
  const auto left =
      client_.Call("/v3/lease/revoke", {{"ID", absl::StrCat(lease)}}, Now() + kLeaveTimeout);
  if (!left.ok())
    spdlog::warn("{}: the lease is left to run out: {}", Describe(), left.status().ToString());
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

json EtcdStore::IsLed(int64_t create_revision) const {
  return {{"key", EtcdBytes(Key("leader"))},
          {"target", "CREATE"},
          {"result", "EQUAL"},
          {"create_revision", absl::StrCat(create_revision)}};
}

void EtcdStore::WhenLeadershipLost(std::function<void(const absl::Status& why)> lost) {
  lost_ = std::move(lost);
}

bool EtcdStore::IsLeader() const { return CurrentLeadership().ok(); }

absl::StatusOr<EtcdStore::Leadership> EtcdStore::CurrentLeadership() const {
  MutexLock lock(mu_);
  if (leadership_.has_value() && Now() < leadership_->until) return *leadership_;
  if (leadership_.has_value())
    return absl::AbortedError(absl::StrCat(Describe(), ": the lease has run out"));
  if (!lost_why_.ok()) return lost_why_;
  return absl::AbortedError(absl::StrCat(Describe(), ": this process is not the leader"));
}

absl::Status EtcdStore::Campaign(MonotonicTime deadline) {
  if (IsLeader()) return absl::OkStatus();
  std::optional<Leadership> run_out;
  {
    MutexLock lock(mu_);
    run_out = leadership_;
  }
  if (run_out.has_value()) Lose(run_out->lease, kRunOut).IgnoreError();
  // It tells of the loss and ends.
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
  const MonotonicTime asked = Now();
  if (pending_lease_ != 0) {
    PAWL_ASSIGN_OR_RETURN(
        const json answer,
        client_.Call("/v3/lease/keepalive", {{"ID", absl::StrCat(pending_lease_)}}, deadline));
    PAWL_ASSIGN_OR_RETURN(const int64_t ttl,
                          EtcdIntegerAt(answer.value("result", json::object()), "TTL"));
    if (ttl > 0) return asked + std::chrono::seconds(ttl);
    pending_lease_ = 0;
  }
  PAWL_ASSIGN_OR_RETURN(
      const json answer,
      client_.Call("/v3/lease/grant", {{"TTL", absl::StrCat(options_.lease_ttl.count())}},
                   deadline));
  PAWL_ASSIGN_OR_RETURN(pending_lease_, EtcdIntegerAt(answer, "ID"));
  PAWL_ASSIGN_OR_RETURN(const int64_t ttl, EtcdIntegerAt(answer, "TTL"));
  if (pending_lease_ == 0 || ttl <= 0)
    return absl::InternalError(absl::StrCat(Describe(), " granted no lease"));
  return asked + std::chrono::seconds(ttl);
}

absl::Status EtcdStore::TryToLead(MonotonicTime deadline) {
  const std::string key = Key("leader");
  PAWL_ASSIGN_OR_RETURN(const json range,
                        client_.Call("/v3/kv/range", {{"key", EtcdBytes(key)}}, deadline));
  json leader = FirstOf(range);
  if (!leader.is_null()) {
    PAWL_ASSIGN_OR_RETURN(const int64_t lease, EtcdIntegerAt(leader, "lease"));
    // Ours if the reply to an earlier try was lost.
    if (lease == 0 || lease != pending_lease_) {
      PAWL_ASSIGN_OR_RETURN(const std::string name, EtcdBytesAt(leader, "value"));
      return absl::DeadlineExceededError(absl::StrCat(Describe(), ": the leader is ", name));
    }
  }
  PAWL_ASSIGN_OR_RETURN(const MonotonicTime until, KeepPendingLease(deadline));
  json put = Put(key, Identity());
  put["request_put"]["lease"] = absl::StrCat(pending_lease_);
  const json transaction = {{"compare", json::array({IsLed(0)})},
                            {"success", json::array({put})},
                            {"failure", json::array({Range(key)})}};
  PAWL_ASSIGN_OR_RETURN(const json answer, client_.Call("/v3/kv/txn", transaction, deadline));

  Leadership mine;
  mine.lease = pending_lease_;
  mine.until = until;
  if (Succeeded(answer)) {
    PAWL_ASSIGN_OR_RETURN(mine.create_revision,
                          EtcdIntegerAt(answer.value("header", json::object()), "revision"));
  } else {
    leader = FirstOf(answer, 0);
    PAWL_ASSIGN_OR_RETURN(const int64_t lease, EtcdIntegerAt(leader, "lease"));
    if (lease != pending_lease_) {
      return absl::DeadlineExceededError(
          absl::StrCat(Describe(), ": another process was quicker to lead"));
    }
    PAWL_ASSIGN_OR_RETURN(mine.create_revision, EtcdIntegerAt(leader, "create_revision"));
  }
  if (mine.create_revision <= 0)
    return absl::InternalError(absl::StrCat(Describe(), " answers without a revision"));
  pending_lease_ = 0;
  MutexLock lock(mu_);
  leadership_ = mine;
  return absl::OkStatus();
}

void EtcdStore::KeepLease() {
  // Waits for no endpoint so long that there is none left for the next.
  EtcdClient client(options_.endpoints, std::chrono::milliseconds(options_.lease_ttl) / 4);
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
    const MonotonicTime asked = Now();
    if (asked >= mine.until) {
      Lose(mine.lease, kRunOut).IgnoreError();
      continue;
    }
    next = asked + interval;
    const auto answer =
        client.Call("/v3/lease/keepalive", {{"ID", absl::StrCat(mine.lease)}}, mine.until);
    const auto ttl = answer.ok() ? EtcdIntegerAt(answer->value("result", json::object()), "TTL")
                                 : answer.status();
    if (!ttl.ok()) {
      spdlog::warn("{}: the lease was not renewed: {}", Describe(), ttl.status().ToString());
      // The lease may end before the usual time comes round.
      next = std::min(next, Now() + std::chrono::milliseconds(options_.lease_ttl) / 10);
    } else if (*ttl <= 0) {
      Lose(mine.lease, "etcd has ended the lease").IgnoreError();
    } else {
      MutexLock lock(mu_);
      if (leadership_.has_value()) leadership_->until = asked + std::chrono::seconds(*ttl);
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

absl::Status EtcdStore::Lose(int64_t lease, absl::string_view why) {
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

absl::Status EtcdStore::CheckStillLed(const Leadership& leadership, const json& answer) {
  const json leader = FirstOf(answer, 0);
  if (leader.is_null()) return Lose(leadership.lease, "the lease has run out");
  PAWL_ASSIGN_OR_RETURN(const int64_t create_revision, EtcdIntegerAt(leader, "create_revision"));
  if (create_revision == leadership.create_revision) return absl::OkStatus();
  PAWL_ASSIGN_OR_RETURN(const std::string name, EtcdBytesAt(leader, "value"));
  return Lose(leadership.lease, absl::StrCat("the leader is now ", name));
}

absl::Status EtcdStore::NotLed(const Leadership& leadership, const json& answer) {
  PAWL_RETURN_IF_ERROR(CheckStillLed(leadership, answer));
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
  // Without a write where there is a state: a full etcd still lets it be read.
  const json is_led = json::array({IsLed(leadership.create_revision)});
  const json refused = json::array({Range(Key("leader"))});
  json transaction = {
      {"compare", is_led}, {"success", json::array({Range(key)})}, {"failure", refused}};
  PAWL_ASSIGN_OR_RETURN(json answer, client_.Call("/v3/kv/txn", transaction, deadline));
  if (!Succeeded(answer)) return NotLed(leadership, answer);
  const json pair = FirstOf(answer, 0);
  if (pair.is_null()) {
    // A revision to compare with must be there before the first Save: etcd takes no condition on an
    // absent value.
    transaction["success"] =
        json::array({Put(key, absl::StrCat(RevisionText(0), " 00000000 0 none"))});
    PAWL_ASSIGN_OR_RETURN(answer, client_.Call("/v3/kv/txn", transaction, deadline));
    if (!Succeeded(answer)) return NotLed(leadership, answer);
    loaded_create_revision_ = leadership.create_revision;
    return std::nullopt;
  }
  PAWL_ASSIGN_OR_RETURN(const std::string text, EtcdBytesAt(pair, "value"));
  const absl::StatusOr<Newest> newest = ParseNewest(text);
  if (!newest.ok()) return Annotate(newest.status(), absl::StrCat(Describe(), ": the key ", key));
  if (newest->revision == 0) {
    loaded_create_revision_ = leadership.create_revision;
    return std::nullopt;
  }
  // Only a leader changes chunks, so they stand still while this one reads.
  absl::StatusOr<std::string> state = ReadState(*newest, deadline);
  if (absl::IsNotFound(state.status())) {
    // Or this process was overtaken while it read, and the folder removed.
    const json check = {{"compare", is_led}, {"failure", refused}};
    PAWL_ASSIGN_OR_RETURN(answer, client_.Call("/v3/kv/txn", check, deadline));
    if (!Succeeded(answer)) return NotLed(leadership, answer);
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
    PAWL_ASSIGN_OR_RETURN(const json range,
                          client_.Call("/v3/kv/range", {{"key", EtcdBytes(chunk_key)}}, deadline));
    const json found = FirstOf(range);
    PAWL_ASSIGN_OR_RETURN(const std::string chunk, EtcdBytesAt(found, "value"));
    if (found.is_null() || (chunk.empty() && newest.bytes != 0)) {
      return absl::NotFoundError(absl::StrCat(Describe(), ": the key ", chunk_key, " of revision ",
                                              newest.revision, " is missing or empty"));
    }
    state += chunk;
  }
  const uint32_t crc = Crc32c(0, state.data(), state.size());
  if (state.size() != newest.bytes || crc != newest.crc) {
    return absl::DataLossError(absl::StrFormat(
        "%s: the keys under %s hold %d bytes with CRC32C %08x, and %s says %d bytes with %08x",
        Describe(), Key(absl::StrCat("state/", newest.folder)), state.size(), crc, Key("newest"),
        newest.bytes, newest.crc));
  }
  return state;
}

absl::StatusOr<std::optional<StoredState>> EtcdStore::Peek() {
  const MonotonicTime deadline = CallDeadline();
  const std::string key = Key("newest");
  PAWL_ASSIGN_OR_RETURN(const json range,
                        client_.Call("/v3/kv/range", {{"key", EtcdBytes(key)}}, deadline));
  const json pair = FirstOf(range);
  if (pair.is_null()) return std::nullopt;
  PAWL_ASSIGN_OR_RETURN(const std::string text, EtcdBytesAt(pair, "value"));
  PAWL_ASSIGN_OR_RETURN(const Newest newest, ParseNewest(text));
  if (newest.revision == 0) return std::nullopt;
  // NOT_FOUND: the leader has saved another one meanwhile.
  PAWL_ASSIGN_OR_RETURN(std::string state, ReadState(newest, deadline));
  return StoredState{newest.revision, std::move(state)};
}

absl::Status EtcdStore::Save(uint64_t revision, absl::string_view state) {
  PAWL_RETURN_IF_ERROR(CheckState(revision, state));
  PAWL_ASSIGN_OR_RETURN(const Leadership leadership, CurrentLeadership());
  if (loaded_create_revision_ != leadership.create_revision) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(), ": Load comes before the first Save of a leader"));
  }
  const MonotonicTime deadline = CallDeadline();
  const std::string key = Key("newest");
  const size_t total = state.size();
  const uint32_t crc = Crc32c(0, state.data(), total);
  const std::string folder = absl::StrCat(leadership.create_revision, "-", ++folders_made_);
  const json is_newer = {{"key", EtcdBytes(key)},
                         {"target", "VALUE"},
                         {"result", "LESS"},
                         {"value", EtcdBytes(RevisionText(revision))}};
  json transaction = {{"compare", json::array({IsLed(leadership.create_revision), is_newer})},
                      {"failure", json::array({Range(Key("leader")), Range(key)})}};
  size_t index = 0;
  bool refused = false;
  json answer;
  do {
    const absl::string_view chunk = state.substr(0, kEtcdChunkBytes);
    state.remove_prefix(chunk.size());
    transaction["success"] = json::array({Put(ChunkKey(folder, index++), chunk)});
    if (state.empty()) {
      // '0' follows '/': the range of a folder's keys ends before it. Whatever is not in this
      // folder goes.
      transaction["success"].push_back(
          DeleteRange(Key("state/"), Key(absl::StrCat("state/", folder, "/"))));
      transaction["success"].push_back(
          DeleteRange(Key(absl::StrCat("state/", folder, "0")), Key("state0")));
      transaction["success"].push_back(
          Put(key, absl::StrFormat("%s %08x %d %s", RevisionText(revision), crc, total, folder)));
    }
    PAWL_ASSIGN_OR_RETURN(answer, client_.Call("/v3/kv/txn", transaction, deadline));
    refused = !Succeeded(answer);
  } while (!refused && !state.empty());
  if (!refused) return absl::OkStatus();

  PAWL_RETURN_IF_ERROR(CheckStillLed(leadership, answer));
  PAWL_ASSIGN_OR_RETURN(const std::string text, EtcdBytesAt(FirstOf(answer, 1), "value"));
  const absl::StatusOr<Newest> newest = ParseNewest(text);
  if (!newest.ok()) return Annotate(newest.status(), absl::StrCat(Describe(), ": the key ", key));
  if (newest->revision == revision && newest->crc == crc && newest->bytes == total)
    return absl::OkStatus();
  return NotNewer(Describe(), revision, newest->revision);
}

}  // namespace pawl
