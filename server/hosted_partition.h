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

// What a heartbeat tells of a partition.
struct PartitionFigures {
  PartitionCounters counters;
  uint64_t pushes_deduplicated = 0;
  uint64_t staleness_max = 0;
  uint64_t keys_pulled = 0;
  uint64_t rows = 0;
  uint64_t parameter_bytes = 0;
};

struct HostedPartition {
  HostedPartition(uint32_t index, const PartitionOptions& options) : partition(index, options) {}

  Mutex mu;
  Partition partition PAWL_GUARDED_BY(mu);
  // By the step that they wait for (Partition::CanPull).
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting PAWL_GUARDED_BY(mu);

  // What changes nothing in the partition and is no part of its state.
  uint64_t pushes_deduplicated PAWL_GUARDED_BY(mu) = 0;
  uint64_t staleness_max PAWL_GUARDED_BY(mu) = 0;
  uint64_t keys_pulled PAWL_GUARDED_BY(mu) = 0;

  // The last figures seen, for whoever must not wait for `mu` (a heartbeat, while a digest is computed).
  Mutex last_figures_mu;
  PartitionFigures last_figures PAWL_GUARDED_BY(last_figures_mu);

  PartitionFigures Figures() PAWL_REQUIRES(mu) {
    return {partition.counters(),  pushes_deduplicated,   staleness_max,
            keys_pulled,           partition.row_count(), partition.parameter_bytes()};
  }

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
