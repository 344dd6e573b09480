#include "worker/device/testing/kernel_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/types.pb.h"
#include "server/optimizer/update_rule.h"
#include "worker/device/cpu/device.h"
#include "worker/device/testing/host_stream.h"

namespace pawl {
namespace {

// The operands of one case and their memory.
class Operands {
 public:
  explicit Operands(uint32_t seed) : random_(seed) {}

  float Random() { return std::uniform_real_distribution<float>(-1, 1)(random_); }
  size_t Below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }

  // The address is `shift` floats behind an aligned one.
  float* Floats(size_t count, size_t shift = 0) {
    floats_.push_back(std::make_unique<std::vector<float>>(count + shift + kAlignment));
    float* const memory = floats_.back()->data();
    const size_t past = reinterpret_cast<uintptr_t>(memory) / sizeof(float) % kAlignment;
    float* const floats = memory + (kAlignment - past) % kAlignment + shift;
    for (size_t i = 0; i < count; ++i) floats[i] = Random();
    return floats;
  }

  Matrix MatrixOf(size_t rows, size_t columns, size_t padding = 0, size_t shift = 0) {
    return {Floats(rows * (columns + padding), shift), rows, columns, columns + padding};
  }

  // A few keys have most of the entries. most_in_field 1: exactly one entry per field.
  Entries EntriesOf(size_t samples, size_t fields, size_t keys, size_t most_in_field) {
    begins_.push_back(std::make_unique<std::vector<uint32_t>>(1, 0));
    keys_.push_back(std::make_unique<std::vector<uint32_t>>());
    for (size_t f = 0; f < samples * fields; ++f) {
      for (size_t count = most_in_field <= 1 ? 1 : Below(most_in_field + 1); count > 0; --count) {
        keys_.back()->push_back(
            static_cast<uint32_t>(Below(Below(2) == 0 ? std::max<size_t>(keys / 8, 1) : keys)));
      }
      begins_.back()->push_back(static_cast<uint32_t>(keys_.back()->size()));
    }
    const size_t entries = keys_.back()->size();
    return {samples,        fields, entries, keys, begins_.back()->data(), keys_.back()->data(),
            Floats(entries)};
  }

  const std::mt19937& random() const { return random_; }

 private:
  static constexpr size_t kAlignment = 16;

  std::mt19937 random_;
  std::vector<std::unique_ptr<std::vector<float>>> floats_;
  std::vector<std::unique_ptr<std::vector<uint32_t>>> begins_;
  std::vector<std::unique_ptr<std::vector<uint32_t>>> keys_;
};

// An operation's results, and their tolerance relative to the CPU's.
struct Outcome {
  std::vector<double> values;
  double tolerance = 0;

  void Add(const float* data, size_t count) { values.insert(values.end(), data, data + count); }
  // Adds the bits; all NaNs are equal.
  void AddBits(const float* data, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      uint32_t bits = 0x7fc00000;
      if (!std::isnan(data[i])) std::memcpy(&bits, data + i, sizeof bits);
      values.push_back(bits);
    }
  }
  // Includes the padding, which must not change.
  void Add(Matrix x) { Add(x.data, x.rows * x.stride); }
};

// Creates the same operands on each call, executes the operation on them and returns its results.
using Case = std::function<Outcome(Stream& stream, Operands& operands)>;

class Checker {
 public:
  Checker(Device& device, uint32_t seed) : device_(device), seed_(seed) {}

  void Add(const std::string& operation, const Case& run) {
    auto check = std::find_if(checks_.begin(), checks_.end(),
                              [&](auto& c) { return c.operation == operation; });
    if (check == checks_.end()) {
      checks_.push_back({operation, 0, 0, absl::OkStatus()});
      check = checks_.end() - 1;
    }
    ++check->cases;
    ++seed_;
    absl::StatusOr<std::unique_ptr<HostStream>> expecting = HostStream::Create(cpu_),
                                                stream = HostStream::Create(device_);
    if (!stream.ok()) return Fail(*check, stream.status());
    Operands of_cpu(seed_), of_device(seed_);
    const Outcome expected = run(**expecting, of_cpu), outcome = run(**stream, of_device);
    for (const HostStream* each : {expecting->get(), stream->get()}) {
      if (!each->status().ok()) return Fail(*check, each->status());
    }
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const double difference = std::abs(outcome.values[i] - expected.values[i]);
      if (difference == 0) continue;
      // Also true if it is NaN.
      const double share = difference / expected.tolerance;
      if (!(share <= 1)) {
        Fail(*check, absl::InternalError(absl::StrCat("case ", check->cases, " of ", operation,
                                                      ": element ", i, " is ", outcome.values[i],
                                                      ", should be ", expected.values[i])));
      }
      check->worst = std::isnan(share) ? share : std::max(check->worst, share);
    }
  }

  std::vector<KernelCheck> TakeChecks() { return std::move(checks_); }

 private:
  static void Fail(KernelCheck& check, absl::Status status) {
    if (check.status.ok()) check.status = std::move(status);
  }

  Device& device_;
  uint32_t seed_;
  CpuDevice cpu_;
  std::vector<KernelCheck> checks_;
};

