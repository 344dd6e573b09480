// The least that training DeepFM costs on this machine: one process, rows indexed by number instead
// of by hash, no network, no log, no replicas. deploy/bench compares Pawl and its peers with this
// limit.
//
//   limit_deepfm --data=DIR --epochs=2 --learning_rate=0.1     # DIR: made by bench_data
//
// The model, the optimizers (Adagrad for rows, Adam for layers) and the batches are those of
// deploy/bench/criteo.pbtxt. A training step has three phases, with a barrier after each:
//
//   1. Each thread copies its share of the batch, and transposes its share of the weights.
//   2. FindRows: a thread owns some of the fields and lists their distinct rows in the batch.
//      ComputeTile: a thread owns some of the samples and computes them in tiles that stay in its
//      caches: gather, forward, backward, the gradients of layers and of the samples' rows.
//   3. UpdateRows: the owner of a field adds up the gradients of its rows and applies Adagrad to
//      each once. UpdateLayers: each thread applies Adam to its share of the layers.
//
// Prints one line of JSON: when training began and ended, the samples trained, and the AUC and log
// loss on the test samples.
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/compiler.h"
#include "client_lib/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/perf/matrix_products.h"

ABSL_FLAG(std::string, data, "", "the folder that bench_data wrote");
ABSL_FLAG(uint32_t, threads, 2, "how many threads compute");
ABSL_FLAG(uint32_t, batch_size, 8192, "samples per step");
ABSL_FLAG(uint32_t, epochs, 1, "passes over the training samples");
ABSL_FLAG(double, learning_rate, 0.1, "Adagrad's, for rows");
ABSL_FLAG(double, dense_learning_rate, 0.001, "Adam's, for layers");
ABSL_FLAG(uint64_t, seed, 7, "of the initial weights and of the order of samples");
ABSL_FLAG(std::string, isa, "", "avx512, avx2 or generic; empty: the best of this processor");

namespace pawl {
namespace {

constexpr size_t kDim = 16;
constexpr size_t kHidden1 = 64;
constexpr size_t kHidden2 = 32;
// The activations of a tile of 26 fields take 200 KiB, so they stay in the second-level cache.
constexpr size_t kTile = 96;
constexpr float kAdagradEpsilon = 1e-8f;
constexpr float kBeta1 = 0.9f;
constexpr float kBeta2 = 0.999f;
constexpr float kAdamEpsilon = 1e-8f;
// Standard deviation of new embeddings.
constexpr float kInitStddev = 0.01f;
// How many rows ahead are fetched into the cache.
constexpr size_t kPrefetchRows = 8;

struct AlignedDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
template <typename T>
using AlignedArray = std::unique_ptr<T[], AlignedDeleter>;

// An array of zeros that starts at a cache line.
template <typename T>
AlignedArray<T> MakeArray(size_t size) {
  const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
  void* const memory = std::aligned_alloc(64, std::max<size_t>(bytes, 64));
  if (memory == nullptr) std::abort();
  std::memset(memory, 0, bytes);
  return AlignedArray<T>(static_cast<T*>(memory));
}

struct Samples {
  std::vector<uint32_t> rows;  // [samples, fields]
  std::vector<float> labels;
};

template <typename T>
absl::StatusOr<std::vector<T>> ReadArray(const std::string& path, size_t size) {
  std::vector<T> values(size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(size * sizeof(T)));
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": has fewer than ", size, " numbers"));
  return values;
}

absl::StatusOr<Samples> ReadSamples(const std::string& path, size_t samples, size_t fields) {
  Samples result;
  PAWL_ASSIGN_OR_RETURN(result.rows, ReadArray<uint32_t>(path + ".rows", samples * fields));
  PAWL_ASSIGN_OR_RETURN(result.labels, ReadArray<float>(path + ".labels", samples));
  return result;
}

// An embedding and its accumulators, which are used together: two cache lines.
struct Row {
  float weights[kDim];
  float accumulators[kDim];
};

