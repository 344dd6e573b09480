#include "worker/dense/dense_store.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"

namespace pawl {
namespace {

constexpr uint64_t kPairBase = uint64_t{1} << 24;
constexpr size_t kStepsElements = 4;

TableSpec Assigned(const std::string& name, const std::vector<uint64_t>& shape) {
  TableSpec spec;
  spec.set_name(name);
  spec.set_kind(DENSE);
  spec.set_element_type(FLOAT32);
  spec.mutable_shape()->Add(shape.begin(), shape.end());
  spec.mutable_initializer()->mutable_constant()->set_value(0);
  spec.mutable_optimizer()->mutable_assign();
  return spec;
}

uint64_t SlotsOf(uint64_t elements, const UpdateRule& rule) {
  uint64_t slots = 0;
  for (uint64_t done = 0; done < elements; done += kBlockElements) {
    slots += rule.SlotCount(std::min(kBlockElements, elements - done));
  }
  return slots;
}

void PutPair(uint64_t number, float* pair) {
  const uint64_t high = number / kPairBase, low = number % kPairBase;
  pair[0] = static_cast<float>(high);
  pair[1] = static_cast<float>(low);
}

absl::StatusOr<uint64_t> GetPair(const float* pair) {
  for (size_t i = 0; i < 2; ++i) {
    if (!(pair[i] >= 0 && pair[i] < static_cast<float>(kPairBase)) ||
        pair[i] != std::floor(pair[i])) {
      return absl::DataLossError(
          absl::StrCat("table dense/steps holds ", pair[i], ", which is not a number of steps"));
    }
  }
  return static_cast<uint64_t>(pair[0]) * kPairBase + static_cast<uint64_t>(pair[1]);
}

}  // namespace

std::vector<TableSpec> DenseStore::Specs(const std::vector<TableSpec>& models,
                                         const UpdateRule& rule) {
  std::vector<TableSpec> specs;
  for (TableSpec spec : models) {
    spec.clear_optimizer();
    spec.mutable_optimizer()->mutable_assign();
    specs.push_back(std::move(spec));
  }
  for (const TableSpec& model : models) {
    const uint64_t slots = SlotsOf(Table(model).elements(), rule);
    if (slots > 0) specs.push_back(Assigned(absl::StrCat(model.name(), "/slots"), {slots}));
  }
  specs.push_back(Assigned("dense/steps", {kStepsElements}));
  return specs;
}

DenseStore::DenseStore(const DenseLayout& layout, const UpdateRule& rule, std::vector<Table> tables)
    : layout_(layout), rule_(rule), tables_(std::move(tables)) {}

absl::StatusOr<DenseStore::WriteBackPart> DenseStore::PartOf(const DenseState& state,
                                                             uint64_t version, uint32_t rank,
                                                             uint32_t logical_workers) const {
  WriteBackPart result;
  uint64_t place = 0;
  std::vector<Table> tables;
  // copy(part, to) copies values that the host may be unable to read.
  const auto add = [&](const Table& table, absl::Span<const float> values,
                       auto copy) -> absl::Status {
    std::vector<uint64_t> blocks;
    std::vector<float> mine;
    for (uint64_t block = 0; block * kBlockElements < values.size(); ++block) {
      if (place++ % logical_workers != rank) continue;
      blocks.push_back(block);
      const absl::Span<const float> part = values.subspan(block * kBlockElements, kBlockElements);
      mine.resize(mine.size() + part.size());
      PAWL_RETURN_IF_ERROR(copy(part, mine.data() + mine.size() - part.size()));
    }
    if (blocks.empty()) return absl::OkStatus();
    tables.push_back(table);
    result.blocks.push_back(std::move(blocks));
    result.values.push_back(std::move(mine));
    return absl::OkStatus();
  };
  const auto of_state = [&](absl::Span<const float> part, float* to) {
    return state.memory().ToHost(part.data(), part.size(), to);
  };
  const size_t models = layout_.tables();
  for (size_t t = 0; t < models; ++t)
    PAWL_RETURN_IF_ERROR(add(tables_[t], state.Values(t, version), of_state));
  size_t next = models;
  for (size_t t = 0; t < models; ++t) {
    if (layout_.table_slots(t) > 0)
      PAWL_RETURN_IF_ERROR(add(tables_[next++], state.Slots(t), of_state));
  }
  float steps[kStepsElements];
  PutPair(version, steps);
  PutPair(version - std::min(version, state.lost_steps()), steps + 2);
  PAWL_RETURN_IF_ERROR(add(tables_.back(), steps, [](absl::Span<const float> part, float* to) {
    std::copy(part.begin(), part.end(), to);
    return absl::OkStatus();
  }));
  for (size_t i = 0; i < tables.size(); ++i) {
    result.items.push_back(
        {.table = tables[i], .keys = result.blocks[i], .gradients = result.values[i]});
  }
  return result;
}

absl::StatusOr<uint64_t> DenseStore::Load(Session& session, MonotonicDuration timeout,
                                          const Interrupt& interrupt, DenseState& state) {
  // Shared with the call, which may outlive an interrupted wait.
  const auto values = std::make_shared<std::vector<std::vector<float>>>();
  std::vector<PullItem> items;
  for (const Table& table : tables_) values->emplace_back(table.elements());
  for (size_t i = 0; i < tables_.size(); ++i) {
    items.push_back({.table = tables_[i], .values = absl::MakeSpan((*values)[i])});
  }
  std::future<absl::Status> pulled;
  session.Pull(items, CallOptions{.timeout = timeout},
               [values, done = Fulfilling(pulled)](absl::Status status) mutable {
                 done(std::move(status));
               });
  PAWL_RETURN_IF_ERROR(Await(pulled, timeout + kLibraryGrace, interrupt,
                             "pull of the dense parameters from the servers"));
  PAWL_ASSIGN_OR_RETURN(const uint64_t steps, GetPair(values->back().data()));
  PAWL_ASSIGN_OR_RETURN(const uint64_t updates, GetPair(values->back().data() + 2));
  if (updates > steps) {
    return absl::DataLossError(
        absl::StrCat("table dense/steps has ", updates, " updates in ", steps, " steps"));
  }

  std::vector<float> weights;
  std::vector<float> slots;
  for (size_t t = 0; t < layout_.tables(); ++t)
    weights.insert(weights.end(), (*values)[t].begin(), (*values)[t].end());
  for (size_t i = layout_.tables(); i + 1 < values->size(); ++i) {
    slots.insert(slots.end(), (*values)[i].begin(), (*values)[i].end());
  }
  if (updates == 0) {
    for (const DenseBlock& block : layout_.blocks())
      rule_.InitializeSlots(block.count, slots.data() + block.slots_begin);
  }
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    const DenseBucket& bucket = layout_.buckets()[b];
    PAWL_RETURN_IF_ERROR(state.memory().FromHost(weights.data() + bucket.begin, bucket.count,
                                                 state.weights(b, steps)));
    PAWL_RETURN_IF_ERROR(state.memory().FromHost(slots.data() + bucket.slots_begin,
                                                 bucket.slots_count, state.slots(b)));
  }
  state.set_lost_steps(steps - updates);
  for (size_t b = 0; b < layout_.buckets().size(); ++b) state.Publish(b, steps);
  return steps;
}

}  // namespace pawl
