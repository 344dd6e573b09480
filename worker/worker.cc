#include "worker/worker.h"

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/client.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "spdlog/spdlog.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/dense_snapshots.h"
#include "worker/device/open_device.h"
#include "worker/model/training_model.h"
#include "worker/progress_board.h"
#include "worker/rank_trainer.h"
#include "worker/rendezvous.h"
#include "worker/step_plan.h"

namespace pawl {
namespace {

// Tables are created by a round trip to every server.
constexpr std::chrono::minutes kCreateTableTimeout{2};
// FinishWork is one message to the scheduler.
constexpr std::chrono::seconds kFinishTimeout{30};
// The last words of a worker that has to end soon.
constexpr std::chrono::milliseconds kLastWordsTimeout{1000};
// The client library ends a call by its deadline; a little later the library itself is at fault.
constexpr std::chrono::seconds kGrace{30};

class ClientRendezvous final : public Rendezvous {
 public:
  explicit ClientRendezvous(Client& client) : client_(client) {}

  std::future<absl::Status> Barrier(const std::string& name, uint32_t parties, uint32_t party) override {
    return client_.Barrier(name, parties, party, {.timeout = kRendezvousTimeout});
  }
  std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(ReportEvaluationRequest request) override {
    return client_.ReportEvaluation(std::move(request), {.timeout = kRendezvousTimeout});
  }

 private:
  Client& client_;
};

struct LoadedData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> eval;
};

// Labels that the loss cannot take are refused before the training begins. `field` is the job file's.
absl::Status CheckLabels(const Job& job, const Dataset& data, absl::string_view field, const std::string& path) {
  const LabelSummary labels = data.labels();
  const auto refuse = [&](absl::string_view wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": the labels of ", path, " go from ", labels.min, " to ", labels.max, "; ", wanted));
  };
  const bool has_classes = job.model().has_mlp() && job.model().mlp().classes() > 1;
  const bool squared = job.model().loss() == SQUARED ||
                       (job.model().loss() == LOSS_UNSPECIFIED && job.model().has_matrix_factorization());
  if (has_classes) {
    if (labels.integers && labels.min >= 0 && labels.max < static_cast<float>(job.model().mlp().classes())) {
      return absl::OkStatus();
    }
    return refuse(absl::StrCat("model.mlp.classes says 0 to ", job.model().mlp().classes() - 1));
  }
  if (squared || (labels.integers && labels.min >= -1 && labels.max <= 1)) return absl::OkStatus();
  return refuse(
      "logistic loss takes 1 for yes and 0 or -1 for no: set label { greater_than } of the CSV column, or model.loss: "
      "SQUARED");
}

absl::StatusOr<LoadedData> Load(const Job& job) {
  const MonotonicTime begin = Clock::Real().Now();
  LoadedData data;
  PAWL_ASSIGN_OR_RETURN(data.train, Dataset::Load(job.data(), job.data().train()));
  PAWL_RETURN_IF_ERROR(CheckLabels(job, *data.train, "data.train", job.data().train()));
  if (!job.data().eval().empty()) {
    DatasetOptions options;
    options.shape = data.train->shape();
    PAWL_ASSIGN_OR_RETURN(data.eval, Dataset::Load(job.data(), job.data().eval(), options));
    PAWL_RETURN_IF_ERROR(CheckLabels(job, *data.eval, "data.eval", job.data().eval()));
  }
  spdlog::info("read {} training and {} evaluation samples with {} distinct keys in {:.1f} s", data.train->size(),
               data.eval == nullptr ? 0 : data.eval->size(), data.train->distinct_keys(),
               Seconds(Clock::Real().Now() - begin));
  return data;
}

// Reads the data on a thread that nobody has to wait for: an interrupt must not wait for a large file.
std::future<absl::StatusOr<LoadedData>> StartLoading(const Job& job) {
  std::promise<absl::StatusOr<LoadedData>> promise;
  std::future<absl::StatusOr<LoadedData>> future = promise.get_future();
  std::thread([job, promise = std::move(promise)]() mutable { promise.set_value(Load(job)); }).detach();
  return future;
}

absl::Status CheckHasModel(const Job& job) {
  if (job.model().kind_case() != Model::KIND_NOT_SET) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "model: is not set. This job only serves tables; a pawl-worker has nothing to train in it. Give the job data and "
      "a model, or use its tables through client_lib");
}

absl::Status CheckJob(const Job& job) {
  if (job.data().train().empty()) {
    return absl::InvalidArgumentError("data.train: is not set; there is nothing to train on");
  }
  if (job.dense_path() == ALLREDUCE) {
    return absl::UnimplementedError("dense_path: ALLREDUCE is not there yet; use SERVER");
  }
  return absl::OkStatus();
}

// What the training of this process consists of. Calls of the client write into it, so
// it must outlive the client.
struct Training {
  Training(Job j, std::unique_ptr<Device> d) : job(std::move(j)), device(std::move(d)) {}