// The linear weight of a row, and its place in the current batch.
struct RowHead {
  float weight;
  float accumulator;
  uint32_t step;  // The last step that used the row.
  uint32_t slot;  // Its position among the owner's distinct rows of that step.
};

// The places of the layers in one array, so that Adam needs one loop.
struct Layout {
  explicit Layout(size_t inputs)
      : inputs(inputs),
        weight2(inputs * kHidden1),
        weight3(weight2 + kHidden1 * kHidden2),
        bias1(weight3 + kHidden2),
        bias2(bias1 + kHidden1),
        bias3(bias2 + kHidden2),
        size(bias3 + 1) {}

  const size_t inputs;
  // Where weights [inputs, outputs] and biases start. The first layer's weights start at 0.
  const size_t weight2, weight3, bias1, bias2, bias3;
  const size_t size;
};

// The gradients of a row in a batch, for the embedding and the linear weight.
struct RowGradient {
  float weights[kDim];
  float linear;
};

// The state of one thread.
struct Worker {
  std::vector<uint32_t> fields;         // The fields that it owns.
  std::vector<uint32_t> distinct_rows;  // Their distinct rows in this batch.
  std::vector<RowGradient> row_gradients;
  AlignedArray<float> gradients;  // Of the layers, from its samples.
  // Activations and their gradients, of one tile.
  AlignedArray<float> inputs, hidden1, hidden2, hidden1_gradients, hidden2_gradients, sums;
};

struct Settings {
  size_t threads;
  size_t batch_size;
  float learning_rate;
  float dense_learning_rate;
  uint64_t seed;
};

// A DeepFM model and its training on a kind of processor.
template <typename Isa>
class Trainer {
  using Vector = typename Isa::Vector;
  static constexpr size_t kLanes = Isa::kLanes;

