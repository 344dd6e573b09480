#include "worker/model/networks/parts/sparse_columns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

bool CouplesElements(const Optimizer& optimizer) {
  return optimizer.has_rowwise_adagrad() || optimizer.clip_norm() != 0;
}

// Appends the parts of the key set's field sets, which are the only ones of these columns. Sets
// whose entries stay apart come last in the forward pass, in the order of the layout, and first in
// the backward pass, in reverse, because their attention depends on the others. The others keep
// their order in both passes.
void AddParts(const FieldLayout& layout, size_t key_set, const SparseColumns& columns,
              std::vector<SparseColumns>* parts) {
  const size_t first = parts->size();
  const auto is_apart = [&](const SparseColumns& part) {
    return layout.field_sets[part.field_set].pooling == FieldPooling::kNone;
  };
  for (size_t set = 0; set < layout.field_sets.size(); ++set) {
    if (layout.field_sets[set].key_set != key_set) continue;
    SparseColumns& part = parts->emplace_back(columns);
    part.field_set = set;
    part.awaits = part.finishes = false;
    part.adds = true;
  }
  const auto begin = parts->begin() + static_cast<ptrdiff_t>(first);
  // The target of an attention is pooled, so there is always a set that is.
  const auto first_apart = std::find_if(begin, parts->end(), is_apart);
  begin->awaits = columns.awaits;
  (first_apart == parts->end() ? *begin : parts->back()).adds = false;
  (first_apart - 1)->finishes = columns.finishes;
}

float StddevOf(const FieldLayout::KeySet& key_set, float init_stddev) {
  return key_set.init_stddev == 0 ? init_stddev : key_set.init_stddev;
}

// Adds the table of the key set's weights and its parts.
void AddWeightTable(const FieldLayout& layout, size_t k, TableList& tables,
                    std::vector<SparseColumns>* weights) {
  const FieldLayout::KeySet& key_set = layout.key_sets[k];
  const size_t table = tables.AddSparse(
      key_set.name == "embedding" ? "linear" : absl::StrCat(key_set.name, "/linear"), 1,
      ZeroInitializer(), k, key_set.optimizer);
  AddParts(layout, k, {.table = table, .count = 1, .row_width = 1}, weights);
}

}  // namespace

absl::Status SparseColumns::BackwardOf(ModelStep& step, const Entries& entries, PoolOver over,
                                       ConstMatrix pooled_gradient) const {
  const Matrix gradient{step.gradients[table] + begin, entries.keys, count, row_width};
  if (adds) {
    PAWL_ASSIGN_OR_RETURN(const Matrix part, step.pool.Take(entries.keys, count));
    step.stream.PoolRowsBackward(entries, over, pooled_gradient, part);
    step.stream.Copy(part, Write::kAdd, gradient);
    step.pool.GiveBack(part);
  } else {
    step.stream.PoolRowsBackward(entries, over, pooled_gradient, gradient);
  }
  if (finishes) step.finish(table);
  return absl::OkStatus();
}

std::vector<SparseColumns> AddWeights(const FieldLayout& layout, TableList& tables) {
  std::vector<SparseColumns> weights;
  for (size_t k = 0; k < layout.key_sets.size(); ++k) AddWeightTable(layout, k, tables, &weights);
  return weights;
}

SparseParts AddVectors(const FieldLayout& layout, uint32_t dim, float init_stddev,
                       TableList& tables) {
  SparseParts parts;
  for (size_t k = 0; k < layout.key_sets.size(); ++k) {
    const FieldLayout::KeySet& key_set = layout.key_sets[k];
    const uint32_t width = DimOf(key_set, dim);
    const size_t table =
        tables.AddSparse(key_set.name, width, NormalInitializer(StddevOf(key_set, init_stddev)), k,
                         key_set.optimizer);
    AddParts(layout, k, {.table = table, .count = width, .row_width = width}, &parts.vectors);
  }
  return parts;
}

SparseParts AddWeightsAndVectors(const FieldLayout& layout, uint32_t dim, float init_stddev,
                                 TableList& tables) {
  SparseParts parts;
  for (size_t k = 0; k < layout.key_sets.size(); ++k) {
    const FieldLayout::KeySet& key_set = layout.key_sets[k];
    const uint32_t width = DimOf(key_set, dim);
    Initializer noise = NormalInitializer(StddevOf(key_set, init_stddev));
    if (CouplesElements(key_set.optimizer.value_or(tables.sparse_optimizer()))) {
      AddWeightTable(layout, k, tables, &parts.weights);
      const size_t embedding =
          tables.AddSparse(key_set.name, width, std::move(noise), k, key_set.optimizer);
      AddParts(layout, k, {.table = embedding, .count = width, .row_width = width}, &parts.vectors);
      continue;
    }
    noise.set_zero_from(width);
    const size_t table =
        tables.AddSparse(key_set.name, width + 1, std::move(noise), k, key_set.optimizer);
    const SparseColumns columns{.table = table, .row_width = width + 1};
    SparseColumns weight = columns, vector = columns;
    weight.begin = width;
    weight.count = 1;
    weight.finishes = false;
    vector.count = width;
    vector.awaits = false;
    AddParts(layout, k, weight, &parts.weights);
    AddParts(layout, k, vector, &parts.vectors);
  }
  return parts;
}

}  // namespace pawl
