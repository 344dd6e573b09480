// training_step: measures the computation of a worker's gradients for one batch on a device.
//
//   training_step --model=dlrm --device=cuda:0 --dump=FOLDER
//
// Prints one JSON object. --dump writes the batch, the parameters and the gradients to FOLDER, for
// another program (tests/gpu/pytorch_step.py) that computes and measures the same:
//
//   step.json  describes step.bin in its order: name, type (float32 or uint32, little-endian),
//              shape; also the loss
//   step.bin   the numbers, without gaps
//
// A step is the worker's part between pull and push: parameters go from the host's memory to the
// device's, gradients come back. Exit codes: 0: done, 1: the device or the computation failed, 2:
// wrong usage.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/daemon.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/device/open_device.h"
#include "worker/model/training_model.h"

ABSL_FLAG(std::string, model, "dlrm", "dlrm or deepfm");
ABSL_FLAG(std::string, device, "cpu", "what computes: cpu, or cuda:N for the N-th GPU");
ABSL_FLAG(uint32_t, samples, 8192, "samples per batch");
ABSL_FLAG(uint32_t, categories, 4096, "categories of each of the 26 fields, uniformly distributed");
ABSL_FLAG(uint32_t, runs, 100, "timed steps, after a warm-up of a tenth as many");
ABSL_FLAG(std::string, dump, "", "folder for the results; default: none");

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

// The shape of Criteo's click logs.
constexpr uint32_t kFields = 26;
constexpr uint32_t kNumerics = 13;
constexpr uint32_t kMaxSamples = 1 << 20;
constexpr uint32_t kMaxCategories = 1 << 20;
constexpr uint32_t kMaxRuns = 100000;
constexpr float kParameterStddev = 0.05f;

absl::StatusOr<Job> JobOf(const std::string& model) {
  Job job;
  job.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1f);
  const char* spec = model == "dlrm"     ? "dlrm { dim: 16 bottom: [512, 256, 16] top: [512, 256] }"
                     : model == "deepfm" ? "deepfm { dim: 16 hidden: [400, 400, 400] }"
                                         : nullptr;
  if (spec == nullptr ||
      !google::protobuf::TextFormat::ParseFromString(spec, job.mutable_model())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model=", model, " is unknown: use dlrm or deepfm"));
  }
  return job;
}

// One category per field.
Batch MakeBatch(uint32_t samples, uint32_t categories) {
  std::mt19937 random(1);
  Batch batch;
  batch.samples = samples;
  batch.numeric_count = kNumerics;
  batch.field_sets[0].field_count = kFields;
  batch.field_sets[0].field_begin.push_back(0);
  absl::flat_hash_map<uint64_t, uint32_t> places;
  for (uint32_t sample = 0; sample < samples; ++sample) {
    batch.labels.push_back(random() % 2);
    for (uint32_t i = 0; i < kNumerics; ++i) batch.numerics.push_back(random() / 4294967296.0f);
    for (uint32_t field = 0; field < kFields; ++field) {
      const uint64_t key = uint64_t{field} * categories + random() % categories;
      const auto [place, is_new] = places.try_emplace(key, batch.keys[0].size());
      if (is_new) batch.keys[0].push_back(key);
      batch.field_sets[0].entry_key.push_back(place->second);
      batch.field_sets[0].entry_value.push_back(1);
      batch.field_sets[0].field_begin.push_back(batch.field_sets[0].entry_key.size());
    }
  }
  return batch;
}

// One array of numbers per table.
using Values = std::vector<std::vector<float>>;

Values MakeValues(const TrainingModel& model, const Batch& batch, std::mt19937* random) {
  Values values;
  for (size_t table = 0; table < model.tables().size(); ++table) {
    values.emplace_back(model.SpanSize(table, batch));
    if (random == nullptr) continue;
    for (float& value : values.back())
      value = std::normal_distribution<float>(0, kParameterStddev)(*random);
  }
  return values;
}

// The shape of a table's values for `keys` keys.
std::vector<uint64_t> ShapeOf(const TableSpec& table, size_t keys) {
  if (table.kind() == SPARSE) return {keys, table.row_width()};
  return {table.shape().begin(), table.shape().end()};
}

class Dump {
 public:
  explicit Dump(const std::string& folder)
      : folder_(folder), binary_(folder + "/step.bin", std::ios::binary) {}

  template <typename T>
  void Add(const std::string& name, const char* type, const std::vector<uint64_t>& shape,
           const std::vector<T>& numbers) {
    arrays_.push_back({{"name", name}, {"type", type}, {"shape", shape}});
    binary_.write(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
  }

  absl::Status Finish(Json header) {
    header["arrays"] = arrays_;
    std::ofstream text(folder_ + "/step.json");
    text << header.dump(1) << "\n";
    binary_.close();
    text.close();
    if (binary_ && text) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("--dump: ", folder_, " cannot be written"));
  }

