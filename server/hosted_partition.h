// A partition that this server is the primary of, with its lock and those who wait for it.
#ifndef PAWL_SERVER_HOSTED_PARTITION_H_
#define PAWL_SERVER_HOSTED_PARTITION_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "client_lib/base/mutex.h"
#include "server/shard/partition.h"
#include "server/waiting_call.h"

namespace pawl {

struct HostedPartition {
  HostedPartition(uint32_t index, const PartitionOptions& options) : partition(index, options) {}

  Mutex mu;
  Partition partition PAWL_GUARDED_BY(mu);
  // By the step that they wait for (Partition::CanPull).
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting PAWL_GUARDED_BY(mu);

  // Moves those whose step can be pulled now to `ready`.
  void TakeReady(std::vector<std::shared_ptr<WaitingCall>>& ready) PAWL_REQUIRES(mu) {
    auto end = waiting.begin();
    while (end != waiting.end() && partition.CanPull(end->first)) {
      ready.push_back(std::move(end->second));
      ++end;
    }
    waiting.erase(waiting.begin(), end);
  }

  // Forgets those that were given up.
  void DropFinished() PAWL_REQUIRES(mu) {
    for (auto it = waiting.begin(); it != waiting.end();) {
      it = it->second->finished() ? waiting.erase(it) : std::next(it);
    }
  }
};

}  // namespace pawl

#endif  // PAWL_SERVER_HOSTED_PARTITION_H_
