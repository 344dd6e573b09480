// The scheduler's state in etcd: for schedulers that stand by on other machines.
#ifndef PAWL_SCHEDULER_STORE_ETCD_STORE_H_
#define PAWL_SCHEDULER_STORE_ETCD_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "scheduler/store/etcd_client.h"
#include "scheduler/store/state_store.h"

namespace pawl {

struct EtcdStoreOptions {
  // "HOST:PORT" of the members' client addresses, at least one.
  std::vector<std::string> endpoints;
  // Begins the keys; one for each job.
  std::string prefix;
  // After a leader's death a standby waits for this long. It is renewed three times as often. etcd
  // rounds it up to one and a half of its own election timeout (2 s as it comes).
  std::chrono::seconds lease_ttl{5};
};

// etcd refuses requests beyond 1.5 MiB (--max-request-bytes), after base64 is undone: larger states
// are cut.
inline constexpr size_t kEtcdChunkBytes = size_t{1} << 20;

// The keys, below the prefix:
//
//   leader              who leads, for people; on the leader's lease, so that it goes with it
//   newest              "REVISION CRC32C BYTES FOLDER": 20 decimal digits, 8 hexadecimal digits,
//   decimal, text state/FOLDER/INDEX  the bytes of the newest state in chunks of at most
//   kEtcdChunkBytes; INDEX has 6 digits
//
// 1. Every write is a transaction with the condition that `leader` has the create revision that it
// got when this
//    process became leader: etcd itself refuses whoever was overtaken, however late his request
//    arrives.
// 2. The last chunk, `newest` and the removal of older folders are one transaction, with the
// condition that the
//    revision in `newest` is smaller. Each Save has a folder of its own, so nothing that fails or
//    comes late can change a chunk that `newest` names.
//
// etcd keeps each written value until it is compacted: run it with --auto-compaction-retention, or
// its quota fills and Save answers RESOURCE_EXHAUSTED, and Campaign too; who leads goes on leading
// and can Load. Plain HTTP, without authentication.
class EtcdStore final : public StateStore {
 public:
  explicit EtcdStore(EtcdStoreOptions options);
  ~EtcdStore() override;

  absl::Status Campaign(MonotonicTime deadline) override;
  bool IsLeader() const override;
  void WhenLeadershipLost(std::function<void(const absl::Status& why)> lost) override;
  absl::StatusOr<std::optional<StoredState>> Load() override;
  absl::StatusOr<std::optional<StoredState>> Peek() override;
  absl::Status Save(uint64_t revision, absl::string_view state) override;
  std::string Describe() const override;

 private:
  struct Leadership {
    int64_t lease = 0;
    // Of the key `leader`: never the same for two leaders.
    int64_t create_revision = 0;
    // etcd keeps the lease at least until then.
    MonotonicTime until;
  };
  // What the key `newest` says.
  struct Newest {
    uint64_t revision = 0;
    uint32_t crc = 0;
    uint64_t bytes = 0;
    std::string folder;
  };

  static absl::StatusOr<Newest> ParseNewest(absl::string_view text);

  std::string Key(absl::string_view name) const;
  std::string ChunkKey(absl::string_view folder, size_t index) const;
  // The condition of invariant 1.
  nlohmann::json IsLed(int64_t create_revision) const;

  // What the keys of the newest state hold. NOT_FOUND: one is missing; DATA_LOSS: it is not what
  // `newest` says.
  absl::StatusOr<std::string> ReadState(const Newest& newest, MonotonicTime deadline);

  // One try to become leader. DEADLINE_EXCEEDED, naming the leader, if there is another.
  absl::Status TryToLead(MonotonicTime deadline);
  // The lease to campaign with: the pending one if it still lives, else a new one; how long it
  // surely lives.
  absl::StatusOr<MonotonicTime> KeepPendingLease(MonotonicTime deadline);
  absl::StatusOr<Leadership> CurrentLeadership() const;
  // Ends the leadership that has this lease, if it is still ours; the lease's thread tells.
  absl::Status Lose(int64_t lease, absl::string_view why);
  // ABORTED, and no longer leader, if `leader` in the answer of a refused transaction is not ours.
  absl::Status CheckStillLed(const Leadership& leadership, const nlohmann::json& answer);
  // The error of a transaction that was refused though its only condition is that `leader` is ours.
  absl::Status NotLed(const Leadership& leadership, const nlohmann::json& answer);
  void KeepLease();

  const EtcdStoreOptions options_;
  std::function<void(const absl::Status&)> lost_;

  // For the thread that calls Campaign, Load and Save.
  EtcdClient client_;
  // Granted and not yet known to carry the key `leader`: a reply may have been lost. 0 is none.
  int64_t pending_lease_ = 0;
  // The leadership that Load was called in. 0 is none.
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