// The tolerance of a sum of this many products of numbers between -1 and 1, in any order.
double SumTolerance(size_t terms) {
  return 4e-7 * std::sqrt(static_cast<double>(terms) + 1) + 1e-7 * terms;
}

void CheckEmbedding(Checker& checker, size_t largest) {
  struct Shape {
    size_t samples;
    size_t fields;
    size_t keys;
    // Maximum number of entries in a field.
    size_t most;
  };
  const Shape shapes[] = {{0, 2, 3, 1},
                          {largest, 1, 1, 1},
                          {largest / 3, 3, 5, 2},
                          {largest / 8, 8, largest / 2 + 1, 1},
                          {largest / 26 + 1, 26, 40, 1},
                          {7, 3, 11, 4}};
  for (const Shape& shape : shapes) {
    for (const size_t width : {1, 7, 16, 64, 128}) {
      for (const PoolOver over : {PoolOver::kField, PoolOver::kSample}) {
        for (const size_t shift : {0, 1}) {
          const auto with = [=](auto run) {
            return [=](Stream& stream, Operands& operands) {
              const Entries entries =
                  operands.EntriesOf(shape.samples, shape.fields, shape.keys, shape.most);
              const size_t columns = (over == PoolOver::kField ? shape.fields : 1) * width;
              const Matrix pooled = operands.MatrixOf(shape.samples, columns, shift * 3, shift);
              // With a stride, as part of wider rows.
              const Matrix rows = operands.MatrixOf(shape.keys, width, shift * 3, shift);
              return run(stream, entries, pooled, rows);
            };
          };
          checker.Add("PoolRows",
                      with([=](Stream& stream, const Entries& entries, Matrix pooled, Matrix rows) {
                        stream.PoolRows(entries, over, rows, pooled);
                        Outcome outcome;
                        outcome.tolerance = SumTolerance(shape.most * entries.fields);
                        outcome.Add(pooled);
                        return outcome;
                      }));
          checker.Add("PoolRowsBackward",
                      with([=](Stream& stream, const Entries& entries, Matrix pooled, Matrix rows) {
                        stream.PoolRowsBackward(entries, over, pooled, rows);
                        Outcome outcome;
                        outcome.tolerance = SumTolerance(entries.entries);
                        outcome.Add(rows);
                        return outcome;
                      }));
        }
      }
    }
  }
}

