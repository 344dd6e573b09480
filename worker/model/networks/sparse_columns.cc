#include "worker/model/networks/sparse_columns.h"

#include <utility>

namespace pawl {
namespace {

bool CouplesElements(const Optimizer& optimizer) {
  return optimizer.has_rowwise_adagrad() || optimizer.clip_norm() != 0;
}

}  // namespace

WeightAndVector AddWeightAndVector(uint32_t dim, float init_stddev, TableList& tables) {
  WeightAndVector columns;
  if (CouplesElements(tables.sparse_optimizer())) {
    const size_t linear = tables.AddSparse("linear", 1, ZeroInitializer());
    columns.weight = {.table = linear, .begin = 0, .count = 1, .row_width = 1};
    const size_t embedding = tables.AddSparse("embedding", dim, NormalInitializer(init_stddev));
    columns.vector = {.table = embedding, .begin = 0, .count = dim, .row_width = dim};
    return columns;
  }
  Initializer initializer = NormalInitializer(init_stddev);
  initializer.set_zero_from(dim);
  const size_t table = tables.AddSparse("embedding", dim + 1, std::move(initializer));
  columns.weight = {
      .table = table, .begin = dim, .count = 1, .row_width = dim + 1, .finishes = false};
  columns.vector = {
      .table = table, .begin = 0, .count = dim, .row_width = dim + 1, .awaits = false};
  return columns;
}

}  // namespace pawl