 public:
  Trainer(const Settings& settings, size_t fields, size_t rows)
      : settings_(settings),
        fields_(fields),
        layout_(fields * kDim),
        rows_(MakeArray<Row>(rows)),
        heads_(MakeArray<RowHead>(rows)),
        layers_(MakeArray<float>(layout_.size)),
        momentum_(MakeArray<float>(layout_.size)),
        variance_(MakeArray<float>(layout_.size)),
        transposed1_(MakeArray<float>(layout_.inputs * kHidden1)),
        transposed2_(MakeArray<float>(kHidden1 * kHidden2)),
        batch_rows_(settings.batch_size * fields),
        batch_labels_(settings.batch_size),
        logit_gradients_(settings.batch_size),
        row_gradients_(MakeArray<float>(settings.batch_size * layout_.inputs)),
        workers_(settings.threads),
        barrier_(static_cast<std::ptrdiff_t>(settings.threads)) {
    std::mt19937_64 random(settings.seed);
    // Uniform with the standard deviation of Pawl's normal initializer.
    const float bound = kInitStddev * std::sqrt(3.0f);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t k = 0; k < kDim; k += 2) {
        const uint64_t bits = random();
        rows_[row].weights[k] = bound * (static_cast<float>(bits >> 40) * 0x1p-23f - 1);
        rows_[row].weights[k + 1] =
            bound * (static_cast<float>((bits >> 8) & 0xffffff) * 0x1p-23f - 1);
      }
    }
    const auto xavier = [&](size_t first, size_t inputs, size_t outputs) {
      const float limit = std::sqrt(6.0f / static_cast<float>(inputs + outputs));
      std::uniform_real_distribution<float> distribution(-limit, limit);
      for (size_t i = 0; i < inputs * outputs; ++i) layers_[first + i] = distribution(random);
    };
    xavier(0, layout_.inputs, kHidden1);
    xavier(layout_.weight2, kHidden1, kHidden2);
    xavier(layout_.weight3, kHidden2, 1);
    for (size_t field = 0; field < fields; ++field)
      workers_[field % settings.threads].fields.push_back(static_cast<uint32_t>(field));
    for (Worker& worker : workers_) {
      worker.gradients = MakeArray<float>(layout_.size);
      worker.inputs = MakeArray<float>(kTile * layout_.inputs);
      worker.hidden1 = MakeArray<float>(kTile * kHidden1);
      worker.hidden2 = MakeArray<float>(kTile * kHidden2);
      worker.hidden1_gradients = MakeArray<float>(kTile * kHidden1);
      worker.hidden2_gradients = MakeArray<float>(kTile * kHidden2);
      worker.sums = MakeArray<float>(kTile * kDim);
    }
    Transpose(0, 1);
  }

  // Trains on the samples `epochs` times, in a new order each time.
  void Train(const Samples& samples, size_t epochs) {
    std::vector<uint32_t> order(samples.labels.size());
    std::iota(order.begin(), order.end(), 0u);
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < settings_.threads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(settings_.seed + 1);
        for (size_t epoch = 0; epoch < epochs; ++epoch) {
          if (thread == 0) std::shuffle(order.begin(), order.end(), random);
          barrier_.arrive_and_wait();
          for (size_t first = 0; first < order.size(); first += settings_.batch_size) {
            const size_t count = std::min(settings_.batch_size, order.size() - first);
            Step(samples, order.data() + first, count, thread);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // The logits of samples, on one thread.
  std::vector<float> Predict(const Samples& samples) {
    std::vector<float> logits(samples.labels.size());
    for (size_t first = 0; first < logits.size(); first += kTile) {
      const size_t count = std::min(kTile, logits.size() - first);
      RunForward(Isa(), *this, samples.rows.data() + first * fields_, count, workers_[0],
                 logits.data() + first);
    }
    return logits;
  }

  // The bodies of the functions below that are compiled for each kind of processor.

  // Gathers the samples' embeddings into worker.inputs and computes their logits.
  PAWL_ALWAYS_INLINE void Forward(const uint32_t* sample_rows, size_t count, Worker& worker,
                                  float* logits) {
    const float* const layers = layers_.get();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t* const rows = sample_rows + i * fields_;
      if (i + 1 < count) {
        for (size_t field = 0; field < fields_; ++field) {
          __builtin_prefetch(&rows_[rows[fields_ + field]]);
          __builtin_prefetch(&heads_[rows[fields_ + field]]);
        }
      }
      float linear = layers[layout_.bias3];
      for (size_t field = 0; field < fields_; ++field) linear += heads_[rows[field]].weight;
      Vector products{};
      for (size_t k = 0; k < kDim; k += kLanes) {
        Vector sum{};
        Vector squares{};
        for (size_t field = 0; field < fields_; ++field) {
          Vector embedding;
          Load(rows_[rows[field]].weights + k, embedding);
          Store(embedding, worker.inputs.get() + i * layout_.inputs + field * kDim + k);
          sum += embedding;
          squares += embedding * embedding;
        }
        Store(sum, worker.sums.get() + i * kDim + k);
        products += sum * sum - squares;
      }
      logits[i] = linear + 0.5f * Sum(products);
    }
    Multiply<Isa>({worker.inputs.get(), layout_.inputs}, {layers_.get(), kHidden1},
                  {worker.hidden1.get(), kHidden1}, count, layout_.inputs, kHidden1,
                  layers + layout_.bias1, /*relu=*/true);
    Multiply<Isa>({worker.hidden1.get(), kHidden1}, {layers_.get() + layout_.weight2, kHidden2},
                  {worker.hidden2.get(), kHidden2}, count, kHidden1, kHidden2,
                  layers + layout_.bias2, /*relu=*/true);
    for (size_t i = 0; i < count; ++i) {
      Vector sum{};
      for (size_t j = 0; j < kHidden2; j += kLanes) {
        Vector hidden, weights;
        Load(worker.hidden2.get() + i * kHidden2 + j, hidden);
        Load(layers + layout_.weight3 + j, weights);
        sum += hidden * weights;
      }
      logits[i] += Sum(sum);
    }
  }

  // Computes samples [begin, end) of the batch.
  PAWL_ALWAYS_INLINE void Compute(size_t begin, size_t end, size_t count, Worker& worker) {
    for (size_t i = begin; i < end; i += kTile)
      ComputeTile(i, std::min(kTile, end - i), 1 / static_cast<float>(count), worker);
  }

  PAWL_ALWAYS_INLINE void Update(size_t count, size_t thread) {
    UpdateRows(count, workers_[thread]);
    UpdateLayers(thread);
  }

 private:
  void Step(const Samples& samples, const uint32_t* order, size_t count, size_t thread) {
    Worker& worker = workers_[thread];
    if (thread == 0) ++step_;
    Transpose(thread, settings_.threads);
    const auto [begin, end] = Share(count, thread);
    for (size_t i = begin; i < end; ++i) {
      std::copy_n(samples.rows.data() + order[i] * fields_, fields_, &batch_rows_[i * fields_]);
      batch_labels_[i] = samples.labels[order[i]];
    }
    barrier_.arrive_and_wait();
    FindRows(count, worker);
    std::fill_n(worker.gradients.get(), layout_.size, 0.0f);
    RunCompute(Isa(), *this, begin, end, count, worker);
    barrier_.arrive_and_wait();
    RunUpdate(Isa(), *this, count, thread);
    barrier_.arrive_and_wait();
  }

  // A thread's share of n things.
  std::pair<size_t, size_t> Share(size_t n, size_t thread) const {
    return {n * thread / settings_.threads, n * (thread + 1) / settings_.threads};
  }

  // Writes a thread's share of the transposed weights, which the backward pass multiplies by.
  void Transpose(size_t thread, size_t threads) {
    for (size_t i = layout_.inputs * thread / threads; i < layout_.inputs * (thread + 1) / threads;
         ++i)
      for (size_t j = 0; j < kHidden1; ++j)
        transposed1_[j * layout_.inputs + i] = layers_[i * kHidden1 + j];
    if (thread != 0) return;
    for (size_t i = 0; i < kHidden1; ++i)
      for (size_t j = 0; j < kHidden2; ++j)
        transposed2_[j * kHidden1 + i] = layers_[layout_.weight2 + i * kHidden2 + j];
  }

  void FindRows(size_t count, Worker& worker) {
    worker.distinct_rows.clear();
    for (const uint32_t field : worker.fields) {
      for (size_t i = 0; i < count; ++i) {
        const uint32_t row = batch_rows_[i * fields_ + field];
        if (i + kPrefetchRows < count)
          __builtin_prefetch(&heads_[batch_rows_[(i + kPrefetchRows) * fields_ + field]], 1);
        RowHead& head = heads_[row];
        if (head.step == step_) continue;
        head.step = step_;
        head.slot = static_cast<uint32_t>(worker.distinct_rows.size());
        worker.distinct_rows.push_back(row);
      }
    }
    worker.row_gradients.assign(worker.distinct_rows.size(), RowGradient{});
  }

  // Computes samples [first, first + count) of the batch: adds to the worker's gradients of layers,
  // and sets the samples' logit_gradients_ and row_gradients_.
  PAWL_ALWAYS_INLINE void ComputeTile(size_t first, size_t count, float scale, Worker& worker) {
    std::array<float, kTile> logits;
    Forward(&batch_rows_[first * fields_], count, worker, logits.data());
    const float* const layers = layers_.get();
    float* const gradients = worker.gradients.get();
    for (size_t i = 0; i < count; ++i) {
      const float chance = 1 / (1 + std::exp(-logits[i]));
      const float gradient = (chance - batch_labels_[first + i]) * scale;
      logit_gradients_[first + i] = gradient;
      gradients[layout_.bias3] += gradient;
      for (size_t j = 0; j < kHidden2; j += kLanes) {
        Vector hidden, weights, weights_gradient, bias_gradient;
        Load(worker.hidden2.get() + i * kHidden2 + j, hidden);
        Load(layers + layout_.weight3 + j, weights);
        Load(gradients + layout_.weight3 + j, weights_gradient);
        Load(gradients + layout_.bias2 + j, bias_gradient);
        weights_gradient += gradient * hidden;
        const Vector hidden_gradient = hidden > 0 ? gradient * weights : Vector{};
        bias_gradient += hidden_gradient;
        Store(weights_gradient, gradients + layout_.weight3 + j);
        Store(bias_gradient, gradients + layout_.bias2 + j);
        Store(hidden_gradient, worker.hidden2_gradients.get() + i * kHidden2 + j);
      }
    }
    const MatrixView hidden2_gradients{worker.hidden2_gradients.get(), kHidden2};
    const MatrixView hidden1_gradients{worker.hidden1_gradients.get(), kHidden1};
    AddTransposed<Isa>({worker.hidden1.get(), kHidden1}, hidden2_gradients,
                       {gradients + layout_.weight2, kHidden2}, count, kHidden1, kHidden2);
    Multiply<Isa>(hidden2_gradients, {transposed2_.get(), kHidden1}, hidden1_gradients, count,
                  kHidden2, kHidden1, nullptr, /*relu=*/false);
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < kHidden1; j += kLanes) {
        Vector hidden, hidden_gradient, bias_gradient;
        Load(worker.hidden1.get() + i * kHidden1 + j, hidden);
        Load(hidden1_gradients.At(i, j), hidden_gradient);
        Load(gradients + layout_.bias1 + j, bias_gradient);
        hidden_gradient = hidden > 0 ? hidden_gradient : Vector{};
        Store(hidden_gradient, hidden1_gradients.At(i, j));
        Store(bias_gradient + hidden_gradient, gradients + layout_.bias1 + j);
      }
    }
    AddTransposed<Isa>({worker.inputs.get(), layout_.inputs}, hidden1_gradients,
                       {gradients, kHidden1}, count, layout_.inputs, kHidden1);
    const MatrixView row_gradients{row_gradients_.get() + first * layout_.inputs, layout_.inputs};
    Multiply<Isa>(hidden1_gradients, {transposed1_.get(), layout_.inputs}, row_gradients, count,
                  kHidden1, layout_.inputs, nullptr, /*relu=*/false);
    // The factorization machine's part: d logit / d embedding = sum of the other embeddings.
    for (size_t i = 0; i < count; ++i) {
      const float gradient = logit_gradients_[first + i];
      for (size_t j = 0; j < layout_.inputs; j += kLanes) {
        Vector sum, embedding, row_gradient;
        Load(worker.sums.get() + i * kDim + j % kDim, sum);
        Load(worker.inputs.get() + i * layout_.inputs + j, embedding);
        Load(row_gradients.At(i, j), row_gradient);
        Store(row_gradient + gradient * (sum - embedding), row_gradients.At(i, j));
      }
    }
  }

  // Adds up the gradients of the worker's rows and applies Adagrad.
  PAWL_ALWAYS_INLINE void UpdateRows(size_t count, Worker& worker) {
    for (size_t i = 0; i < count; ++i) {
      const float linear_gradient = logit_gradients_[i];
      for (const uint32_t field : worker.fields) {
        RowGradient& sum = worker.row_gradients[heads_[batch_rows_[i * fields_ + field]].slot];
        const float* const gradient = row_gradients_.get() + i * layout_.inputs + field * kDim;
        for (size_t k = 0; k < kDim; k += kLanes) {
          Vector total, part;
          Load(sum.weights + k, total);
          Load(gradient + k, part);
          Store(total + part, sum.weights + k);
        }
        sum.linear += linear_gradient;
      }
    }
    const float rate = settings_.learning_rate;
    const size_t distinct = worker.distinct_rows.size();
    for (size_t slot = 0; slot < distinct; ++slot) {
      if (slot + kPrefetchRows < distinct) {
        const uint32_t next = worker.distinct_rows[slot + kPrefetchRows];
        __builtin_prefetch(&rows_[next].weights, 1);
        __builtin_prefetch(&rows_[next].accumulators, 1);
        __builtin_prefetch(&heads_[next], 1);
      }
      const RowGradient& gradient = worker.row_gradients[slot];
      Row& row = rows_[worker.distinct_rows[slot]];
      const float* __restrict const gradients = gradient.weights;
      float* __restrict const weights = row.weights;
      float* __restrict const accumulators = row.accumulators;
      for (size_t k = 0; k < kDim; ++k) {
        accumulators[k] += gradients[k] * gradients[k];
        weights[k] -= rate * gradients[k] / (std::sqrt(accumulators[k]) + kAdagradEpsilon);
      }
      RowHead& head = heads_[worker.distinct_rows[slot]];
      head.accumulator += gradient.linear * gradient.linear;
      head.weight -= rate * gradient.linear / (std::sqrt(head.accumulator) + kAdagradEpsilon);
    }
  }

  // Adds up the threads' gradients of a share of the layers and applies Adam.
  PAWL_ALWAYS_INLINE void UpdateLayers(size_t thread) {
    const float correction1 = 1 - std::pow(kBeta1, static_cast<float>(step_));
    const float correction2 = 1 - std::pow(kBeta2, static_cast<float>(step_));
    const float rate = settings_.dense_learning_rate / correction1;
    const auto [begin, end] = Share(layout_.size, thread);
    for (size_t i = begin; i < end; ++i) {
      float gradient = 0;
      for (const Worker& worker : workers_) gradient += worker.gradients[i];
      momentum_[i] = kBeta1 * momentum_[i] + (1 - kBeta1) * gradient;
      variance_[i] = kBeta2 * variance_[i] + (1 - kBeta2) * gradient * gradient;
      layers_[i] -= rate * momentum_[i] / (std::sqrt(variance_[i] / correction2) + kAdamEpsilon);
    }
  }

  const Settings settings_;
  const size_t fields_;
  const Layout layout_;
  const AlignedArray<Row> rows_;
  const AlignedArray<RowHead> heads_;
  // Each has layout_.size elements.
  const AlignedArray<float> layers_, momentum_, variance_;
  const AlignedArray<float> transposed1_, transposed2_;
  // The current batch, in order.
  std::vector<uint32_t> batch_rows_;
  std::vector<float> batch_labels_;
  std::vector<float> logit_gradients_;
  const AlignedArray<float> row_gradients_;  // [batch_size, inputs]
  std::vector<Worker> workers_;
  std::barrier<> barrier_;
  uint32_t step_ = 0;
};

