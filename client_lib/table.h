// A handle to a table of the job.
#ifndef PAWL_CLIENT_LIB_TABLE_H_
#define PAWL_CLIENT_LIB_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "proto/types.pb.h"

namespace pawl {

// A value type: copies are cheap and refer to the same table. Immutable, hence thread-safe.
class Table {
 public:
  // Refers to no table. Calls with such a Table are refused.
  Table() = default;
  // `spec` comes from the scheduler and has an id.
  explicit Table(TableSpec spec) : spec_(std::make_shared<const TableSpec>(std::move(spec))) {
    if (dense()) {
      elements_ = 1;
      for (const uint64_t extent : spec_->shape()) elements_ *= extent;
    }
  }

  explicit operator bool() const { return spec_ != nullptr; }

  // The rest REQUIRES that *this refers to a table.
  const TableSpec& spec() const { return *spec_; }
  uint32_t id() const { return spec_->id(); }
  const std::string& name() const { return spec_->name(); }
  bool dense() const { return spec_->kind() == DENSE; }
  // Sparse: floats per row.
  uint64_t row_width() const { return spec_->row_width(); }
  // Dense: floats in the tensor.
  uint64_t elements() const { return elements_; }

  // The number of slot floats of a row or block of `width` elements, as in PushSegment.slots
  // (proto/parameter.proto): the optimizer's slots and, for Adam and AdamW, the number of updates.
  uint64_t SlotFloats(uint64_t width) const {
    switch (spec_->optimizer().kind_case()) {
      case Optimizer::kMomentum:
      case Optimizer::kAdagrad:
      case Optimizer::kRmsprop:
        return width;
      case Optimizer::kRowwiseAdagrad:
        return 1;
      case Optimizer::kAdam:
      case Optimizer::kAdamw:
        return 2 * width + 1;
      case Optimizer::kFtrl:
        return 2 * width;
      case Optimizer::kSgd:
      case Optimizer::kAssign:
      case Optimizer::KIND_NOT_SET:
        break;
    }
    return 0;
  }

 private:
  std::shared_ptr<const TableSpec> spec_;
  uint64_t elements_ = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_TABLE_H_