  const Job job;
  const std::unique_ptr<Device> device;
  LoadedData data;
  std::optional<Sampler> sampler;
  std::optional<StepPlan> plan;
  std::vector<Table> tables;
  std::unique_ptr<DenseSnapshots> dense;
  std::unique_ptr<ClientRendezvous> rendezvous;
  std::unique_ptr<ProgressBoard> progress;
  // Set when one rank has failed or the process is to end.
  Interrupt interrupt;
  std::vector<std::unique_ptr<RankTrainer>> ranks;
};

absl::Status CreateTables(Client& client, const TrainingModel& model, const Interrupt& interrupt,
                          std::vector<Table>& tables) {
  // One after the other on every worker: ids are given in the order of creation and say which partition a key is in, so
  // the order must not depend on which message arrives first.
  for (const TableSpec& spec : model.tables()) {
    auto created = client.CreateTable(spec, {.timeout = kCreateTableTimeout});
    auto table = Await(created, kCreateTableTimeout + kGrace, interrupt, "creation of a table");
    if (!table.ok()) return Annotate(table.status(), absl::StrCat("table ", spec.name()));
    tables.push_back(*std::move(table));
  }
  return absl::OkStatus();
}

// Everything up to the first step.
absl::Status Prepare(const WorkerOptions& options, Client& client, Interrupt& interrupt, Training& training) {
  const Job& job = training.job;
  PAWL_RETURN_IF_ERROR(CheckJob(job));
  auto assigned = client.Assignment({.timeout = options.assignment_timeout});
  auto loaded = StartLoading(job);
  while (loaded.wait_for(kInterruptInterval) != std::future_status::ready) {
    PAWL_RETURN_IF_ERROR(interrupt.reason());
    PAWL_RETURN_IF_ERROR(client.status());
  }
  PAWL_ASSIGN_OR_RETURN(training.data, loaded.get());
  PAWL_ASSIGN_OR_RETURN(const GetAssignmentResponse assignment,
                        Await(assigned, options.assignment_timeout + kGrace, interrupt, "assignment of ranks"));
  const uint32_t logical_workers = assignment.logical_workers_total();
  const size_t hosted = static_cast<size_t>(assignment.logical_workers_size());
  if (hosted > kMaxHostedRanks) {
    return absl::ResourceExhaustedError(
        absl::StrCat(hosted, " logical workers were assigned to this process, which hosts at most ", kMaxHostedRanks,
                     "; start more workers"));
  }
  Sampler::Options sampling;
  sampling.samples = training.data.train->size();
  sampling.batch_size = job.batch_size();
  sampling.logical_workers = logical_workers;
  sampling.seed = job.seed();
  sampling.keep_order = job.data().keep_order();
  PAWL_ASSIGN_OR_RETURN(training.sampler, Sampler::Create(sampling));
  training.plan.emplace(job, training.sampler->steps_per_epoch());

  std::vector<std::unique_ptr<TrainingModel>> models;
  for (size_t i = 0; i < std::max<size_t>(hosted, 1); ++i) {
    PAWL_ASSIGN_OR_RETURN(models.emplace_back(),
                          TrainingModel::Create(job, training.data.train->shape(), *training.device));
  }
  PAWL_RETURN_IF_ERROR(CreateTables(client, *models.front(), interrupt, training.tables));
  if (job.consistency().mode() != ASYNC && job.consistency().mode() != BOUNDED &&
      job.consistency().backup_workers() == 0) {
    std::vector<Table> dense;
    for (const Table& table : training.tables) {
      if (table.dense()) dense.push_back(table);
    }
    if (!dense.empty()) training.dense = std::make_unique<DenseSnapshots>(std::move(dense));
  }

  training.rendezvous = std::make_unique<ClientRendezvous>(client);
  std::vector<uint64_t> first_steps;
  std::string names;
  for (const LogicalWorkerAssignment& rank : assignment.logical_workers()) {
    first_steps.push_back(rank.first_step());
    absl::StrAppend(&names, names.empty() ? "" : ", ", rank.rank());
  }
  training.progress =
      std::make_unique<ProgressBoard>(std::move(first_steps), training.plan->total_steps(),
                                      [&client](const WorkerProgress& progress) { client.SetProgress(progress); });
  const RankTrainer::Shared shared{.job = job,
                                   .logical_workers = logical_workers,
                                   .sampler = *training.sampler,
                                   .plan = *training.plan,
                                   .train = *training.data.train,
                                   .eval = training.data.eval.get(),
                                   .tables = training.tables,
                                   .dense = training.dense.get(),
                                   .rendezvous = *training.rendezvous,
                                   .progress = *training.progress,
                                   .interrupt = training.interrupt,
                                   .step_delay = options.step_delay};
  for (size_t i = 0; i < hosted; ++i) {
    const LogicalWorkerAssignment& rank = assignment.logical_workers(static_cast<int>(i));
    PAWL_ASSIGN_OR_RETURN(LogicalWorker* const session, client.OpenLogicalWorker(rank.rank(), rank.first_step()));
    training.ranks.push_back(std::make_unique<RankTrainer>(shared, i, *session, std::move(models[i])));
  }
  spdlog::info("training logical workers {} of {} for {} steps", names, logical_workers, training.plan->total_steps());
  return absl::OkStatus();
}

