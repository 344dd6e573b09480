#include "worker/model/networks/parts/attention_pooling.h"

#include "client_lib/base/status_macros.h"
#include "worker/model/networks/parts/entry_rows.h"

namespace pawl {

AttentionPooling::AttentionPooling(const std::string& name, const SparseColumns& vectors,
                                   const std::vector<uint32_t>& widths, TableList& tables)
    : vectors_(vectors),
      mlp_(name, static_cast<uint32_t>(4 * vectors.count), widths, MlpLayers::LastLayer::kLinear,
           tables) {}

Entries AttentionPooling::Weighted(const ModelStep& step) const {
  Entries entries = vectors_.entries(step);
  entries.keys = entries.entries;
  // 0, 1, 2, ...
  entries.entry_key = step.entry_lists[vectors_.field_set].rows.field_begin;
  entries.entry_value = weights_.data;
  return entries;
}

absl::Status AttentionPooling::Forward(ModelStep& step, ConstMatrix target, Matrix pooled) {
  const Entries& samples = step.entry_lists[vectors_.field_set].samples;
  const size_t entries = samples.entries;
  vectors_.Await(step);
  PAWL_ASSIGN_OR_RETURN(rows_, RowsOfEntries(step, vectors_));
  PAWL_ASSIGN_OR_RETURN(inputs_, step.workspace.AllocateMatrix(entries, 4 * dim()));
  PAWL_ASSIGN_OR_RETURN(const Matrix negative, step.pool.Take(entries, dim()));
  PAWL_ASSIGN_OR_RETURN(weights_, step.workspace.AllocateMatrix(entries, 1));
  const Matrix targets = inputs_.Columns(dim(), dim());
  step.stream.Copy(rows_, Write::kReplace, inputs_.Columns(0, dim()));
  step.stream.PoolRows(samples, PoolOver::kField, target, targets);
  step.stream.Copy(targets, Write::kReplace, negative);
  step.stream.Scale(entries * dim(), -1, negative.data);
  step.stream.Copy(rows_, Write::kReplace, inputs_.Columns(2 * dim(), dim()));
  step.stream.Copy(negative, Write::kAdd, inputs_.Columns(2 * dim(), dim()));
  step.stream.Multiply(rows_, targets, Write::kReplace, inputs_.Columns(3 * dim(), dim()));
  step.pool.GiveBack(negative);
  PAWL_RETURN_IF_ERROR(mlp_.Forward(step, inputs_, Write::kReplace, weights_));
  step.stream.PoolRows(Weighted(step), PoolOver::kField, rows_, pooled);
  return absl::OkStatus();
}

absl::Status AttentionPooling::Backward(ModelStep& step, ConstMatrix pooled_gradient,
                                        Matrix target_gradient) {
  const Entries& samples = step.entry_lists[vectors_.field_set].samples;
  const size_t entries = samples.entries;
  PAWL_ASSIGN_OR_RETURN(const Matrix rows_gradient, step.pool.Take(entries, dim()));
  PAWL_ASSIGN_OR_RETURN(const Matrix scratch, step.pool.Take(entries, dim()));
  PAWL_ASSIGN_OR_RETURN(const Matrix weights_gradient, step.pool.Take(entries, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix gradient, step.pool.Take(entries, 4 * dim()));
  PAWL_ASSIGN_OR_RETURN(const Matrix of_target, step.pool.Take(target_gradient.rows, dim()));
  // The weighted sum.
  step.stream.PoolRowsBackward(Weighted(step), PoolOver::kField, pooled_gradient, rows_gradient);
  step.stream.PoolRows(samples, PoolOver::kField, pooled_gradient, scratch);
  step.stream.RowDots(scratch, rows_, weights_gradient);
  PAWL_RETURN_IF_ERROR(mlp_.Backward(step, weights_gradient, gradient));
  // The MLP's inputs: v, t, v - t and v * t.
  const Matrix of_difference = gradient.Columns(2 * dim(), dim());
  const Matrix of_product = gradient.Columns(3 * dim(), dim());
  step.stream.Copy(gradient.Columns(0, dim()), Write::kAdd, rows_gradient);
  step.stream.Copy(of_difference, Write::kAdd, rows_gradient);
  step.stream.Multiply(of_product, inputs_.Columns(dim(), dim()), Write::kAdd, rows_gradient);
  step.stream.Copy(of_difference, Write::kReplace, scratch);
  step.stream.Scale(entries * dim(), -1, scratch.data);
  step.stream.Copy(gradient.Columns(dim(), dim()), Write::kAdd, scratch);
  step.stream.Multiply(of_product, rows_, Write::kAdd, scratch);
  step.stream.PoolRowsBackward(samples, PoolOver::kField, scratch, of_target);
  step.stream.Copy(of_target, Write::kAdd, target_gradient);
  PAWL_RETURN_IF_ERROR(RowsOfEntriesBackward(step, vectors_, rows_gradient));
  for (const Matrix& taken : {rows_gradient, scratch, weights_gradient, gradient, of_target})
    step.pool.GiveBack(taken);
  return absl::OkStatus();
}

}  // namespace pawl