 private:
  const std::string folder_;
  std::ofstream binary_;
  Json arrays_ = Json::array();
};

absl::Status DumpStep(const std::string& folder, const Batch& batch, const TrainingModel& model,
                      const Values& parameters, const Values& gradients, const Json& header) {
  Dump dump(folder);
  dump.Add("labels", "float32", {batch.samples}, batch.labels);
  dump.Add("numerics", "float32", {batch.samples, kNumerics}, batch.numerics);
  dump.Add("entry_key", "uint32", {batch.samples, kFields}, batch.field_sets[0].entry_key);
  for (size_t table = 0; table < parameters.size(); ++table) {
    const TableSpec& spec = model.tables()[table];
    dump.Add(absl::StrCat("parameter/", spec.name()), "float32",
             ShapeOf(spec, batch.keys[0].size()), parameters[table]);
    dump.Add(absl::StrCat("gradient/", spec.name()), "float32", ShapeOf(spec, batch.keys[0].size()),
             gradients[table]);
  }
  return dump.Finish(header);
}

absl::StatusOr<Json> Measure(const std::string& model_name, const std::string& device_name,
                             uint32_t samples, uint32_t categories, uint32_t runs,
                             const std::string& dump) {
  PAWL_ASSIGN_OR_RETURN(const Job job, JobOf(model_name));
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(device_name));
  PAWL_ASSIGN_OR_RETURN(const auto model,
                        TrainingModel::Create(job, {kNumerics, kFields}, *device));
  const Batch batch = MakeBatch(samples, categories);
  std::mt19937 random(2);
  const Values parameters = MakeValues(*model, batch, &random);
  Values gradients = MakeValues(*model, batch, nullptr);
  const std::vector<absl::Span<const float>> parameter_spans(parameters.begin(), parameters.end());
  std::vector<absl::Span<float>> gradient_spans;
  for (std::vector<float>& table : gradients) gradient_spans.push_back(absl::MakeSpan(table));

  double loss = 0;
  std::vector<double> times_ms;
  for (uint32_t run = 0; run < runs + runs / 10 + 1; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    PAWL_ASSIGN_OR_RETURN(
        const LossSum sum,
        model->ComputeGradients(batch, parameter_spans, 1.0f / samples, gradient_spans));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (run > runs / 10) times_ms.push_back(took.count());
    loss = sum.loss_sum / static_cast<double>(sum.samples);
  }
  std::sort(times_ms.begin(), times_ms.end());
  Json result = {{"model", model_name},
                 {"device", device_name},
                 {"samples", samples},
                 {"categories", categories},
                 {"fields", kFields},
                 {"numerics", kNumerics},
                 {"keys", batch.keys[0].size()},
                 {"loss", loss},
                 {"runs", runs},
                 {"median_ms", times_ms[times_ms.size() / 2]},
                 {"best_ms", times_ms.front()}};
  if (!dump.empty())
    PAWL_RETURN_IF_ERROR(DumpStep(dump, batch, *model, parameters, gradients, result));
  return result;
}

int Fail(const absl::Status& status) {
  std::cerr << "training_step: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

int Main(int argc, char** argv) {
  SetUpDaemon("training_step",
              "measures the gradients of one batch on a device.\n\n"
              "  training_step [--model=dlrm|deepfm] [--device=cpu|cuda:N] [--samples=N] "
              "[--dump=FOLDER]\n\n"
              "Prints one JSON object. --dump writes the batch, the parameters and the "
              "gradients to step.json and step.bin.",
              argc, argv);
  const uint32_t samples = absl::GetFlag(FLAGS_samples),
                 categories = absl::GetFlag(FLAGS_categories);
  const uint32_t runs = absl::GetFlag(FLAGS_runs);
  if (samples < 1 || samples > kMaxSamples || categories < 1 || categories > kMaxCategories ||
      runs < 1 || runs > kMaxRuns) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("--samples must be from 1 to ", kMaxSamples,
                                                        ", --categories to ", kMaxCategories,
                                                        ", --runs to ", kMaxRuns)));
  }
  const std::string dump = absl::GetFlag(FLAGS_dump);
  std::error_code error;
  if (!dump.empty()) std::filesystem::create_directories(dump, error);
  const absl::StatusOr<Json> result = Measure(
      absl::GetFlag(FLAGS_model), absl::GetFlag(FLAGS_device), samples, categories, runs, dump);
  if (!result.ok()) return Fail(result.status());
  std::cout << result->dump() << "\n";
  return kExitDone;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) { return pawl::Main(argc, argv); }