// The share of pairs of a positive and a negative sample whose logits have the right order.
double Auc(const std::vector<float>& logits, const std::vector<float>& labels) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return logits[a] < logits[b]; });
  double positives = 0, negatives = 0, pairs = 0;
  for (size_t i = 0; i < order.size();) {
    double equal_positives = 0, equal_negatives = 0;
    const float logit = logits[order[i]];
    for (; i < order.size() && logits[order[i]] == logit; ++i)
      (labels[order[i]] != 0 ? equal_positives : equal_negatives) += 1;
    pairs += equal_positives * (negatives + equal_negatives / 2);
    positives += equal_positives;
    negatives += equal_negatives;
  }
  return pairs / (positives * negatives);
}

double LogLoss(const std::vector<float>& logits, const std::vector<float>& labels) {
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double logit = logits[i];
    sum += std::max(logit, 0.0) - logit * labels[i] + std::log1p(std::exp(-std::abs(logit)));
  }
  return sum / static_cast<double>(logits.size());
}

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

#define DEFINE_FOR(Isa, target)                                                              \
  target void RunForward(Isa, Trainer<Isa>& trainer, const uint32_t* rows, size_t count,     \
                         Worker& worker, float* logits) {                                    \
    trainer.Forward(rows, count, worker, logits);                                            \
  }                                                                                          \
  target void RunCompute(Isa, Trainer<Isa>& trainer, size_t begin, size_t end, size_t count, \
                         Worker& worker) {                                                   \
    trainer.Compute(begin, end, count, worker);                                              \
  }                                                                                          \
  target void RunUpdate(Isa, Trainer<Isa>& trainer, size_t count, size_t thread) {           \
    trainer.Update(count, thread);                                                           \
  }

