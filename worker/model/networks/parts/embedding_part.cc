#include "worker/model/networks/parts/embedding_part.h"

#include "client_lib/base/status_macros.h"
#include "worker/model/networks/parts/entry_rows.h"

namespace pawl {

EmbeddingPart::EmbeddingPart(const FieldLayout& layout, const std::vector<SparseColumns>& vectors) {
  for (const SparseColumns& columns : vectors) {
    const FieldLayout::FieldSet& set = layout.field_sets[columns.field_set];
    if (set.pooling == FieldPooling::kNone) continue;
    const size_t count = set.fields.size() * columns.count;
    parts_.push_back({columns, set.pooling, width_, count, {}, nullptr});
    width_ += count;
  }
}

Matrix EmbeddingPart::VectorOf(FieldLayout::Place field, Matrix vectors) const {
  for (const Part& part : parts_) {
    if (part.columns.field_set != field.field_set) continue;
    return vectors.Columns(part.begin + field.index * part.columns.count, part.columns.count);
  }
  return vectors.Columns(0, 0);
}

absl::Status EmbeddingPart::Forward(ModelStep& step, Matrix vectors) {
  for (Part& part : parts_) {
    const Matrix pooled = vectors.Columns(part.begin, part.count);
    if (part.pooling != FieldPooling::kMax) {
      part.columns.Pool(step, PoolOver::kField, pooled);
      continue;
    }
    part.columns.Await(step);
    PAWL_ASSIGN_OR_RETURN(part.rows, RowsOfEntries(step, part.columns));
    PAWL_ASSIGN_OR_RETURN(part.chosen,
                          step.workspace.Allocate<uint32_t>(step.samples * part.count));
    step.stream.MaxOfEntries(part.columns.entries(step), part.rows, pooled, part.chosen);
  }
  return absl::OkStatus();
}

absl::Status EmbeddingPart::Backward(ModelStep& step, ConstMatrix vectors_gradient) const {
  for (const Part& part : parts_) {
    const ConstMatrix gradient = vectors_gradient.Columns(part.begin, part.count);
    if (part.pooling != FieldPooling::kMax) {
      PAWL_RETURN_IF_ERROR(part.columns.PoolBackward(step, PoolOver::kField, gradient));
      continue;
    }
    PAWL_ASSIGN_OR_RETURN(const Matrix rows_gradient,
                          step.pool.Take(part.rows.rows, part.rows.columns));
    step.stream.MaxOfEntriesBackward(part.columns.entries(step), gradient, part.chosen,
                                     rows_gradient);
    PAWL_RETURN_IF_ERROR(RowsOfEntriesBackward(step, part.columns, rows_gradient));
    step.pool.GiveBack(rows_gradient);
  }
  return absl::OkStatus();
}

uint64_t VectorsWidth(const FieldLayout& layout, uint32_t dim) {
  uint64_t width = 0;
  for (const FieldLayout::FieldSet& set : layout.field_sets)
    width += set.fields.size() * uint64_t{DimOf(layout.key_sets[set.key_set], dim)};
  return width;
}

}  // namespace pawl
