// Measures the samples per second for which one core computes gradients, without any transport, and
// the memory of a step beside parameters and gradients:
//
//   bazel run -c opt //worker/model:training_model_bench [-- WORD]
//
// With WORD, runs only the cases whose names contain it.
#include <time.h>

#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include "worker/model/testing/model_test_util.h"
#include "worker/model/training_model.h"

namespace pawl {
namespace {

// Only cases whose names contain this run.
std::string only;
constexpr uint32_t kSamples = 4096;
constexpr int kWarmUps = 5;
constexpr int kRuns = 100;
// Limit of the runs of one case.
constexpr double kMaxSeconds = 5;

// Processor time of this process, which has one thread: other load of the machine counts little.
double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// One category per field, drawn from field_keys equally likely ones.
Batch MakeBatch(const DataShape& shape, uint32_t field_keys) {
  std::mt19937 random(1);
  Batch batch;
  batch.samples = kSamples;
  batch.numeric_count = shape.numeric_count;
  batch.field_sets[0].field_count = shape.field_count;
  for (uint32_t k = 0; k < shape.field_count * field_keys; ++k) batch.keys[0].push_back(k);
  batch.field_sets[0].field_begin.push_back(0);
  for (uint32_t s = 0; s < kSamples; ++s) {
    batch.labels.push_back(random() % 2);
    for (uint32_t i = 0; i < shape.numeric_count; ++i)
      batch.numerics.push_back(random() / 4294967296.0f);
    for (uint32_t f = 0; f < shape.field_count; ++f) {
      batch.field_sets[0].entry_key.push_back(f * field_keys + random() % field_keys);
      batch.field_sets[0].entry_value.push_back(1);
      batch.field_sets[0].field_begin.push_back(batch.field_sets[0].entry_key.size());
    }
  }
  return batch;
}

void Measure(const std::string& name, const std::string& spec, const DataShape& shape,
             uint32_t field_keys, ElementType compute = FLOAT32) {
  if (name.find(only) == std::string::npos) return;
  CpuDevice device;
  Job job = JobOf(spec);
  job.mutable_precision()->set_compute(compute);
  auto model = TrainingModel::Create(job, shape, device);
  const Batch batch = MakeBatch(shape, field_keys);
  TableValues parameters(**model, batch, 0), gradients = parameters;
  std::mt19937 random(2);
  parameters.Randomize(0.1f, random);
  const auto parameter_spans = parameters.spans();
  const auto gradient_spans = gradients.mutable_spans();
  // The best run; the others were disturbed.
  double best_s = 1e9, all_s = 0;
  for (int run = -kWarmUps; run < kRuns && all_s < kMaxSeconds; ++run) {
    const double begin_s = ProcessorSeconds();
    if (!(*model)->ComputeGradients(batch, parameter_spans, 1, gradient_spans).ok()) return;
    const double s = ProcessorSeconds() - begin_s;
    if (run >= 0 && s < best_s) best_s = s;
    if (run >= 0) all_s += s;
  }
  std::printf("%-78s %6zu keys  %8.3f ms  %8.1f thousand samples/s  %7.1f MiB\n", name.c_str(),
              batch.keys[0].size(), best_s * 1e3, kSamples / best_s / 1e3,
              static_cast<double>((*model)->peak_bytes()) / (1 << 20));
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  if (argc > 1) pawl::only = argv[1];
  for (const uint32_t field_keys : {100, 2000}) {
    pawl::Measure("logistic_regression, 8 fields", "logistic_regression {}", {0, 8}, field_keys);
    pawl::Measure("fm, 8 fields x 16", "fm { dim: 16 }", {0, 8}, field_keys);
    pawl::Measure("wide_deep, 8 fields x 16, [128, 64]", "wide_deep { dim: 16 hidden: [128, 64] }",
                  {0, 8}, field_keys);
    pawl::Measure("deepfm, 8 fields x 16, [128, 64]", "deepfm { dim: 16 hidden: [128, 64] }",
                  {0, 8}, field_keys);
    pawl::Measure("dlrm, 8 fields x 16, 4 numbers, [64]",
                  "dlrm { dim: 16 bottom: [32, 16] top: [64] }", {4, 8}, field_keys);
    pawl::Measure("matrix_factorization, 2 x 16", "matrix_factorization { dim: 16 } loss: LOGISTIC",
                  {0, 2}, field_keys);
  }
  // A rank's share of a step of deploy/jobs/flights-deepfm.pbtxt.
  pawl::Measure("flights, deepfm, 8 fields x 16, [64, 32]", "deepfm { dim: 16 hidden: [64, 32] }",
                {0, 8}, 450);
  pawl::Measure("mlp 784-256-128-1", "mlp { hidden: [256, 128] }", {784, 0}, 0);
  // The cost of saving memory, and of 16-bit factors.
  const std::string deepfm = "deepfm { dim: 16 hidden: [400, 400, 400] }";
  const std::string dlrm = "dlrm { dim: 64 bottom: [512, 256, 64] top: [512, 512, 256] }";
  for (const auto& [name, recompute] : {std::pair<std::string, std::string>{"", ""},
                                        {", recompute mlp/1 or top/1", "1"},
                                        {", recompute all", " recompute: 'all'"}}) {
    const bool one = recompute == "1";
    pawl::Measure("large deepfm, 26 fields x 16, [400, 400, 400]" + name,
                  deepfm + (one ? " recompute: 'mlp/1'" : recompute), {13, 26}, 100);
    pawl::Measure("large dlrm, 26 fields x 64, 13 numbers" + name,
                  dlrm + (one ? " recompute: 'top/1'" : recompute), {13, 26}, 100);
  }
  for (const pawl::ElementType compute : {pawl::BFLOAT16, pawl::FLOAT16}) {
    pawl::Measure("large deepfm, 26 fields x 16, " + pawl::ElementType_Name(compute), deepfm,
                  {13, 26}, 100, compute);
    pawl::Measure("large dlrm, 26 fields x 64, " + pawl::ElementType_Name(compute), dlrm, {13, 26},
                  100, compute);
  }
  return 0;
}
