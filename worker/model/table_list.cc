#include "worker/model/table_list.h"

namespace pawl {
namespace {

constexpr float kDefaultStddev = 0.01f;

}  // namespace

size_t TableList::AddDense(std::string name, const std::vector<uint64_t>& shape,
                           Initializer initializer) {
  key_sets_.push_back(0);
  TableSpec& spec = specs_.emplace_back();
  spec.set_name(std::move(name));
  spec.set_kind(DENSE);
  spec.set_element_type(FLOAT32);
  spec.mutable_shape()->Add(shape.begin(), shape.end());
  *spec.mutable_initializer() = std::move(initializer);
  *spec.mutable_optimizer() = dense_optimizer_;
  return specs_.size() - 1;
}

size_t TableList::AddSparse(std::string name, uint32_t row_width, Initializer initializer,
                            size_t key_set, const std::optional<Optimizer>& optimizer) {
  key_sets_.push_back(key_set);
  TableSpec& spec = specs_.emplace_back();
  spec.set_name(std::move(name));
  spec.set_kind(SPARSE);
  spec.set_element_type(FLOAT32);
  spec.set_row_width(row_width);
  *spec.mutable_initializer() = std::move(initializer);
  *spec.mutable_optimizer() = optimizer.value_or(sparse_optimizer_);
  return specs_.size() - 1;
}

Initializer ZeroInitializer() {
  Initializer initializer;
  initializer.mutable_constant()->set_value(0);
  return initializer;
}

Initializer NormalInitializer(float stddev) {
  Initializer initializer;
  initializer.mutable_normal()->set_stddev(stddev == 0 ? kDefaultStddev : stddev);
  return initializer;
}

Initializer XavierInitializer() {
  Initializer initializer;
  initializer.mutable_xavier();
  return initializer;
}

}  // namespace pawl