void CheckMatrices(Checker& checker, size_t largest) {
  // {rows, columns, padding, shift}
  const size_t shapes[][4] = {{0, 5, 0, 0},
                              {1, largest, 0, 0},
                              {largest, 1, 0, 0},
                              {largest / 7, 7, 2, 1},
                              {largest / 16, 16, 4, 0},
                              {largest / 64 + 1, 64, 0, 4},
                              {largest / 130 + 1, 130, 2, 3},
                              {3, 0, 1, 0}};
  for (const auto& [r, c, p, s] : shapes) {
    const size_t rows = r, columns = c, padding = p, shift = s;
    const auto of = [=](Outcome (*run)(Stream&, Operands&, Matrix, Matrix)) {
      return [=](Stream& stream, Operands& operands) {
        const Matrix x = operands.MatrixOf(rows, columns, padding, shift);
        return run(stream, operands, x, operands.MatrixOf(rows, columns, padding * 2, shift * 4));
      };
    };
    checker.Add("Copy", of([](Stream& stream, Operands&, Matrix x, Matrix y) {
                  stream.Copy(x, Write::kAdd, y);
                  Outcome outcome;
                  outcome.Add(y);
                  stream.Copy(x, Write::kReplace, y);
                  outcome.Add(y);
                  return outcome;
                }));
    checker.Add("AddBias", of([](Stream& stream, Operands& operands, Matrix x, Matrix) {
                  stream.AddBias(operands.Floats(x.columns), x);
                  Outcome outcome;
                  outcome.Add(x);
                  return outcome;
                }));
    checker.Add("SumColumns", of([](Stream& stream, Operands& operands, Matrix x, Matrix) {
                  float* const sums = operands.Floats(x.columns);
                  stream.SumColumns(x, sums);
                  Outcome outcome;
                  outcome.tolerance = SumTolerance(x.rows);
                  outcome.Add(sums, x.columns);
                  return outcome;
                }));
    checker.Add("Relu", of([](Stream& stream, Operands&, Matrix x, Matrix) {
                  stream.Relu(x);
                  Outcome outcome;
                  outcome.Add(x);
                  return outcome;
                }));
    checker.Add("ReluBackward", of([](Stream& stream, Operands&, Matrix x, Matrix y) {
                  stream.ReluBackward(x, y);
                  Outcome outcome;
                  outcome.Add(y);
                  return outcome;
                }));
  }
}

void CheckVectors(Checker& checker, size_t largest) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{6}, largest, largest + 3}) {
    for (const size_t shift : {0, 1}) {
      const auto of = [=](double tolerance, void (*run)(Stream&, size_t, float*, float*)) {
        return [=](Stream& stream, Operands& operands) {
          float* const x = operands.Floats(size, shift);
          float* const y = operands.Floats(size, shift * 2);
          run(stream, size, x, y);
          Outcome outcome;
          outcome.tolerance = tolerance;
          outcome.Add(y, size);
          return outcome;
        };
      };
      checker.Add("Axpy", of(0, [](Stream& stream, size_t n, float* x, float* y) {
                    stream.Axpy(n, 0.3f, x, y);
                  }));
      checker.Add("AddConstant", of(0, [](Stream& stream, size_t n, float*, float* y) {
                    stream.AddConstant(n, 3, y);
                  }));
      checker.Add("Scale", of(0, [](Stream& stream, size_t n, float*, float* y) {
                    stream.Scale(n, -0.7f, y);
                  }));
      checker.Add("Zero", of(0, [](Stream& stream, size_t n, float*, float* y) {
                    stream.Zero(y, n * sizeof(float));
                  }));
    }
  }
}

void CheckGemm(Checker& checker, const std::string& name, Factors factors, size_t largest) {
  const size_t sizes[][3] = {{1, 1, 1},
                             {17, 1, 33},
                             {64, 64, 64},
                             {65, 130, 129},
                             {largest / 64 + 1, 64, 128},
                             {128, 64, largest / 64 + 1},
                             {largest / 8, 1, 13},
                             {5, 4, 0}};
  for (const auto& [m, n, k] : sizes) {
    for (const bool a_is_transposed : {false, true}) {
      for (const bool b_is_transposed : {false, true}) {
        for (const size_t padding : {0, 3}) {
          checker.Add(name, [=, rows = m, columns = n, inner = k](Stream& stream,
                                                                  Operands& operands) {
            const Matrix a = a_is_transposed ? operands.MatrixOf(inner, rows, padding)
                                             : operands.MatrixOf(rows, inner, padding);
            const Matrix b = b_is_transposed ? operands.MatrixOf(columns, inner, padding)
                                             : operands.MatrixOf(inner, columns, padding);
            const Matrix c = operands.MatrixOf(rows, columns, padding * 2);
            Outcome outcome;
            outcome.tolerance = 2 * SumTolerance(inner);
            for (const float beta : {0.5f, 0.0f}) {
              stream.Gemm(factors, a_is_transposed ? Transpose::kYes : Transpose::kNo,
                          b_is_transposed ? Transpose::kYes : Transpose::kNo, 0.7f, a, b, beta, c);
              outcome.Add(c);
            }
            return outcome;
          });
        }
      }
    }
  }
}

