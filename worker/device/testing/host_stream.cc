#include "worker/device/testing/host_stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr size_t kAlignment = 64;
constexpr char kGuard = 0x5a;

}  // namespace

absl::StatusOr<std::unique_ptr<HostStream>> HostStream::Create(Device& device) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream());
  return absl::WrapUnique(new HostStream(device, std::move(stream)));
}

HostStream::~HostStream() = default;

void HostStream::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

char* HostStream::Place(const void* host, size_t bytes, bool is_output) {
  const char* const data = static_cast<const char*>(host);
  for (Operand& operand : operands_) {
    if (data < operand.host || data + bytes > operand.host + operand.bytes) continue;
    operand.is_output |= is_output;
    return operand.memory + operand.begin + (data - operand.host);
  }
  const size_t begin = kGuardBytes + reinterpret_cast<uintptr_t>(host) % kAlignment;
  std::vector<char> image(begin + bytes + kGuardBytes, kGuard);
  if (bytes > 0) std::memcpy(image.data() + begin, host, bytes);
  const absl::StatusOr<void*> memory = device_.Allocate(image.size());
  if (!memory.ok()) {
    Fail(memory.status());
    return nullptr;
  }
  char* const place = static_cast<char*>(*memory);
  stream_->CopyToDevice(image.data(), image.size(), place);
  operands_.push_back({data, place, begin, bytes, is_output});
  written_.push_back(std::move(image));
  return place + begin;
}

void HostStream::Finish() {
  std::vector<std::vector<char>> read;
  for (size_t i = 0; i < operands_.size(); ++i) {
    read.emplace_back(written_[i].size());
    stream_->CopyToHost(operands_[i].memory, read[i].size(), read[i].data());
  }
  if (const absl::Status done = stream_->Synchronize(); !done.ok()) Fail(done);
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    device_.Free(operand.memory);
    if (!status_.ok()) continue;
    if (operand.is_output) {
      if (operand.bytes > 0)
        std::memcpy(const_cast<char*>(operand.host), read[i].data() + operand.begin, operand.bytes);
      std::fill_n(written_[i].begin() + operand.begin, operand.bytes, kGuard);
      std::fill_n(read[i].begin() + operand.begin, operand.bytes, kGuard);
    }
    if (read[i] != written_[i]) {
      Fail(absl::InternalError(
          absl::StrCat("an operation has changed operand ", i, " of ", operands_.size(),
                       operand.is_output ? " beyond its ends" : ", an input")));
    }
  }
  operands_.clear();
  written_.clear();
}

Entries HostStream::In(const Entries& entries) {
  Entries placed = entries;
  placed.field_begin = In(entries.field_begin, entries.samples * entries.fields + 1);
  placed.entry_key = In(entries.entry_key, entries.entries);
  placed.entry_value = In(entries.entry_value, entries.entries);
  return placed;
}

void HostStream::CopyToDevice(const void* host, size_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, host, bytes);
}

void HostStream::CopyToHost(const void* from, size_t bytes, void* host) {
  if (bytes > 0) std::memcpy(host, from, bytes);
}

void HostStream::Zero(void* data, size_t bytes) {
  stream_->Zero(Out(static_cast<char*>(data), bytes), bytes);
  Finish();
}

void HostStream::Copy(ConstMatrix from, Write write, Matrix to) {
  const ConstMatrix source = In(from);
  stream_->Copy(source, write, Out(to));
  Finish();
}

void HostStream::Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
                      ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  const ConstMatrix left = In(a), right = In(b);
  stream_->Gemm(factors, transpose_a, transpose_b, alpha, left, right, beta, Out(c));
  Finish();
}

void HostStream::Layer(Factors factors, ConstMatrix input, ConstMatrix weight, const float* bias,
                       Activation activation, float beta, Matrix result) {
  const ConstMatrix left = In(input), right = In(weight);
  const float* const values = In(bias, result.columns);
  stream_->Layer(factors, left, right, values, activation, beta, Out(result));
  Finish();
}

void HostStream::AddBias(const float* bias, Matrix x) {
  const float* const values = In(bias, x.columns);
  stream_->AddBias(values, Out(x));
  Finish();
}

void HostStream::SumColumns(ConstMatrix x, float* sums) {
  const ConstMatrix from = In(x);
  stream_->SumColumns(from, Out(sums, x.columns));
  Finish();
}

void HostStream::Axpy(size_t count, float alpha, const float* x, float* y) {
  const float* const from = In(x, count);
  stream_->Axpy(count, alpha, from, Out(y, count));
  Finish();
}

void HostStream::AddConstant(size_t count, float value, float* x) {
  stream_->AddConstant(count, value, Out(x, count));
  Finish();
}

void HostStream::Scale(size_t count, float alpha, float* x) {
  stream_->Scale(count, alpha, Out(x, count));
  Finish();
}

void HostStream::Relu(Matrix x) {
  stream_->Relu(Out(x));
  Finish();
}

void HostStream::ReluBackward(ConstMatrix activation, Matrix gradient) {
  const ConstMatrix active = In(activation);
  stream_->ReluBackward(active, Out(gradient));
  Finish();
}

void HostStream::ReluBackwardAndSum(ConstMatrix activation, Matrix gradient, float* sums) {
  const ConstMatrix active = In(activation);
  const Matrix of = Out(gradient);
  stream_->ReluBackwardAndSum(active, of, Out(sums, gradient.columns));
  Finish();
}

