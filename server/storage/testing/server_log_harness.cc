#include "server/storage/testing/server_log_harness.h"

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "server/replication/change.h"
#include "server/shard/partition_options.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

constexpr uint32_t kRanks = 2;
constexpr uint64_t kTables = 2;
constexpr uint64_t kSegmentsInStep = 3;
// In one step: each rank's segments and its end, and one more change.
constexpr uint64_t kChangesInStep = kRanks * (kSegmentsInStep + 1) + 1;
constexpr uint64_t kFirstStepsChange = kTables + kRanks;

TableSpec SpecOf(uint32_t id) {
  TableSpec spec = id == 1 ? SparseTableSpec("embedding", 4, id)
                           : WithSgd(DenseTableSpec("dense", {1000}, id), 0.1f);
  if (id == 1) spec.mutable_optimizer()->mutable_adam()->set_learning_rate(0.1f);
  spec.mutable_initializer()->mutable_normal()->set_stddev(0.1f);
  return spec;
}

struct NewChange {
  ChangeView view;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const TableSchema> table;
};

void MakePush(uint32_t partition, uint64_t number, NewChange& change) {
  struct Data {
    std::vector<uint64_t> keys;
    std::vector<float> values;
  };
  auto data = std::make_shared<Data>();
  std::mt19937_64 random(number * kHarnessPartitions + partition);
  while (data->keys.size() < 5) {
    const uint64_t key = random() % 1000;
    if (PartitionOf(1, key, kHarnessPartitions) == partition) data->keys.push_back(key);
  }
  for (size_t i = 0; i < data->keys.size() * 4; ++i)
    data->values.push_back(static_cast<float>(random() % 1000) / 500 - 1);
  SegmentView& segment = change.view.segment;
  segment.table = 1;
  segment.partition = partition;
  segment.element_type = FLOAT32;
  segment.keys = ByteView(data->keys.data(), data->keys.size() * sizeof(uint64_t));
  segment.values = ByteView(data->values.data(), data->values.size() * sizeof(float));
  change.owner = std::move(data);
}

// The change of the partition with this index, starting at 1.
NewChange MakeChange(uint32_t partition, uint64_t index) {
  NewChange change;
  change.view.index = index;
  change.view.partition = partition;
  uint64_t number = index - 1;
  Sender& sender = change.view.sender;
  if (number < kTables) {
    change.view.kind = ChangeView::Kind::kTableCreated;
    change.view.table = SpecOf(static_cast<uint32_t>(number + 1));
    change.table =
        TableSchema::Create(change.view.table, HarnessPartitionOptions().job_seed).value();
    return change;
  }
  if (number < kFirstStepsChange) {
    change.view.kind = ChangeView::Kind::kTakeOver;
    sender = {Sender::Kind::kLogicalWorker, static_cast<uint32_t>(number - kTables), 1};
    return change;
  }
  const uint64_t step = (number - kFirstStepsChange) / kChangesInStep;
  uint64_t place = (number - kFirstStepsChange) % kChangesInStep;
  if (place == kChangesInStep - 1) {
    switch (step % 3) {
      case 0:
        change.view.kind = ChangeView::Kind::kBestKept;
        change.view.step = step + 1;
        return change;
      case 1:
        change.view.kind = ChangeView::Kind::kBestRestored;
        return change;
      default:
        change.view.kind = ChangeView::Kind::kPush;
        sender = {Sender::Kind::kClient, 1, 1};
        change.view.segment.ordinal = step / 3;
        MakePush(partition, number, change);
        return change;
    }
  }
  // The later rank comes first; its gradients are held until the other rank's arrive.
  const auto rank = static_cast<uint32_t>(kRanks - 1 - place / (kSegmentsInStep + 1));
  place %= kSegmentsInStep + 1;
  sender = {Sender::Kind::kLogicalWorker, rank, 1, step};
  if (place == kSegmentsInStep) {
    change.view.kind = ChangeView::Kind::kEndStep;
    change.view.segments = kSegmentsInStep;
    return change;
  }
  change.view.kind = ChangeView::Kind::kPush;
  change.view.segment.ordinal = place;
  MakePush(partition, number, change);
  return change;
}

