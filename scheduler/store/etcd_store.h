// The scheduler's state in etcd, for schedulers with standbys on other machines.
#ifndef PAWL_SCHEDULER_STORE_ETCD_STORE_H_
#define PAWL_SCHEDULER_STORE_ETCD_STORE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "scheduler/store/etcd.pb.h"
#include "scheduler/store/etcd_client.h"
#include "scheduler/store/state_store.h"

namespace pawl {

struct EtcdStoreOptions {
  // "HOST:PORT" of the members' client addresses, at least one.
  std::vector<std::string> endpoints;
  // See EtcdClientOptions.
  std::string tls_dir = {};
  // The prefix of all keys, different for each job.
  std::string prefix;
  // After the death of a leader a standby waits this long. The leader renews its lease three times
  // in it. etcd raises it to at least 1.5 times its own election timeout (2 s by default).
  std::chrono::seconds lease_ttl{5};
};

// etcd refuses requests beyond 1.5 MiB (--max-request-bytes). Larger states are stored in chunks.
inline constexpr size_t kEtcdChunkBytes = size_t{1} << 20;

// The keys, below the prefix:
//
//   leader              the name of the leader, for humans; attached to the leader's lease
//   newest              "REVISION CRC32C BYTES FOLDER": 20 decimal digits, 8 hexadecimal digits,
//                       decimal, text
//   state/FOLDER/INDEX  the newest state in chunks of at most kEtcdChunkBytes; INDEX has 6 digits
//
// Invariants:
//
// 1. Every write is a transaction with the condition that `leader` has the create revision that it
//    got when this process became leader. So etcd refuses the requests of an overtaken leader,
//    however late they arrive.
// 2. One transaction writes the last chunk and `newest` and removes older folders. Its condition is
//    that the revision in `newest` is smaller. Each Save has its own folder, so a failed or late
//    request cannot change a chunk that `newest` names.
//
// etcd keeps each written value until it is compacted. Run it with --auto-compaction-retention, or
// its quota fills up: Save and Campaign then return RESOURCE_EXHAUSTED, while the leader keeps the
// lead and can still Load.
class EtcdStore final : public StateStore {
 public:
  explicit EtcdStore(EtcdStoreOptions options);
  ~EtcdStore() override;

  absl::Status Campaign(MonotonicTime deadline) override;
  bool IsLeader() const override;
  absl::StatusOr<std::optional<StoredState>> Load() override;
  absl::StatusOr<std::optional<StoredState>> Peek() override;
  absl::Status Save(uint64_t revision, absl::string_view state) override;
  std::string Describe() const override;

 private:
  struct Leadership {
    int64_t lease = 0;
    // The create revision of the key `leader`. No two leaders have the same.
    int64_t create_revision = 0;
    // etcd keeps the lease at least until then, by Clock::LeaseNow: a resumed machine must not take
    // itself for the leader.
    MonotonicTime until;
  };
  // The value of the key `newest`.
  struct Newest {
    uint64_t revision = 0;
    uint32_t crc = 0;
    uint64_t bytes = 0;
    std::string folder;
  };

  static absl::StatusOr<Newest> ParseNewest(absl::string_view text);

  std::string Key(absl::string_view name) const;
  std::string ChunkKey(absl::string_view folder, size_t index) const;
  // A transaction with the condition of invariant 1. If it fails, its first response is `leader`.
  etcdserverpb::TxnRequest LeaderTxn(int64_t create_revision) const;

  // Reads the chunks of a state. NOT_FOUND: a chunk is missing. DATA_LOSS: the chunks do not match
  // `newest`.
  absl::StatusOr<std::string> ReadState(const Newest& newest, MonotonicTime deadline);

  // Tries once to become leader. DEADLINE_EXCEEDED: another process leads; the message names it.
  absl::Status TryToLead(MonotonicTime deadline);
  // Sets pending_lease_ to a live lease: the present one if it is alive, or else a new one. Returns
  // the time, by Clock::LeaseNow, until which it is certain to live.
  absl::StatusOr<MonotonicTime> KeepPendingLease(MonotonicTime deadline);
  absl::StatusOr<Leadership> CurrentLeadership() const;
  // Ends the leadership if it still has this lease. The lease's thread then reports the loss.
  absl::Status EndLeadership(int64_t lease, absl::string_view why);
  // Checks the key `leader` in the response of a LeaderTxn that failed. ABORTED, and no longer
  // leader, if it is not ours.
  absl::Status CheckStillLeads(const Leadership& leadership,
                               const etcdserverpb::TxnResponse& response);
  // The error of a LeaderTxn that failed although it had no other condition.
  absl::Status NotLeader(const Leadership& leadership, const etcdserverpb::TxnResponse& response);
  // Renews the lease until the leadership ends. Runs on lease_thread_.
  void KeepLease();

  const EtcdStoreOptions options_;

  // Used by the thread that calls Campaign, Load and Save.
  EtcdClient client_;
  // Granted, but not known to carry the key `leader`, since a response may have been lost. 0: none.
  int64_t pending_lease_ = 0;
  // The leadership in which Load was called. 0: none.
  int64_t loaded_create_revision_ = 0;
  uint64_t folders_made_ = 0;
  std::thread lease_thread_;

  mutable Mutex mu_;
  CondVar changed_;
  std::optional<Leadership> leadership_ PAWL_GUARDED_BY(mu_);
  absl::Status lost_why_ PAWL_GUARDED_BY(mu_);
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_ETCD_STORE_H_
