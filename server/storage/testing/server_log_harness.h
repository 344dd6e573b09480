// An incarnation of a server with a ServerLog and real partitions, for tests. It makes changes, and
// knows what was reported durable.
#ifndef PAWL_SERVER_STORAGE_TESTING_SERVER_LOG_HARNESS_H_
#define PAWL_SERVER_STORAGE_TESTING_SERVER_LOG_HARNESS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/testing/eventually.h"
#include "server/shard/partition.h"
#include "server/storage/server_log.h"

namespace pawl {

inline constexpr uint32_t kHarnessPartitions = 4;

// A job in mode SYNC with two logical workers.
Job HarnessJob(Durability durability);
PartitionOptions HarnessPartitionOptions();

class ServerLogHarness final : public DurableLog::Owner {
 public:
  // Retries everything after 1 ms; segments and the log are small.
  static ServerLogOptions QuickOptions(const std::string& data_folder);

  ServerLogHarness(Env& env, ServerLogOptions options, Durability durability);
  ~ServerLogHarness();

  // Continues with the recovered identity, or starts as `node` of job `job_id` if the folder is new
  // or another job's.
  absl::Status Open(const std::string& node = "server-0", uint64_t job_id = 77);

  ServerLog& log() { return *log_; }

  // Applies changes of all kinds without waiting. The n-th change of a partition is the same in
  // every incarnation, so states with equal indices are equal.
  void Change(uint32_t partition, int count = 1);
  bool WaitDurable(uint32_t partition, MonotonicDuration patience = kTestPatience);
  bool WaitAllDurable();
  // Like a primary that was replaced.
  void Drop(uint32_t partition);
  // Like a learner whose snapshot arrives, of a partition after `index` changes; does not wait
  // until it is durable.
  absl::Status Install(uint32_t partition, uint64_t index);

  // Like a replica that goes back to the last change that it shares with its primary; does not wait
  // until that is durable.
  absl::Status GoBack(uint32_t partition, uint64_t index);
  // The term of later changes; initially 1.
  void set_term(uint64_t term) { term_ = term; }

  bool Has(uint32_t partition) { return replicas_[partition].partition != nullptr; }
  uint64_t index(uint32_t partition) { return replicas_[partition].partition->log_index(); }
  uint64_t durable(uint32_t partition);
  uint64_t fingerprint(uint32_t partition);
  // The fingerprint of the partition after its first `index` changes.
  static uint64_t FingerprintAt(uint32_t partition, uint64_t index);
  // The lock of a replica, for tests that block it.
  Mutex& lock_of(uint32_t partition) { return replicas_[partition].mu; }
  // Reports of a higher index than the partition has: they belong to another replica of it.
  uint64_t wrong_reports() const { return wrong_reports_; }

 private:
  struct Replica {
    Mutex mu;
    std::unique_ptr<Partition> partition;
    uint64_t durable = 0;
  };
  // DurableLog::Owner.
  bool OnDurable(uint32_t partition) override;
  std::optional<HeldSnapshot> Hold(uint32_t partition) override;

  Env& env_;
  const ServerLogOptions options_;
  const Durability durability_;
  std::map<uint32_t, Replica> replicas_;
  std::atomic<uint64_t> wrong_reports_{0};
  uint64_t term_ = 1;
  std::unique_ptr<ServerLog> log_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_TESTING_SERVER_LOG_HARNESS_H_