void HostStream::PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) {
  const Entries placed = In(entries);
  const ConstMatrix from = In(rows);
  stream_->PoolRows(placed, over, from, Out(pooled));
  Finish();
}

void HostStream::PoolRowsBackward(const Entries& entries, PoolOver over,
                                  ConstMatrix pooled_gradient, Matrix rows_gradient) {
  const Entries placed = In(entries);
  const ConstMatrix from = In(pooled_gradient);
  stream_->PoolRowsBackward(placed, over, from, Out(rows_gradient));
  Finish();
}

void HostStream::Multiply(ConstMatrix a, ConstMatrix b, Write write, Matrix out) {
  const ConstMatrix left = In(a), right = In(b);
  stream_->Multiply(left, right, write, Out(out));
  Finish();
}

void HostStream::RowDots(ConstMatrix a, ConstMatrix b, Matrix out) {
  const ConstMatrix left = In(a), right = In(b);
  stream_->RowDots(left, right, Out(out));
  Finish();
}

void HostStream::Softmax(ConstMatrix x, Matrix y) {
  const ConstMatrix from = In(x);
  stream_->Softmax(from, Out(y));
  Finish();
}

void HostStream::MaxOfEntries(const Entries& entries, ConstMatrix rows, Matrix largest,
                              uint32_t* chosen) {
  const Entries placed = In(entries);
  const ConstMatrix from = In(rows);
  const Matrix to = Out(largest);
  stream_->MaxOfEntries(placed, from, to, Out(chosen, largest.rows * largest.columns));
  Finish();
}

void HostStream::MaxOfEntriesBackward(const Entries& entries, ConstMatrix largest_gradient,
                                      const uint32_t* chosen, Matrix rows_gradient) {
  const Entries placed = In(entries);
  const ConstMatrix from = In(largest_gradient);
  const uint32_t* const of = In(chosen, largest_gradient.rows * largest_gradient.columns);
  stream_->MaxOfEntriesBackward(placed, from, of, Out(rows_gradient));
  Finish();
}

void HostStream::SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) {
  const ConstMatrix from = In(vectors);
  const Matrix to = Out(sums);
  stream_->SumOfDots(from, dim, to, Out(outputs, vectors.rows));
  Finish();
}

void HostStream::SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                                   const float* output_gradients, Write write,
                                   Matrix vectors_gradient) {
  const ConstMatrix from = In(vectors), of_sums = In(sums);
  const float* const of_outputs = In(output_gradients, vectors.rows);
  stream_->SumOfDotsBackward(from, dim, of_sums, of_outputs, write, Out(vectors_gradient));
  Finish();
}

void HostStream::PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) {
  const ConstMatrix from = In(vectors);
  stream_->PairwiseDots(from, dim, Out(dots));
  Finish();
}

void HostStream::PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients,
                                      Write write, Matrix vectors_gradient) {
  const ConstMatrix from = In(vectors), of_dots = In(dot_gradients);
  stream_->PairwiseDotsBackward(from, dim, of_dots, write, Out(vectors_gradient));
  Finish();
}

void HostStream::LogisticLoss(size_t samples, const float* logits, const float* labels,
                              const float* weights, float gradient_scale, float* gradients,
                              double* loss_sum) {
  const float* const from = In(logits, samples);
  const float* const of = In(labels, samples);
  const float* const by = weights == nullptr ? nullptr : In(weights, samples);
  float* const to = Out(gradients, samples);
  stream_->LogisticLoss(samples, from, of, by, gradient_scale, to, Out(loss_sum, 1));
  Finish();
}

void HostStream::SquaredLoss(size_t samples, const float* predictions, const float* labels,
                             const float* weights, float gradient_scale, float* gradients,
                             double* loss_sum) {
  const float* const from = In(predictions, samples);
  const float* const of = In(labels, samples);
  const float* const by = weights == nullptr ? nullptr : In(weights, samples);
  float* const to = Out(gradients, samples);
  stream_->SquaredLoss(samples, from, of, by, gradient_scale, to, Out(loss_sum, 1));
  Finish();
}

void HostStream::SoftmaxLoss(ConstMatrix logits, const float* labels, const float* weights,
                             float gradient_scale, Matrix gradients, double* loss_sum) {
  const ConstMatrix from = In(logits);
  const float* const of = In(labels, logits.rows);
  const float* const by = weights == nullptr ? nullptr : In(weights, logits.rows);
  const Matrix to = Out(gradients);
  stream_->SoftmaxLoss(from, of, by, gradient_scale, to, Out(loss_sum, 1));
  Finish();
}

void HostStream::FindNotFinite(size_t count, const float* x, float* found) {
  const float* const from = In(x, count);
  stream_->FindNotFinite(count, from, Out(found, 1));
  Finish();
}

void HostStream::Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
                        absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
                        float* slots) {
  size_t elements = 0, slot_elements = 0;
  for (const UpdatedRow& row : rows) {
    elements = std::max(elements, row.begin + row.count);
    slot_elements = std::max(slot_elements, row.slots_begin + rule.SlotCount(row.count));
  }
  const float* const from = In(gradients, elements);
  float* const of_slots = Out(slots, slot_elements);
  stream_->Update(rule, position, scale, rows, from, Out(weights, elements), of_slots);
  Finish();
}

}  // namespace pawl