DEFINE_FOR(Avx512, RUN_ON_AVX512)
DEFINE_FOR(Avx2, RUN_ON_AVX2)
DEFINE_FOR(Generic, )
#undef DEFINE_FOR

struct Problem {
  size_t fields = 0;
  size_t rows = 0;
  size_t epochs = 0;
  Samples train, test;
};

absl::StatusOr<Problem> ReadProblem(const std::string& folder) {
  std::ifstream file(folder + "/data.json");
  const nlohmann::json description =
      nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!description.is_object())
    return absl::NotFoundError(absl::StrCat(folder, "/data.json: bench_data has not written it"));
  Problem problem;
  for (const uint64_t rows : description.value("field_rows", std::vector<uint64_t>())) {
    ++problem.fields;
    problem.rows += rows;
  }
  PAWL_ASSIGN_OR_RETURN(
      problem.train, ReadSamples(folder + "/train", description.value("train", 0), problem.fields));
  PAWL_ASSIGN_OR_RETURN(
      problem.test, ReadSamples(folder + "/test", description.value("test", 0), problem.fields));
  return problem;
}

template <typename Isa>
void Run(const Settings& settings, const Problem& problem) {
  Trainer<Isa> trainer(settings, problem.fields, problem.rows);
  const double begin = UnixSeconds();
  trainer.Train(problem.train, problem.epochs);
  const double end = UnixSeconds();
  const std::vector<float> logits = trainer.Predict(problem.test);
  const nlohmann::ordered_json result = {{"begin_unix_s", begin},
                                         {"end_unix_s", end},
                                         {"samples", problem.train.labels.size() * problem.epochs},
                                         {"auc", Auc(logits, problem.test.labels)},
                                         {"logloss", LogLoss(logits, problem.test.labels)}};
  std::printf("%s\n", result.dump().c_str());
}

