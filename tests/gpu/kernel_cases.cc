#include "tests/gpu/kernel_cases.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "proto/types.pb.h"
#include "server/optimizer/update_rule.h"

namespace pawl {
namespace {

constexpr double kFloat = sizeof(float);

class Maker {
 public:
  Maker(Stream& stream, Workspace& workspace) : stream_(stream), workspace_(workspace) {}

  // Filled with numbers between -1 and 1.
  absl::StatusOr<Matrix> Random(size_t rows, size_t columns) {
    PAWL_ASSIGN_OR_RETURN(const Matrix x, workspace_.AllocateMatrix(rows, columns));
    std::vector<float> values(rows * columns);
    // A cheap generator, because cases may need gigabytes.
    for (float& value : values)
      value = static_cast<float>(static_cast<int32_t>(random_())) * 4.6566129e-10f;
    stream_.CopyToDevice(values.data(), values.size() * sizeof(float), x.data);
    PAWL_RETURN_IF_ERROR(stream_.Synchronize());
    return x;
  }

  absl::StatusOr<Matrix> Zeros(size_t rows, size_t columns) {
    PAWL_ASSIGN_OR_RETURN(const Matrix x, workspace_.AllocateMatrix(rows, columns));
    stream_.Zero(x.data, rows * columns * sizeof(float));
    return x;
  }

  // One entry per field. Half of a field's entries have one of its first ten keys: a skewed
  // distribution, as in real data.
  absl::StatusOr<Entries> RandomEntries(size_t samples, size_t fields, size_t keys_in_field) {
    std::vector<uint32_t> begin, key;
    for (size_t s = 0; s < samples; ++s) {
      for (size_t f = 0; f < fields; ++f) {
        begin.push_back(static_cast<uint32_t>(key.size()));
        const size_t limit =
            random_() % 2 == 0 ? std::min<size_t>(keys_in_field, 10) : keys_in_field;
        key.push_back(static_cast<uint32_t>(f * keys_in_field + random_() % limit));
      }
    }
    begin.push_back(static_cast<uint32_t>(key.size()));
    PAWL_ASSIGN_OR_RETURN(uint32_t* const d_begin, workspace_.Allocate<uint32_t>(begin.size()));
    PAWL_ASSIGN_OR_RETURN(uint32_t* const d_key, workspace_.Allocate<uint32_t>(key.size()));
    PAWL_ASSIGN_OR_RETURN(const Matrix value, Random(key.size(), 1));
    stream_.CopyToDevice(begin.data(), begin.size() * sizeof(uint32_t), d_begin);
    stream_.CopyToDevice(key.data(), key.size() * sizeof(uint32_t), d_key);
    PAWL_RETURN_IF_ERROR(stream_.Synchronize());
    return Entries{samples, fields, key.size(), fields * keys_in_field, d_begin, d_key, value.data};
  }