void CheckInteraction(Checker& checker, size_t largest) {
  // {vectors, dim, padding, shift}
  const size_t shapes[][4] = {{1, 1, 0, 0},    {2, 7, 1, 0},   {27, 16, 0, 0}, {27, 16, 4, 1},
                              {9, 64, 4, 4},   {5, 128, 0, 0}, {33, 20, 2, 0}, {60, 8, 0, 0},
                              {100, 40, 0, 0}, {380, 3, 1, 1}};
  for (const auto& shape : shapes) {
    const size_t count = shape[0], dim = shape[1], padding = shape[2], shift = shape[3];
    for (const size_t rows :
         {size_t{0}, size_t{1}, std::min<size_t>(largest / (count * dim) + 1, 500)}) {
      const auto of = [=](double tolerance, auto run) {
        return [=](Stream& stream, Operands& operands) {
          const Matrix vectors = operands.MatrixOf(rows, count * dim, padding, shift);
          const Matrix gradient = operands.MatrixOf(rows, count * dim, padding * 2, shift);
          Outcome outcome;
          outcome.tolerance = tolerance;
          run(stream, operands, vectors, gradient, outcome);
          return outcome;
        };
      };
      const double of_squares = SumTolerance(count * dim) + 1e-7 * count * count * dim;
      checker.Add("SumOfDots", of(of_squares, [=](Stream& stream, Operands& operands,
                                                  Matrix vectors, Matrix, Outcome& outcome) {
                    const Matrix sums = operands.MatrixOf(rows, dim, padding);
                    float* const outputs = operands.Floats(rows);
                    stream.SumOfDots(vectors, dim, sums, outputs);
                    outcome.Add(sums);
                    outcome.Add(outputs, rows);
                  }));
      for (const Write write : {Write::kAdd, Write::kReplace}) {
        checker.Add(
            "SumOfDotsBackward", of(0, [=](Stream& stream, Operands& operands, Matrix vectors,
                                           Matrix gradient, Outcome& outcome) {
              const Matrix sums = operands.MatrixOf(rows, dim, padding);
              stream.SumOfDotsBackward(vectors, dim, sums, operands.Floats(rows), write, gradient);
              outcome.Add(gradient);
            }));
        checker.Add(
            "PairwiseDotsBackward",
            of(2 * SumTolerance(count), [=](Stream& stream, Operands& operands, Matrix vectors,
                                            Matrix gradient, Outcome& outcome) {
              const Matrix dots = operands.MatrixOf(rows, count * (count - 1) / 2, padding);
              stream.PairwiseDotsBackward(vectors, dim, dots, write, gradient);
              outcome.Add(gradient);
            }));
      }
      checker.Add("PairwiseDots",
                  of(2 * SumTolerance(dim), [=](Stream& stream, Operands& operands, Matrix vectors,
                                                Matrix, Outcome& outcome) {
                    const Matrix dots = operands.MatrixOf(rows, count * (count - 1) / 2, padding);
                    stream.PairwiseDots(vectors, dim, dots);
                    outcome.Add(dots);
                  }));
    }
  }
}

void CheckElementwise(Checker& checker, size_t largest) {
  for (const size_t columns : {1, 3, 16, 130}) {
    for (const size_t rows : {size_t{0}, size_t{1}, largest / columns + 1}) {
      for (const size_t factors : {columns, size_t{1}}) {
        for (const Write write : {Write::kReplace, Write::kAdd}) {
          checker.Add("Multiply", [=](Stream& stream, Operands& operands) {
            const Matrix a = operands.MatrixOf(rows, columns, 1);
            const Matrix b = operands.MatrixOf(rows, factors, 2);
            const Matrix out = operands.MatrixOf(rows, columns, 3);
            stream.Multiply(a, b, write, out);
            Outcome outcome;
            outcome.tolerance = 1e-6;
            outcome.Add(out);
            return outcome;
          });
        }
      }
      checker.Add("RowDots", [=](Stream& stream, Operands& operands) {
        const Matrix a = operands.MatrixOf(rows, columns, 1);
        const Matrix b = operands.MatrixOf(rows, columns, 2);
        const Matrix out = operands.MatrixOf(rows, 1, 3);
        stream.RowDots(a, b, out);
        Outcome outcome;
        outcome.tolerance = 2 * SumTolerance(columns);
        outcome.Add(out);
        return outcome;
      });
      checker.Add("Softmax", [=](Stream& stream, Operands& operands) {
        const Matrix x = operands.MatrixOf(rows, columns, 1);
        const Matrix y = operands.MatrixOf(rows, columns, 2);
        stream.Softmax(x, y);
        Outcome outcome;
        outcome.tolerance = 1e-6;
        outcome.Add(y);
        return outcome;
      });
    }
  }
}