std::string BestIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "generic";
}

absl::Status Main() {
  const Settings settings = {
      .threads = absl::GetFlag(FLAGS_threads),
      .batch_size = absl::GetFlag(FLAGS_batch_size),
      .learning_rate = static_cast<float>(absl::GetFlag(FLAGS_learning_rate)),
      .dense_learning_rate = static_cast<float>(absl::GetFlag(FLAGS_dense_learning_rate)),
      .seed = absl::GetFlag(FLAGS_seed)};
  if (settings.threads == 0 || settings.batch_size == 0)
    return absl::InvalidArgumentError("--threads and --batch_size must be at least 1");
  PAWL_ASSIGN_OR_RETURN(Problem problem, ReadProblem(absl::GetFlag(FLAGS_data)));
  problem.epochs = absl::GetFlag(FLAGS_epochs);
  std::string isa = absl::GetFlag(FLAGS_isa);
  if (isa.empty()) isa = BestIsa();
  if (isa == "avx512") {
    Run<Avx512>(settings, problem);
  } else if (isa == "avx2") {
    Run<Avx2>(settings, problem);
  } else if (isa == "generic") {
    Run<Generic>(settings, problem);
  } else {
    return absl::InvalidArgumentError("--isa must be avx512, avx2 or generic");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("trains DeepFM as fast as this machine can, for deploy/bench");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = pawl::Main();
  if (status.ok()) return 0;
  std::fprintf(stderr, "limit_deepfm: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
