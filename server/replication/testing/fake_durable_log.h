// A DurableLog in memory for tests: everything is durable at once unless the test says otherwise.
#ifndef PAWL_SERVER_REPLICATION_TESTING_FAKE_DURABLE_LOG_H_
#define PAWL_SERVER_REPLICATION_TESTING_FAKE_DURABLE_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/mutex.h"
#include "server/replication/durable_log.h"

namespace pawl {

// Records what it is given, and holds reads until the test answers them. Set the hooks before the
// log is used; Append, Replace, and the functions of durability are thread-safe.
class FakeDurableLog final : public DurableLog {
 public:
  struct Read {
    uint64_t first;
    uint64_t last;
    EntriesRead done;
  };

  const std::optional<NodeIdentity>& identity() const override { return identity_; }
  absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(
      const PartitionOptions&) override {
    return std::vector<std::unique_ptr<Partition>>();
  }
  absl::Status SetDamagedFilesAside() override { return absl::OkStatus(); }
  absl::Status MarkJobEnded() override { return absl::OkStatus(); }
  absl::Status Initialize(NodeIdentity identity) override {
    identity_ = std::move(identity);
    return absl::OkStatus();
  }
  absl::Status Start(Owner&, const PartitionOptions&) override { return absl::OkStatus(); }
  void Stop() override {}

  absl::Status CheckRoom(uint64_t bytes) const override {
    asked_bytes = bytes;
    return room;
  }
  absl::Status WriteStatus() const override { return write_status.value_or(room); }
  uint64_t DurableIndex(uint32_t) const override { return durable; }
  absl::Status AwaitDurable(uint32_t, uint64_t index) const override {
    return durable >= index ? absl::OkStatus() : absl::UnavailableError("not durable yet");
  }
  void Append(uint32_t, uint64_t, uint64_t, ByteView entry, std::shared_ptr<const void>) override {
    std::string bytes(entry.size(), '\0');
    entry.CopyTo(bytes.data());
    {
      MutexLock lock(mu_);
      entries_.push_back(std::move(bytes));
    }
    if (on_append != nullptr) on_append();
  }
  void WriteQueued() override {}
  absl::StatusOr<std::unique_ptr<StoredSnapshot>> StoreSnapshot(uint32_t,
                                                                HeldSnapshot snapshot) override {
    if (on_store != nullptr) on_store(std::move(snapshot));
    return nullptr;
  }
  void StoreSnapshotAsync(uint32_t partition, HeldSnapshot snapshot, StoreDone done) override {
    if (!holds_stores)
      return DurableLog::StoreSnapshotAsync(partition, std::move(snapshot), std::move(done));
    stores.push_back(std::move(done));
  }
  void Replace(uint32_t partition, std::unique_ptr<StoredSnapshot>) override {
    MutexLock lock(mu_);
    replaced_.push_back(partition);
  }
  absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t, uint64_t index) override {
    return on_read_back != nullptr ? on_read_back(index)
                                   : absl::NotFoundError("the log does not reach back");
  }
  absl::Status Truncate(uint32_t, uint64_t index) override {
    truncated.push_back(index);
    return absl::OkStatus();
  }
  void ForgetReadBack(uint32_t partition) override { forgotten_read_backs.push_back(partition); }
  void ReadEntries(uint32_t, uint64_t first, uint64_t last, size_t, EntriesRead done) override {
    reads.push_back({first, last, std::move(done)});
  }
  void Drop(uint32_t partition) override {
    if (on_drop != nullptr) on_drop(partition);
  }

  // The serialized entries in the order of Append.
  std::vector<std::string> entries() const {
    MutexLock lock(mu_);
    return entries_;
  }
  // The partitions in the order of Replace.
  std::vector<uint32_t> replaced() const {
    MutexLock lock(mu_);
    return replaced_;
  }

  std::function<void()> on_append;
  std::function<void(HeldSnapshot)> on_store;
  // Snapshots are stored when the test answers the calls in `stores`.
  bool holds_stores = false;
  std::deque<StoreDone> stores;
  std::function<absl::StatusOr<std::unique_ptr<Partition>>(uint64_t index)> on_read_back;
  std::function<void(uint32_t)> on_drop;
  // The answer of CheckRoom, and the bytes it was last asked for.
  absl::Status room;
  // The answer of WriteStatus; nullopt: `room`.
  std::optional<absl::Status> write_status;
  mutable std::atomic<uint64_t> asked_bytes{0};
  // What is durable of every partition.
  std::atomic<uint64_t> durable{~uint64_t{0}};
  // The indices of Truncate.
  std::vector<uint64_t> truncated;
  // The partitions of ForgetReadBack.
  std::vector<uint32_t> forgotten_read_backs;
  // The unanswered calls of ReadEntries.
  std::deque<Read> reads;

 private:
  std::optional<NodeIdentity> identity_;
  mutable Mutex mu_;
  std::vector<std::string> entries_ PAWL_GUARDED_BY(mu_);
  std::vector<uint32_t> replaced_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_TESTING_FAKE_DURABLE_LOG_H_