void CheckLosses(Checker& checker, size_t largest) {
  for (const size_t samples : {size_t{0}, size_t{1}, size_t{255}, largest}) {
    const auto add = [&](const std::string& name, auto member, bool is_weighted) {
      checker.Add(name, [=](Stream& stream, Operands& operands) {
        float* const outputs = operands.Floats(samples);
        for (size_t s = 0; s < samples; ++s) outputs[s] *= 10;
        float* const labels = operands.Floats(samples);
        const float* const weights = is_weighted ? operands.Floats(samples) : nullptr;
        float* const gradients = operands.Floats(samples);
        double loss = 0;
        (stream.*member)(samples, outputs, labels, weights, 0.25f, gradients, &loss);
        Outcome outcome;
        // Tolerance of the gradients; the sums are in double.
        outcome.tolerance = 1e-6;
        outcome.Add(gradients, samples);
        outcome.values.push_back(loss / (samples + 1));
        return outcome;
      });
    };
    for (const bool is_weighted : {false, true}) {
      add("LogisticLoss", &Stream::LogisticLoss, is_weighted);
      add("SquaredLoss", &Stream::SquaredLoss, is_weighted);
    }
    for (const size_t classes : {1, 2, 10, 33, 200}) {
      checker.Add("SoftmaxLoss", [=](Stream& stream, Operands& operands) {
        const size_t rows = samples / classes + (samples > 0 ? 1 : 0);
        const Matrix logits = operands.MatrixOf(rows, classes, 1);
        stream.Scale(rows * (classes + 1), 20, logits.data);
        float* const labels = operands.Floats(rows);
        for (size_t s = 0; s < rows; ++s) labels[s] = static_cast<float>(operands.Below(classes));
        const Matrix gradients = operands.MatrixOf(rows, classes, 3);
        double loss = 0;
        stream.SoftmaxLoss(logits, labels, operands.Floats(rows), 0.25f, gradients, &loss);
        Outcome outcome;
        outcome.tolerance = 1e-6;
        outcome.Add(gradients);
        outcome.values.push_back(loss / (rows + 1));
        return outcome;
      });
    }
  }
}

// Every optimizer with every treatment of gradients, and with extreme hyper-parameters.
std::vector<Optimizer> Optimizers() {
  std::vector<Optimizer> kinds(10);
  kinds[0].mutable_sgd()->set_learning_rate(0.1f);
  kinds[1].mutable_momentum()->set_learning_rate(0.1f);
  kinds[2].mutable_momentum()->set_learning_rate(0.1f);
  kinds[2].mutable_momentum()->set_nesterov(true);
  kinds[3].mutable_adagrad()->set_learning_rate(0.1f);
  kinds[4].mutable_rowwise_adagrad()->set_learning_rate(0.1f);
  kinds[5].mutable_rmsprop()->set_learning_rate(0.1f);
  kinds[6].mutable_adam()->set_learning_rate(0.1f);
  kinds[7].mutable_adamw()->set_learning_rate(0.1f);
  kinds[8].mutable_ftrl()->set_learning_rate(0.1f);
  kinds[8].mutable_ftrl()->set_l1(0.01f);
  kinds[8].mutable_ftrl()->set_l2(0.01f);
  kinds[9].mutable_assign();
  std::vector<Optimizer> all = kinds;
  for (Optimizer kind : kinds) {
    if (kind.has_assign()) continue;
    kind.set_clip_norm(0.5f);
    all.push_back(kind);
    kind.set_clip_value(0.25f);
    if (!kind.has_ftrl()) {
      kind.set_l1(1e-3f);
      kind.set_l2(1e-2f);
      if (!kind.has_adamw()) kind.set_weight_decay(0.125f);
    }
    all.push_back(kind);
    kind.clear_clip_norm();
    kind.mutable_schedule()->set_warmup_steps(1000);
    all.push_back(kind);
  }
  Optimizer extreme;
  extreme.mutable_sgd()->set_learning_rate(1e38f);
  all.push_back(extreme);
  extreme.mutable_adagrad()->set_learning_rate(1e-38f);
  extreme.mutable_adagrad()->set_initial_accumulator(0);
  extreme.mutable_adagrad()->set_epsilon(1e-38f);
  all.push_back(extreme);
  extreme.mutable_adam()->set_learning_rate(1e30f);
  extreme.mutable_adam()->set_beta1(0);
  extreme.mutable_adam()->set_beta2(0.99999994f);
  extreme.mutable_adam()->set_epsilon(1e-38f);
  all.push_back(extreme);
  extreme.mutable_ftrl()->set_learning_rate(1e-30f);
  extreme.mutable_ftrl()->set_initial_accumulator(0);
  all.push_back(extreme);
  return all;
}