void ApplyNext(Partition& partition, uint64_t term, NewChange& change) {
  change = MakeChange(partition.index(), partition.log_index() + 1);
  change.view.term = term;
  const absl::Status status = ApplyChange(change.view, change.owner, change.table, partition);
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace

Job HarnessJob(Durability durability) {
  Job job = ServerJob(SYNC, kHarnessPartitions, kRanks);
  job.set_durability(durability);
  return job;
}

PartitionOptions HarnessPartitionOptions() {
  return PartitionOptionsOf(HarnessJob(LOG), /*max_rows=*/1000000);
}

ServerLogOptions ServerLogHarness::QuickOptions(const std::string& data_folder) {
  ServerLogOptions options;
  options.data_folder = data_folder;
  options.log_bytes = 1 << 20;
  options.log.segment_bytes = 20'000;
  options.log.retry_interval = std::chrono::milliseconds(1);
  options.log.idle_interval = std::chrono::milliseconds(1);
  options.compaction_interval = std::chrono::milliseconds(1);
  options.compaction_retry_interval = std::chrono::milliseconds(1);
  options.scrub_bytes_per_s = 0;
  return options;
}

ServerLogHarness::ServerLogHarness(Env& env, ServerLogOptions options, Durability durability)
    : env_(env), options_(std::move(options)), durability_(durability) {
  for (uint32_t p = 0; p < kHarnessPartitions; ++p) replicas_[p];
}

ServerLogHarness::~ServerLogHarness() {
  if (log_ != nullptr) log_->Stop();
}

absl::Status ServerLogHarness::Open(const std::string& node, uint64_t job_id) {
  PAWL_ASSIGN_OR_RETURN(log_, ServerLog::Open(env_, options_));
  const auto& identity = log_->identity();
  if (identity.has_value() && identity->node() == node && identity->job_id() == job_id) {
    PAWL_ASSIGN_OR_RETURN(auto partitions, log_->Recover(HarnessPartitionOptions()));
    for (auto& partition : partitions) {
      Replica& replica = replicas_[partition->index()];
      replica.durable = partition->log_index();
      replica.partition = std::move(partition);
    }
  } else {
    NodeIdentity new_identity;
    new_identity.set_node(node);
    new_identity.set_job_id(job_id);
    *new_identity.mutable_job() = HarnessJob(durability_);
    PAWL_RETURN_IF_ERROR(log_->Initialize(new_identity));
  }
  return log_->Start(*this, HarnessPartitionOptions());
}

void ServerLogHarness::Change(uint32_t partition, int count) {
  Replica& replica = replicas_[partition];
  for (int i = 0; i < count; ++i) {
    MutexLock lock(replica.mu);
    if (replica.partition == nullptr) {
      replica.partition = std::make_unique<Partition>(partition, HarnessPartitionOptions());
    }
    NewChange change;
    ApplyNext(*replica.partition, term_, change);
    OutgoingMessage entry = EncodeLogEntry(change.view, change.owner);
    log_->Append(partition, change.view.index, change.view.term, entry.bytes, entry.owner);
    log_->WriteQueued();
  }
}

bool ServerLogHarness::WaitDurable(uint32_t partition, MonotonicDuration patience) {
  return Eventually([&] { return durable(partition) >= index(partition); }, patience);
}

bool ServerLogHarness::WaitAllDurable() {
  for (uint32_t p = 0; p < kHarnessPartitions; ++p) {
    if (Has(p) && !WaitDurable(p)) return false;
  }
  return true;
}

void ServerLogHarness::Drop(uint32_t partition) {
  Replica& replica = replicas_[partition];
  MutexLock lock(replica.mu);
  replica.partition = nullptr;
  replica.durable = 0;
  log_->Drop(partition);
}

absl::Status ServerLogHarness::Install(uint32_t partition, uint64_t index) {
  Partition loaded(partition, HarnessPartitionOptions());
  NewChange change;
  while (loaded.log_index() < index) ApplyNext(loaded, term_, change);
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<StoredSnapshot> stored,
                        log_->StoreSnapshot(partition, HoldSnapshot(loaded)));
  Replica& replica = replicas_[partition];
  MutexLock lock(replica.mu);
  log_->Replace(partition, std::move(stored));
  replica.durable = 0;
  replica.partition = std::make_unique<Partition>(std::move(loaded));
  return absl::OkStatus();
}

absl::Status ServerLogHarness::GoBack(uint32_t partition, uint64_t index) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<Partition> back, log_->ReadBack(partition, index));
  Replica& replica = replicas_[partition];
  MutexLock lock(replica.mu);
  PAWL_RETURN_IF_ERROR(log_->Truncate(partition, index));
  replica.durable = 0;
  replica.partition = std::move(back);
  return absl::OkStatus();
}

uint64_t ServerLogHarness::durable(uint32_t partition) {
  Replica& replica = replicas_[partition];
  MutexLock lock(replica.mu);
  return replica.durable;
}

uint64_t ServerLogHarness::fingerprint(uint32_t partition) {
  Replica& replica = replicas_[partition];
  MutexLock lock(replica.mu);
  return Fingerprint(*replica.partition);
}

uint64_t ServerLogHarness::FingerprintAt(uint32_t partition, uint64_t index) {
  // The fingerprints at all indices so far, by partition; states are made in order.
  static auto& known =
      *new std::map<uint32_t, std::pair<std::unique_ptr<Partition>, std::vector<uint64_t>>>();
  auto& [state, fingerprints] = known[partition];
  if (state == nullptr) {
    state = std::make_unique<Partition>(partition, HarnessPartitionOptions());
    fingerprints.push_back(Fingerprint(*state));
  }
  NewChange change;
  while (fingerprints.size() <= index) {
    ApplyNext(*state, /*term=*/1, change);
    fingerprints.push_back(Fingerprint(*state));
  }
  return fingerprints[index];
}

bool ServerLogHarness::OnDurable(uint32_t partition) {
  Replica& replica = replicas_[partition];
  if (!replica.mu.TryLock()) return false;
  // Without a partition: the report was in progress when the replica was dropped.
  if (replica.partition != nullptr) {
    replica.durable = log_->DurableIndex(partition);
    if (replica.partition->log_index() < replica.durable) ++wrong_reports_;
  }
  replica.mu.Unlock();
  return true;
}

std::optional<HeldSnapshot> ServerLogHarness::Hold(uint32_t partition) {
  Replica& replica = replicas_[partition];
  MutexLock lock(replica.mu);
  if (replica.partition == nullptr) return std::nullopt;
  return HoldSnapshot(*replica.partition);
}

}  // namespace pawl