// Runs the ranks to their end; the first error, after all of them have stopped.
absl::Status Train(Interrupt& interrupt, Training& training) {
  const MonotonicTime begin = Clock::Real().Now();
  std::vector<std::future<absl::Status>> results;
  for (const auto& rank : training.ranks) {
    results.push_back(std::async(std::launch::async, [&training, &rank = *rank] {
      const absl::Status status = rank.Run();
      if (!status.ok()) training.interrupt.Set(status);
      return status;
    }));
  }
  for (std::future<absl::Status>& result : results) {
    while (result.wait_for(kInterruptInterval) != std::future_status::ready) {
      if (absl::Status reason = interrupt.reason(); !reason.ok()) training.interrupt.Set(std::move(reason));
    }
  }
  PAWL_RETURN_IF_ERROR(training.interrupt.reason());
  const WorkerProgress progress = training.progress->progress();
  const double seconds = Seconds(Clock::Real().Now() - begin);
  spdlog::info("trained {} samples in {:.1f} s ({:.0f} samples/s), mean loss of the last steps {:.5f}",
               progress.samples(), seconds, static_cast<double>(progress.samples()) / seconds, progress.loss());
  return absl::OkStatus();
}

absl::Status AwaitEnd(const Client& client, const Interrupt& interrupt) {
  while (!client.WaitForEnd(kInterruptInterval)) PAWL_RETURN_IF_ERROR(interrupt.reason());
  return absl::OkStatus();
}

// Why the job ends by this worker, for the scheduler and so for everybody. Returns the scheduler's answer.
absl::Status TellWhy(Client& client, const Training& training, absl::string_view why) {
  WorkerProgress progress = training.progress == nullptr ? WorkerProgress() : training.progress->progress();
  progress.set_failure(std::string(why));
  const absl::Status told = client.FinishWork(progress, {.timeout = kLastWordsTimeout}).get();
  if (!told.ok()) spdlog::warn("the scheduler could not be told: {}", told.ToString());
  return told;
}

WorkerOutcome Conclude(Client& client, const Interrupt& interrupt, const Training& training, absl::Status status) {
  if (status.ok()) {
    auto finished = client.FinishWork(training.progress->progress(), {.timeout = kFinishTimeout});
    status = Await(finished, kFinishTimeout + kGrace, interrupt, "end of the work");
  }
  if (status.ok()) status = AwaitEnd(client, interrupt);
  if (absl::Status reason = interrupt.reason(); !reason.ok()) {
    if (client.status().ok() && client.job_state() != COMPLETED) {
      TellWhy(client, training, reason.message()).IgnoreError();
    }
    return {WorkerEnd::kInterrupted, std::move(reason)};
  }
  switch (client.job_state()) {
    case COMPLETED:
      return {WorkerEnd::kCompleted, absl::OkStatus()};
    case STOPPED:
      return {WorkerEnd::kStopped, client.status()};
    case FAILED:
      return {WorkerEnd::kFailed, client.status()};
    default:
      break;
  }
  if (!client.status().ok()) return {WorkerEnd::kFailed, client.status()};
  const absl::Status told = TellWhy(client, training, status.message());
  // The job had failed before, and this worker has only seen what came of it.
  if (absl::IsFailedPrecondition(told)) return {WorkerEnd::kFailed, told};
  return {WorkerEnd::kUnable, std::move(status)};
}

}  // namespace

WorkerOutcome RunWorker(const WorkerOptions& options, Interrupt& interrupt) {
  auto device = OpenDevice(options.device);
  if (!device.ok()) return {WorkerEnd::kUnable, Annotate(device.status(), "--device")};

  ClientOptions client_options;
  client_options.scheduler = options.scheduler;
  client_options.role = WORKER_ROLE;
  client_options.connect_timeout = options.connect_timeout;
  // Declared before the client, which is destroyed first and whose calls write into it.
  std::unique_ptr<Training> training;
  auto client = Client::Connect(std::move(client_options));
  if (!client.ok()) {
    return {interrupt.reason().ok() ? WorkerEnd::kFailed : WorkerEnd::kInterrupted, client.status()};
  }
  spdlog::info("joined job '{}' as {}", (*client)->job().name(), (*client)->node());
  training = std::make_unique<Training>((*client)->job(), *std::move(device));
  // Leaves such a job as it was: others may be using its tables.
  if (absl::Status status = CheckHasModel(training->job); !status.ok()) return {WorkerEnd::kUnable, std::move(status)};
  absl::Status status = Prepare(options, **client, interrupt, *training);
  if (status.ok()) status = Train(interrupt, *training);
  WorkerOutcome outcome = Conclude(**client, interrupt, *training, std::move(status));
  client->reset();
  return outcome;
}

}  // namespace pawl