 private:
  Stream& stream_;
  Workspace& workspace_;
  std::minstd_rand random_{1};
};

absl::Status AddVectorCases(size_t count, Maker& maker, std::vector<KernelCase>& cases) {
  PAWL_ASSIGN_OR_RETURN(const Matrix x, maker.Random(count, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix y, maker.Random(count, 1));
  const std::string shape = absl::StrCat(count, " elements");
  cases.push_back({"Axpy", shape, 3 * kFloat * count, 0,
                   [=](Stream& s) { s.Axpy(count, 1e-6f, x.data, y.data); }});
  cases.push_back({"AddConstant", shape, 2 * kFloat * count, 0,
                   [=](Stream& s) { s.AddConstant(count, 0, y.data); }});
  cases.push_back(
      {"Scale", shape, 2 * kFloat * count, 0, [=](Stream& s) { s.Scale(count, 1, y.data); }});
  cases.push_back({"Zero", shape, kFloat * count, 0,
                   [=](Stream& s) { s.Zero(y.data, count * sizeof(float)); }});
  return absl::OkStatus();
}

absl::Status AddLayerCases(size_t samples, size_t inputs, size_t outputs, Maker& maker,
                           std::vector<KernelCase>& cases) {
  PAWL_ASSIGN_OR_RETURN(const Matrix x, maker.Random(samples, inputs));
  PAWL_ASSIGN_OR_RETURN(const Matrix weight, maker.Random(inputs, outputs));
  PAWL_ASSIGN_OR_RETURN(const Matrix y, maker.Random(samples, outputs));
  PAWL_ASSIGN_OR_RETURN(const Matrix gradient, maker.Random(samples, outputs));
  PAWL_ASSIGN_OR_RETURN(const Matrix bias, maker.Random(1, outputs));
  const double products = 2.0 * samples * inputs * outputs;
  const double bytes = kFloat * (samples * inputs + inputs * outputs + samples * outputs);
  const double of_y = kFloat * samples * outputs;
  const std::string shape = absl::StrCat(samples, " x ", inputs, " x ", outputs);
  const std::string of_outputs = absl::StrCat(samples, " x ", outputs);
  using enum Transpose;
  cases.push_back({"Gemm (forward)", shape, bytes, products,
                   [=](Stream& s) { s.Gemm(Factors::kFloat32, kNo, kNo, 1, x, weight, 0, y); }});
  cases.push_back({"Gemm (weight gradient)", shape, bytes, products, [=](Stream& s) {
                     s.Gemm(Factors::kFloat32, kYes, kNo, 1, x, gradient, 0, weight);
                   }});
  cases.push_back({"Gemm (input gradient)", shape, bytes, products, [=](Stream& s) {
                     s.Gemm(Factors::kFloat32, kNo, kYes, 1, gradient, weight, 0, x);
                   }});
  for (const auto& [name, factors] : {std::pair("Gemm (forward, BFLOAT16)", Factors::kBfloat16),
                                      std::pair("Gemm (forward, FLOAT16)", Factors::kFloat16)}) {
    cases.push_back({name, shape, bytes, products, [=, factors = factors](Stream& s) {
                       s.Gemm(factors, kNo, kNo, 1, x, weight, 0, y);
                     }});
  }
  cases.push_back(
      {"AddBias", of_outputs, 2 * of_y, 0, [=](Stream& s) { s.AddBias(bias.data, y); }});
  cases.push_back({"Relu", of_outputs, 2 * of_y, 0, [=](Stream& s) { s.Relu(y); }});
  cases.push_back(
      {"ReluBackward", of_outputs, 3 * of_y, 0, [=](Stream& s) { s.ReluBackward(y, gradient); }});
  cases.push_back(
      {"SumColumns", of_outputs, of_y, 0, [=](Stream& s) { s.SumColumns(gradient, bias.data); }});
  cases.push_back(
      {"Copy", of_outputs, 2 * of_y, 0, [=](Stream& s) { s.Copy(gradient, Write::kReplace, y); }});
  return absl::OkStatus();
}

absl::Status AddEmbeddingCases(size_t samples, size_t fields, size_t width, Maker& maker,
                               std::vector<KernelCase>& cases) {
  // Gives a batch some entries for each key and many for some keys.
  const size_t keys_in_field = std::max<size_t>(samples / 8, 1);
  PAWL_ASSIGN_OR_RETURN(const Entries entries, maker.RandomEntries(samples, fields, keys_in_field));
  PAWL_ASSIGN_OR_RETURN(const Matrix rows, maker.Random(entries.keys, width));
  PAWL_ASSIGN_OR_RETURN(const Matrix pooled, maker.Random(samples, fields * width));
  PAWL_ASSIGN_OR_RETURN(const Matrix sums, maker.Random(samples, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix linear, maker.Random(entries.keys, 1));
  const std::string shape = absl::StrCat(samples, " samples, ", fields, " fields, width ", width);
  const std::string of_one = absl::StrCat(samples, " samples, ", fields, " fields, width 1");
  const double lists = kFloat * 3 * entries.entries;
  const double of_rows = kFloat * entries.keys * width,
               of_pooled = kFloat * samples * fields * width;
  // Counts each row once, because later reads of the same row hit a cache at best.
  cases.push_back({"PoolRows", shape, lists + of_rows + of_pooled, 0,
                   [=](Stream& s) { s.PoolRows(entries, PoolOver::kField, rows, pooled); }});
  cases.push_back({"PoolRows", of_one, lists + kFloat * (entries.keys + samples), 0,
                   [=](Stream& s) { s.PoolRows(entries, PoolOver::kSample, linear, sums); }});
  // Zeroing a small operand makes PoolRowsBackward order the entries again.
  cases.push_back({"PoolRowsBackward, entries ordered", shape, 2 * lists + of_rows + of_pooled, 0,
                   [=](Stream& s) {
                     s.Zero(sums.data, sizeof(float));
                     s.PoolRowsBackward(entries, PoolOver::kField, pooled, rows);
                   }});
  cases.push_back({"PoolRowsBackward", shape, lists + of_rows + of_pooled, 0, [=](Stream& s) {
                     s.PoolRowsBackward(entries, PoolOver::kField, pooled, rows);
                   }});
  cases.push_back(
      {"PoolRowsBackward", of_one, lists + kFloat * (entries.keys + samples), 0,
       [=](Stream& s) { s.PoolRowsBackward(entries, PoolOver::kSample, sums, linear); }});
  return absl::OkStatus();
}

absl::Status AddInteractionCases(size_t samples, size_t count, size_t dim, Maker& maker,
                                 std::vector<KernelCase>& cases) {
  const size_t pairs = count * (count - 1) / 2;
  PAWL_ASSIGN_OR_RETURN(const Matrix vectors, maker.Random(samples, count * dim));
  PAWL_ASSIGN_OR_RETURN(const Matrix gradient, maker.Random(samples, count * dim));
  PAWL_ASSIGN_OR_RETURN(const Matrix sums, maker.Random(samples, dim));
  PAWL_ASSIGN_OR_RETURN(const Matrix outputs, maker.Random(samples, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix dots, maker.Random(samples, pairs));
  const std::string shape = absl::StrCat(samples, " samples, ", count, " vectors of ", dim);
  const double of_vectors = kFloat * samples * count * dim, of_dots = kFloat * samples * pairs;
  const double of_sums = kFloat * samples * (dim + 1);
  cases.push_back({"SumOfDots", shape, of_vectors + of_sums, 0,
                   [=](Stream& s) { s.SumOfDots(vectors, dim, sums, outputs.data); }});
  cases.push_back({"SumOfDotsBackward", shape, 2 * of_vectors + of_sums, 0, [=](Stream& s) {
                     s.SumOfDotsBackward(vectors, dim, sums, outputs.data, Write::kReplace,
                                         gradient);
                   }});
  cases.push_back({"PairwiseDots", shape, of_vectors + of_dots, 0,
                   [=](Stream& s) { s.PairwiseDots(vectors, dim, dots); }});
  cases.push_back({"PairwiseDotsBackward", shape, 2 * of_vectors + of_dots, 0, [=](Stream& s) {
                     s.PairwiseDotsBackward(vectors, dim, dots, Write::kReplace, gradient);
                   }});
  return absl::OkStatus();
}

absl::Status AddLossCases(size_t samples, size_t classes, Maker& maker,
                          std::vector<KernelCase>& cases) {
  PAWL_ASSIGN_OR_RETURN(const Matrix logits, maker.Random(samples, classes));
  PAWL_ASSIGN_OR_RETURN(const Matrix gradients, maker.Random(samples, classes));
  PAWL_ASSIGN_OR_RETURN(const Matrix labels, maker.Random(samples, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix sum, maker.Random(2, 1));
  double* const loss = reinterpret_cast<double*>(sum.data);
  const std::string shape = absl::StrCat(samples, " samples");
  cases.push_back({"LogisticLoss", shape, 3 * kFloat * samples, 0, [=](Stream& s) {
                     s.LogisticLoss(samples, logits.data, labels.data, /*weights=*/nullptr, 1,
                                    gradients.data, loss);
                   }});
  cases.push_back({"SquaredLoss", shape, 3 * kFloat * samples, 0, [=](Stream& s) {
                     s.SquaredLoss(samples, logits.data, labels.data, /*weights=*/nullptr, 1,
                                   gradients.data, loss);
                   }});
  PAWL_ASSIGN_OR_RETURN(const Matrix zeros, maker.Zeros(samples, 1));
  cases.push_back({"SoftmaxLoss", absl::StrCat(samples, " samples, ", classes, " classes"),
                   kFloat * (2.0 * samples * classes + samples), 0, [=](Stream& s) {
                     s.SoftmaxLoss(logits, zeros.data, /*weights=*/nullptr, 1, gradients, loss);
                   }});
  return absl::OkStatus();
}

// As many parameters as the dense part of a model may have, in blocks as on the servers.
absl::Status AddUpdateCases(size_t elements, Maker& maker, std::vector<KernelCase>& cases) {
  std::vector<Optimizer> optimizers(10);
  optimizers[0].mutable_sgd()->set_learning_rate(1e-6f);
  optimizers[1].mutable_momentum()->set_learning_rate(1e-6f);
  optimizers[2].mutable_adagrad()->set_learning_rate(1e-6f);
  optimizers[3].mutable_rowwise_adagrad()->set_learning_rate(1e-6f);
  optimizers[4].mutable_rmsprop()->set_learning_rate(1e-6f);
  optimizers[5].mutable_adam()->set_learning_rate(1e-6f);
  optimizers[6].mutable_adamw()->set_learning_rate(1e-6f);
  optimizers[7].mutable_ftrl()->set_learning_rate(1e-6f);
  optimizers[8].mutable_assign();
  optimizers[9].mutable_adam()->set_learning_rate(1e-6f);
  optimizers[9].set_clip_norm(1);
  PAWL_ASSIGN_OR_RETURN(const Matrix gradients, maker.Random(elements, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix weights, maker.Random(elements, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix slots, maker.Zeros(2 * elements, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix found, maker.Zeros(1, 1));
  const std::string shape = absl::StrCat(elements, " elements");
  for (const Optimizer& optimizer : optimizers) {
    PAWL_ASSIGN_OR_RETURN(const std::shared_ptr<const UpdateRule> rule,
                          UpdateRule::Create(optimizer));
    const size_t arrays = rule->SlotCount(elements) / elements;
    std::vector<UpdatedRow> rows;
    for (size_t begin = 0; begin < elements; begin += kBlockElements) {
      rows.push_back({.begin = begin,
                      .count = std::min<size_t>(elements - begin, kBlockElements),
                      .slots_begin = arrays > 0 ? arrays * begin : rows.size()});
    }
    const std::string kind =
        Optimizer::descriptor()->FindFieldByNumber(static_cast<int>(optimizer.kind_case()))->name();
    // Sums of squares read the gradients a second time.
    const double floats = (optimizer.has_assign() ? 2.0 : 3.0) + 2.0 * static_cast<double>(arrays) +
                          (rule->IsElementwise() ? 0 : 1);
    cases.push_back(
        {absl::StrCat("Update (", kind, optimizer.clip_norm() > 0 ? ", clip_norm)" : ")"), shape,
         floats * kFloat * static_cast<double>(elements), 0, [=](Stream& s) {
           s.Update(*rule, {.step = 10, .prior_updates = 10}, 1e-3f, rows, gradients.data,
                    weights.data, slots.data);
         }});
  }
  cases.push_back({"FindNotFinite", shape, kFloat * static_cast<double>(elements), 0,
                   [=](Stream& s) { s.FindNotFinite(elements, gradients.data, found.data); }});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<KernelCase>> KernelCases(size_t samples, Stream& stream,
                                                    Workspace& workspace) {
  std::vector<KernelCase> cases;
  Maker maker(stream, workspace);
  PAWL_RETURN_IF_ERROR(AddVectorCases(samples * 512, maker, cases));
  PAWL_RETURN_IF_ERROR(AddLayerCases(samples, 512, 256, maker, cases));
  PAWL_RETURN_IF_ERROR(AddEmbeddingCases(samples, 26, 16, maker, cases));
  PAWL_RETURN_IF_ERROR(AddEmbeddingCases(samples, 26, 128, maker, cases));
  PAWL_RETURN_IF_ERROR(AddInteractionCases(samples, 27, 16, maker, cases));
  PAWL_RETURN_IF_ERROR(AddInteractionCases(samples, 27, 128, maker, cases));
  PAWL_RETURN_IF_ERROR(AddLossCases(samples, 10, maker, cases));
  PAWL_RETURN_IF_ERROR(AddUpdateCases(samples * 512, maker, cases));
  return cases;
}

}  // namespace pawl
