// The tables of a model during its construction.
#ifndef PAWL_WORKER_MODEL_TABLE_LIST_H_
#define PAWL_WORKER_MODEL_TABLE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/types.pb.h"

namespace pawl {

// Tables are added in the order in which the forward pass needs them. A table is identified by its
// index.
class TableList {
 public:
  TableList(Optimizer dense_optimizer, Optimizer sparse_optimizer)
      : dense_optimizer_(std::move(dense_optimizer)),
        sparse_optimizer_(std::move(sparse_optimizer)) {}

  size_t AddDense(std::string name, const std::vector<uint64_t>& shape, Initializer initializer);
  // With the rows of the key set. `optimizer`: if not set, that of the sparse tables.
  size_t AddSparse(std::string name, uint32_t row_width, Initializer initializer,
                   size_t key_set = 0, const std::optional<Optimizer>& optimizer = {});

  const std::vector<TableSpec>& specs() const { return specs_; }
  // By table; of a dense one 0.
  const std::vector<size_t>& key_sets() const { return key_sets_; }
  const Optimizer& sparse_optimizer() const { return sparse_optimizer_; }

 private:
  const Optimizer dense_optimizer_;
  const Optimizer sparse_optimizer_;
  std::vector<TableSpec> specs_;
  std::vector<size_t> key_sets_;
};

Initializer ZeroInitializer();
// 0 means the job file's default, 0.01.
Initializer NormalInitializer(float stddev);
Initializer XavierInitializer();

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TABLE_LIST_H_
