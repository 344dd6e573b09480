// One vector for each categorical field of a sample.
#ifndef PAWL_WORKER_MODEL_NETWORKS_PARTS_EMBEDDING_PART_H_
#define PAWL_WORKER_MODEL_NETWORKS_PARTS_EMBEDDING_PART_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/job/field_layout.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/parts/sparse_columns.h"

namespace pawl {

// The vectors of the field sets that are pooled, in the order of the layout: sums of value * row
// over a field's entries, for the columns `vectors` of rows, or the largest elements of the rows.
// Not thread-safe.
class EmbeddingPart {
 public:
  EmbeddingPart(const FieldLayout& layout, const std::vector<SparseColumns>& vectors);

  // The width of a vector. REQUIRES: CheckOneDim is OK.
  size_t dim() const { return parts_.front().columns.count; }
  // Columns of all vectors of a sample.
  size_t width() const { return width_; }
  // The columns of a field's vector. REQUIRES: its set is pooled.
  Matrix VectorOf(FieldLayout::Place field, Matrix vectors) const;

  // Sets vectors[samples, width()].
  absl::Status Forward(ModelStep& step, Matrix vectors);
  // REQUIRES: the last Forward was of the same step.
  absl::Status Backward(ModelStep& step, ConstMatrix vectors_gradient) const;

 private:
  struct Part {
    SparseColumns columns;
    FieldPooling pooling;
    // Of `vectors`.
    size_t begin;
    size_t count;
    // kMax, from the last Forward: the entries' rows, and by element of `vectors` the entry that
    // has it.
    ConstMatrix rows;
    uint32_t* chosen;
  };
  std::vector<Part> parts_;
  size_t width_ = 0;
};

// The total width of the vectors, for a check before the tables are added.
uint64_t VectorsWidth(const FieldLayout& layout, uint32_t dim);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_PARTS_EMBEDDING_PART_H_