// Compares bits: the smallest difference is an error.
void CheckUpdates(Checker& checker, size_t largest) {
  // Gradients and weights besides small ones.
  constexpr float kSpecial[] = {
      0.0f,  -0.0f, std::numeric_limits<float>::infinity(), -1e30f, 1e-42f,
      1e38f, 1.0f,  std::numeric_limits<float>::quiet_NaN()};
  const std::vector<Optimizer> optimizers = Optimizers();
  for (size_t o = 0; o < optimizers.size(); ++o) {
    const Optimizer& spec = optimizers[o];
    for (const bool special : {false, true}) {
      // The rows of one call, including none.
      std::vector<std::vector<size_t>> sizes = {{}, {0, 1, 15, 17}, {largest, 3, 256}};
      // More rows than fit into one launch. The emulator takes long for that, so only for some.
      if (o % 8 == 4 && !special) sizes.emplace_back(130, 33);
      for (const std::vector<size_t>& counts : sizes) {
        checker.Add("Update", [=](Stream& stream, Operands& operands) {
          const auto rule = UpdateRule::Create(spec).value();
          std::vector<UpdatedRow> rows;
          // Gaps between the rows.
          size_t elements = 1, slot_count = 2;
          for (const size_t count : counts) {
            rows.push_back({.begin = elements, .count = count, .slots_begin = slot_count});
            elements += count + 1;
            slot_count += rule->SlotCount(count) + 3;
          }
          float* const weights = operands.Floats(elements);
          float* const slots = operands.Floats(slot_count);
          for (const UpdatedRow& row : rows)
            rule->InitializeSlots(row.count, slots + row.slots_begin);
          Outcome outcome;
          for (const uint64_t step : {0, 7000}) {
            float* const gradients = operands.Floats(elements);
            for (size_t i = 0; special && i < elements; ++i) {
              if (operands.Below(4) == 0)
                gradients[i] = kSpecial[operands.Below(std::size(kSpecial))];
              if (operands.Below(16) == 0)
                weights[i] = kSpecial[operands.Below(std::size(kSpecial))];
            }
            stream.Update(*rule, {.step = step, .prior_updates = step / 2}, 0.3f, rows, gradients,
                          weights, slots);
            outcome.AddBits(weights, elements);
            outcome.AddBits(slots, slot_count);
          }
          return outcome;
        });
      }
    }
  }
}

void CheckFindNotFinite(Checker& checker, size_t largest) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{257}, largest}) {
    for (const float bad :
         {1e38f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      checker.Add("FindNotFinite", [=](Stream& stream, Operands& operands) {
        float* const x = operands.Floats(count, 1);
        if (count > 0) x[operands.Below(count)] = -bad;
        float* const found = operands.Floats(1);
        stream.FindNotFinite(count, x, found);
        Outcome outcome;
        outcome.Add(found, 1);
        return outcome;
      });
    }
  }
}

}  // namespace

std::vector<KernelCheck> CheckKernels(Device& device, size_t largest, uint32_t seed) {
  Checker checker(device, seed);
  CheckVectors(checker, largest);
  CheckMatrices(checker, largest);
  CheckGemm(checker, "Gemm", Factors::kFloat32, largest);
  CheckGemm(checker, "Gemm of BFLOAT16", Factors::kBfloat16, largest);
  CheckGemm(checker, "Gemm of FLOAT16", Factors::kFloat16, largest);
  CheckEmbedding(checker, largest);
  CheckInteraction(checker, largest);
  CheckElementwise(checker, largest);
  CheckLosses(checker, largest);
  CheckUpdates(checker, largest);
  CheckFindNotFinite(checker, largest);
  return checker.TakeChecks();
}

}  // namespace pawl
