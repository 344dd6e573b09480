// A server's incarnation with a ServerLog and real partitions, for tests: makes changes, and knows
// what was reported durable.
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

class ServerLogHarness {
 public:
  // Everything is tried again after 1 ms; segments and the log are small.
  static ServerLogOptions QuickOptions(const std::string& data_folder);

  ServerLogHarness(Env& env, ServerLogOptions options, Durability durability);
  ~ServerLogHarness();

  // Goes on as who it was; begins as `node` of job `job_id` if it is new or was another.
  absl::Status Open(const std::string& node = "server-0", uint64_t job_id = 77);

  ServerLog& log() { return *log_; }

  // What a change brings does not matter, but all kinds come; without waiting. The n-th change of a
  // partition is the same in every incarnation: so states at equal indices are equal.
  void Change(uint32_t partition, int count = 1);
  bool WaitDurable(uint32_t partition, MonotonicDuration patience = kTestPatience);
  bool WaitAllDurable();
  // As for a primary that another one replaces.
  void Drop(uint32_t partition);
  // As for a learner whose snapshot comes, of a partition that has seen `index` changes; without
  // waiting until it is durable.
  absl::Status Install(uint32_t partition, uint64_t index);

  // As for a replica that goes back to what it shares with its primary; without waiting until that
  // is durable.
  absl::Status GoBack(uint32_t partition, uint64_t index);
  // Of changes from now on; 1 at first.
  void set_term(uint64_t term) { term_ = term; }

  bool Has(uint32_t partition) { return replicas_[partition].partition != nullptr; }
  uint64_t index(uint32_t partition) { return replicas_[partition].partition->log_index(); }
  uint64_t durable(uint32_t partition);
  uint64_t fingerprint(uint32_t partition);
  // That of the partition after its first `index` changes.
  static uint64_t FingerprintAt(uint32_t partition, uint64_t index);
  // The lock of a replica, for tests of what waits for it.
  Mutex& lock_of(uint32_t partition) { return replicas_[partition].mu; }
  // Reports of more than the partition has: of another replica of it.
  uint64_t wrong_reports() const { return wrong_reports_; }

 private:
  struct Replica {
    Mutex mu;
    std::unique_ptr<Partition> partition;
    uint64_t durable = 0;
  };
  bool OnDurable(uint32_t partition);

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
