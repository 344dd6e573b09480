#include "server/shard/testing/random_history.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"

namespace pawl {
namespace {

constexpr uint32_t kClients = 3;
constexpr uint64_t kSparseKeys = 40;
constexpr uint64_t kLargeElements = 3 * kBlockElements + 3;
constexpr uint64_t kSmallElements = 700;

TableSpec MakeSpec(uint32_t id) {
  const std::string name = "table_" + std::to_string(id);
  TableSpec spec = id <= 8 ? SparseTableSpec(name, id == 3 ? 20 : id, id)
                           : DenseTableSpec(name, {id == 9 ? kLargeElements : kSmallElements}, id);
  spec.mutable_initializer()->mutable_normal()->set_stddev(0.1f);
  Optimizer& optimizer = *spec.mutable_optimizer();
  constexpr float kRate = 0.1f;
  // As in the stored snapshots of the tests.
  constexpr float kInitialAccumulator = 0.1f;
  switch ((id - 1) % 8) {
    case 0:
      optimizer.mutable_adam()->set_learning_rate(kRate);
      break;
    case 1:
      optimizer.mutable_rowwise_adagrad()->set_learning_rate(kRate);
      optimizer.mutable_rowwise_adagrad()->set_initial_accumulator(kInitialAccumulator);
      break;
    case 2:
      optimizer.mutable_momentum()->set_learning_rate(kRate);
      break;
    case 3:
      optimizer.mutable_adagrad()->set_learning_rate(kRate);
      optimizer.mutable_adagrad()->set_initial_accumulator(kInitialAccumulator);
      break;
    case 4:
      optimizer.mutable_rmsprop()->set_learning_rate(kRate);
      break;
    case 5:
      optimizer.mutable_adamw()->set_learning_rate(kRate);
      break;
    case 6:
      optimizer.mutable_ftrl()->set_learning_rate(kRate);
      break;
    case 7:
      optimizer.mutable_sgd()->set_learning_rate(kRate);
      break;
  }
  return spec;
}

}  // namespace

RandomHistory::RandomHistory(const PartitionOptions& options, uint32_t partition, uint32_t seed,
                             bool assigns)
    : options_(options),
      partition_(partition),
      seed_(seed),
      assigns_(assigns),
      random_(seed),
      ranks_(options.logical_workers),
      clients_(kClients) {
  for (uint32_t id = 1; id <= 11; ++id) {
    auto table = TableSchema::Create(MakeSpec(id), options.job_seed);
    if (!table.ok()) std::abort();
    tables_.push_back(*table);
  }
}

RandomHistory::Call RandomHistory::Push(const Sender& sender, uint64_t ordinal,
                                        uint64_t name) const {
  std::mt19937 random(name + seed_);
  // Large blocks are rare, because they are slow.
  const TableSchema& table = *tables_[random() % 10 == 0 ? random() % 11 : random() % 8];
  struct Data {
    std::vector<uint64_t> keys;
    std::vector<float> values;
    std::vector<float> slots;
  };
  auto data = std::make_shared<Data>();
  const bool assigns = assigns_ && random() % 4 == 0;
  const uint64_t key_count = table.is_dense() ? table.BlockCount() : kSparseKeys;
  for (size_t count = 1 + random() % 4, tries = 0; tries < count; ++tries) {
    const uint64_t key = random() % key_count;
    if (PartitionOf(table.id(), key, options_.partitions) != partition_) continue;
    // The keys of an assignment are distinct.
    if (assigns && std::find(data->keys.begin(), data->keys.end(), key) != data->keys.end())
      continue;
    data->keys.push_back(key);
    for (size_t i = 0; i < table.RowWidth(key); ++i) {
      data->values.push_back(static_cast<float>(random() % 2001) / 700.0f - 1.0f);
    }
  }
  if (assigns_ && sender.kind == Sender::Kind::kLogicalWorker && sender.number == 0 &&
      random() % 8 == 0) {
    std::vector<TableRate> rates;
    for (uint32_t id = 1; id < 8; ++id) {
      if (random() % 2 == 0) rates.push_back({id, 0.01f * static_cast<float>(1 + random() % 20)});
    }
    rates.push_back({8, 0.1f});
    return [=](Partition& partition) { (void)partition.SetLearningRates(sender, ordinal, rates); };
  }
  const auto effect = static_cast<Assignment::Slots>(random() % 3);
  for (const uint64_t key : data->keys) {
    for (size_t i = table.StateFloats(table.RowWidth(key)); assigns && i > 0; --i)
      data->slots.push_back(static_cast<float>(random() % 3));
  }
  return [=, id = table.id()](Partition& partition) {
    if (partition.FindTable(id) == nullptr) return;
    if (assigns) {
      Assignment assignment{.keys = ByteView(data->keys.data(), data->keys.size() * 8),
                            .values = ByteView(data->values.data(), data->values.size() * 4),
                            .effect = effect};
      if (effect == Assignment::Slots::kGiven)
        assignment.slots = ByteView(data->slots.data(), data->slots.size() * 4);
      // A logical worker that may not assign pushes a gradient instead, so that no push is missing.
      if (!absl::IsFailedPrecondition(partition.Assign(sender, ordinal, id, assignment).status())) {
        return;
      }
    }
    const size_t bytes = data->values.size() * sizeof(float);
    const char* const values = reinterpret_cast<const char*>(data->values.data());
    Gradient gradient{ByteView(data->keys.data(), data->keys.size() * sizeof(uint64_t)),
                      ByteView(values, bytes / 3), data};
    gradient.values.Append(values + bytes / 3, bytes - bytes / 3);
    (void)partition.Push(sender, ordinal, id, gradient);
  };
}

RandomHistory::Call RandomHistory::WorkerPush(uint32_t rank, uint64_t ordinal,
                                              uint64_t incarnation) const {
  const uint64_t step = ranks_[rank].step;
  return Push(Sender{Sender::Kind::kLogicalWorker, rank, incarnation, step}, ordinal,
              step * 1000003 + rank * 10007 + ordinal * 101);
}

RandomHistory::Call RandomHistory::NextWorkerCall(const Partition& partition,
                                                  uint32_t rank_number) {
  Rank& rank = ranks_[rank_number];
  const bool must_wait = options_.consistency.mode() == SYNC && !partition.CanPull(rank.step);
  if (must_wait && options_.clip_global_norm > 0 && partition.HaveAllEnded(partition.version())) {
    Sender sender{Sender::Kind::kLogicalWorker, rank_number, rank.incarnation, partition.version()};
    const double norm = std::sqrt(partition.StepSquares(sender.step));
    const double clip = options_.clip_global_norm;
    const float scale = norm > clip ? static_cast<float>(clip / norm) : 1.0f;
    // A repeated close, an early one, or one with an impossible scale now and then.
    if (Below(8) == 0 && sender.step > 0) --sender.step;
    if (Below(8) == 0) ++sender.step;
    return [sender, scale = Below(8) == 0 ? 0.0f : scale](Partition& changed) {
      (void)changed.CloseStep(sender, scale);
    };
  }
  if (rank.rest.empty() && (rank.segments == 0 || !must_wait)) {
    const Sender sender{Sender::Kind::kLogicalWorker, rank_number, rank.incarnation, rank.step};
    return [sender, segments = rank.segments](Partition& changed) {
      (void)changed.EndStep(sender, segments);
    };
  }
  if (must_wait) return [](Partition&) {};
  const size_t i = Below(rank.rest.size());
  const uint64_t ordinal = rank.rest[i];
  rank.rest.erase(rank.rest.begin() + i);
  rank.pushed.push_back(ordinal);
  return WorkerPush(rank_number, ordinal, rank.incarnation);
}

RandomHistory::Call RandomHistory::InvalidCall(const Partition& partition, uint32_t rank_number) {
  const Rank& rank = ranks_[rank_number];
  const bool may_push = options_.consistency.mode() != SYNC || partition.CanPull(rank.step);
  Sender sender{Sender::Kind::kLogicalWorker, rank_number, rank.incarnation, rank.step};
  switch (Below(8)) {
    case 0:
      if (may_push && !rank.pushed.empty()) {
        return WorkerPush(rank_number, rank.pushed[Below(rank.pushed.size())],
                          rank.incarnation + Below(2));
      }
      break;
    case 1:
      if (may_push) return WorkerPush(rank_number, rank.segments, rank.incarnation - 1);
      break;
    case 2:
      if (may_push) return WorkerPush(rank_number, kPushWindow + rank.segments, rank.incarnation);
      break;
    case 3:
      sender.step += 1 + Below(2);
      return [sender](Partition& changed) { (void)changed.EndStep(sender, 0); };
    case 4:
      return [sender, segments = rank.segments + 1](Partition& changed) {
        (void)changed.EndStep(sender, segments);
      };
    case 5:
      return [=, incarnation = rank.incarnation - Below(2)](Partition& changed) {
        (void)changed.TakeOver(rank_number, incarnation);
      };
    case 6: {
      const uint32_t number = Below(kClients);
      const Client& client = clients_[number];
      const uint64_t ordinal = client.next > 0 ? client.next - 1 : kPushWindow;
      return Push(Sender{Sender::Kind::kClient, number, client.incarnation - Below(2), 0}, ordinal,
                  number);
    }
    case 7:
      return [table = tables_[Below(tables_.size() / 2)]](Partition& changed) {
        (void)changed.CreateTable(table);
      };
  }
  return [](Partition&) {};
}

RandomHistory::Call RandomHistory::Next(const Partition& partition) {
  for (uint32_t number = 0; number < ranks_.size(); ++number) {
    Rank& rank = ranks_[number];
    if (rank.started && rank.step == partition.clock(number)) continue;
    rank.started = true;
    rank.step = partition.clock(number);
    rank.segments = Below(5);
    rank.pushed.clear();
    rank.rest.clear();
    for (uint64_t ordinal = 0; ordinal < rank.segments; ++ordinal) rank.rest.push_back(ordinal);
  }
  // The last table is created late.
  for (size_t i = 0; i + 1 < tables_.size() || (i < tables_.size() && partition.log_index() > 200);
       ++i) {
    if (partition.FindTable(tables_[i]->id()) != nullptr) continue;
    return [table = tables_[i]](Partition& changed) { (void)changed.CreateTable(table); };
  }
  const uint32_t number = Below(ranks_.size());
  Rank& rank = ranks_[number];
  const uint32_t dice = Below(100);
  if (rank.released ? dice < 50 : dice < 3) {
    rank.released = false;
    return [number, incarnation = ++rank.incarnation](Partition& changed) {
      (void)changed.TakeOver(number, incarnation);
    };
  }
  if (dice < 75 && !rank.released) return NextWorkerCall(partition, number);
  if (dice < 85) {
    const uint32_t client_number = Below(kClients);
    Client& client = clients_[client_number];
    if (Below(20) == 0) client = {client.incarnation + 1, 0};
    client.next += 1 + (Below(4) == 0);  // some are never pushed
    return Push(Sender{Sender::Kind::kClient, client_number, client.incarnation, 0},
                client.next - 1, client.incarnation * 7919 + client.next * 31);
  }
  if (dice < 87 && options_.consistency.mode() != SYNC) {
    rank.released = true;
    return [number, incarnation = rank.incarnation](Partition& changed) {
      (void)changed.Release(number, incarnation);
    };
  }
  if (dice == 88) return [step = ++best_step_](Partition& changed) { changed.KeepBest(step); };
  if (dice == 89 && Below(3) == 0) return [](Partition& changed) { changed.RestoreBest(); };
  return InvalidCall(partition, number);
}

}  // namespace pawl
