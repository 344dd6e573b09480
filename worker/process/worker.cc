#include "worker/process/worker.h"

#include <algorithm>
#include <atomic>
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
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/env.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/client.h"
#include "client_lib/job/consistency.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "server/optimizer/update_rule.h"
#include "spdlog/spdlog.h"
#include "worker/collective/gloo/collective.h"
#include "worker/collective/group_former.h"
#include "worker/collective/nccl_loader.h"
#include "worker/collective/open_collectives.h"
#include "worker/collective/scheduler_group_former.h"
#include "worker/data/sampler.h"
#include "worker/dense/dense_memory.h"
#include "worker/dense/dense_replica.h"
#include "worker/dense/dense_source.h"
#include "worker/dense/dense_store.h"
#include "worker/device/open_device.h"
#include "worker/model/training_model.h"
#include "worker/process/failure_policy.h"
#include "worker/process/job_data.h"
#include "worker/process/memory_limit.h"
#include "worker/process/progress_board.h"
#include "worker/process/rank_host.h"
#include "worker/process/rendezvous.h"
#include "worker/process/worker_identity.h"
#include "worker/train/rank_shared.h"
#include "worker/train/step_plan.h"

namespace pawl {
namespace {

// Minimum deadline of calls that are usually immediate; longer than servers and scheduler may be
// away.
constexpr std::chrono::minutes kCallTimeout{10};
// A deadline exceeds the scheduler's patience by this much, so that the scheduler gives up first.
constexpr std::chrono::minutes kPatienceMargin{1};
// A worker whose training has failed waits so long for a scheduler that is restarted or
// overloaded, unless it has to end.
constexpr std::chrono::seconds kFailureReportTimeout{10};

MonotonicDuration AtLeastPatience(MonotonicDuration timeout, const Client& client) {
  return std::max<MonotonicDuration>(timeout, client.stall_timeout() + kPatienceMargin);
}

class ClientRendezvous final : public Rendezvous {
 public:
  explicit ClientRendezvous(Client& client) : client_(client) {}

  std::future<absl::Status> Barrier(const std::string& name, uint32_t parties,
                                    uint32_t party) override {
    return client_.Barrier(name, parties, party, {.timeout = kRendezvousTimeout});
  }
  std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(
      ReportEvaluationRequest request) override {
    return client_.ReportEvaluation(std::move(request), {.timeout = kRendezvousTimeout});
  }

 private:
  Client& client_;
};

// Reads the data on a detached thread, so that an interrupt does not wait for a large file.
std::future<absl::StatusOr<JobData>> StartLoading(const Job& job, JobDataOptions options) {
  std::promise<absl::StatusOr<JobData>> promise;
  std::future<absl::StatusOr<JobData>> future = promise.get_future();
  std::thread([job, options = std::move(options), promise = std::move(promise)]() mutable {
    promise.set_value(LoadJobData(job, options));
  }).detach();
  return future;
}

absl::Status CheckHasModel(const Job& job) {
  if (job.model().kind_case() != Model::KIND_NOT_SET) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "model: is not set. This job only serves tables, so a pawl-worker has nothing to train. "
      "Give the job data and a model, or use its tables through client_lib");
}

// The parts of this process's training. Outlives the client, whose calls write into it.
struct Training {
  Training(Job j, std::unique_ptr<Device> d) : job(std::move(j)), device(std::move(d)) {}

  const Job job;
  const std::unique_ptr<Device> device;
  JobData data;
  std::optional<Sampler> sampler;
  std::optional<StepPlan> plan;
  std::vector<Table> tables;
  std::unique_ptr<DenseSnapshots> dense;
  // For dense_path: ALLREDUCE and a model with dense tables.
  std::unique_ptr<GroupFormer> group_former;
  std::unique_ptr<DenseStore> dense_store;
  std::unique_ptr<DenseReplica> replica;
  std::unique_ptr<ClientRendezvous> rendezvous;
  std::unique_ptr<ProgressBoard> progress;
  // Set when a rank has failed, the process must end or the job has ended.
  Interrupt interrupt;
  std::unique_ptr<RankHost> host;
};

// Sets the training's interrupt when the process must leave, and both interrupts when the job has
// ended for this client, because no call is answered after that.
class EndWatcher {
 public:
  EndWatcher(const Client& client, Interrupt& leave, Interrupt& interrupt, Interrupt& abandon)
      : client_(client), leave_(leave), interrupt_(interrupt), abandon_(abandon), thread_([this] {
          Watch();
        }) {}
  ~EndWatcher() {
    ending_ = true;
    thread_.join();
  }

 private:
  void Watch() {
    while (!ending_) {
      if (client_.leave_requested())
        leave_.Set(absl::CancelledError("the scheduler told this worker to leave"));
      if (absl::Status reason = leave_.reason(); !reason.ok()) interrupt_.Set(std::move(reason));
      if (!client_.WaitForEnd(kInterruptInterval)) continue;
      absl::Status reason = client_.status();
      if (reason.ok()) reason = absl::CancelledError("the job has completed without this worker");
      interrupt_.Set(reason);
      abandon_.Set(std::move(reason));
      return;
    }
  }

  const Client& client_;
  Interrupt& leave_;
  Interrupt& interrupt_;
  Interrupt& abandon_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// Forms groups with every kind of collective that this process has.
absl::StatusOr<std::unique_ptr<GroupFormer>> MakeGroupFormer(const WorkerOptions& options,
                                                             Client& client, Device& device) {
  if (!options.collective_kinds.empty()) {
    return std::make_unique<SchedulerGroupFormer>(client, options.collective_kinds);
  }
  std::string host = options.collective_host;
  if (host.empty()) {
    PAWL_ASSIGN_OR_RETURN(host, LocalAddressTowards(options.scheduler));
  }
  // NCCL chooses its network by itself.
  const bool is_local = IsLoopback(host) && (options.collectives == CollectivesChoice::kGloo ||
                                             options.device == "cpu");
  if (!options.security.tls_dir.empty() && !options.insecure_collectives && !is_local) {
    return absl::FailedPreconditionError(absl::StrCat(
        "dense_path: ALLREDUCE sends gradients between workers neither encrypted nor authenticated "
        "(Gloo and NCCL have no TLS here), and ",
        host,
        " is reachable from other machines; set dense_path: SERVER in the job, or "
        "--insecure_collectives if the workers' network is trusted"));
  }
  const auto nccl = [&] {
    return OpenNcclKind(options.collectives, options.device, device, NcclLibraryPaths());
  };
  PAWL_ASSIGN_OR_RETURN(
      std::vector<CollectiveKind> kinds,
      OpenCollectives(options.collectives, options.device, nccl,
                      {.name = "gloo", .exclusive = "", .make = GlooCollectives(host)}));
  return std::make_unique<SchedulerGroupFormer>(client, std::move(kinds));
}

absl::StatusOr<Table> CreateTable(Client& client, const TableSpec& spec,
                                  const Interrupt& interrupt) {
  const MonotonicDuration timeout = AtLeastPatience(kCallTimeout, client);
  auto created = client.CreateTable(spec, {.timeout = timeout});
  auto table = Await(created, timeout + kLibraryGrace, interrupt, "creation of a table");
  if (!table.ok()) return Annotate(table.status(), absl::StrCat("table ", spec.name()));
  return table;
}

// Creates the model's tables in its order, with the specs in `dense` for the dense ones, then the
// remaining tables of `dense`.
absl::Status CreateTables(Client& client, const TrainingModel& model,
                          const std::vector<TableSpec>& dense, Training& training,
                          std::vector<Table>* dense_tables) {
  // Every worker creates the tables one by one: ids are given in the order of creation and
  // determine the partition of a key, so the order must not depend on message timing.
  auto next = dense.begin();
  for (const TableSpec& spec : model.tables()) {
    const bool replicated = spec.kind() == DENSE && next != dense.end();
    PAWL_ASSIGN_OR_RETURN(Table table,
                          CreateTable(client, replicated ? *next++ : spec, training.interrupt));
    if (replicated) dense_tables->push_back(table);
    training.tables.push_back(std::move(table));
  }
  for (; next != dense.end(); ++next) {
    PAWL_ASSIGN_OR_RETURN(Table table, CreateTable(client, *next, training.interrupt));
    dense_tables->push_back(std::move(table));
  }
  return absl::OkStatus();
}

// Creates the tables, and the replica of the dense ones if the workers train these.
absl::Status PrepareTables(const WorkerOptions& options, Client& client, const TrainingModel& model,
                           uint32_t logical_workers, Training& training) {
  const Job& job = training.job;
  std::vector<TableSpec> dense;
  for (const TableSpec& spec : model.tables()) {
    if (spec.kind() == DENSE) dense.push_back(spec);
  }
  std::vector<Table> dense_tables;
  if (job.dense_path() != ALLREDUCE || dense.empty()) {
    PAWL_RETURN_IF_ERROR(CreateTables(client, model, {}, training, &dense_tables));
  } else {
    DenseReplica::Options replica;
    replica.logical_workers = logical_workers;
    replica.optimizer = job.optimizer();
    replica.bucket_bytes = job.all_reduce().bucket_bytes();
    replica.sharded = job.all_reduce().sharded_optimizer();
    if (DenseStaysOnDevice(job, *training.device)) replica.device = training.device.get();
    // The plan exists before any rank starts.
    replica.is_write_back = [&training](uint64_t steps) {
      return training.plan->IsWriteBack(steps);
    };
    replica.timeout = AtLeastPatience(kStepTimeout, client);
    PAWL_ASSIGN_OR_RETURN(const auto rule, UpdateRule::Create(job.optimizer()));
    PAWL_RETURN_IF_ERROR(
        CreateTables(client, model, DenseStore::Specs(dense, *rule), training, &dense_tables));
    for (size_t i = 0; i < dense.size(); ++i)
      replica.elements.push_back(dense_tables[i].elements());
    replica.load = [&client, &training, timeout = replica.timeout](const Interrupt& interrupt,
                                                                   DenseState& state) {
      return training.dense_store->Load(client.free_running(), timeout, interrupt, state);
    };
    PAWL_ASSIGN_OR_RETURN(training.group_former,
                          MakeGroupFormer(options, client, *training.device));
    if (!training.device->SharesHostMemory()) {
      spdlog::info("dense parameters are in the memory of {}",
                   replica.device == nullptr ? "the host" : options.device);
    }
    PAWL_ASSIGN_OR_RETURN(training.replica,
                          DenseReplica::Create(std::move(replica), *training.group_former));
    training.dense_store = std::make_unique<DenseStore>(
        training.replica->layout(), training.replica->rule(), std::move(dense_tables));
  }

  // Evaluations always pull the dense tables.
  if (dense.empty() || (training.replica == nullptr && (!IsSync(job.consistency().mode()) ||
                                                        job.consistency().backup_workers() > 0))) {
    return absl::OkStatus();
  }
  std::vector<Table> pulled;
  for (const Table& table : training.tables) {
    if (table.dense()) pulled.push_back(table);
  }
  training.dense = std::make_unique<DenseSnapshots>(std::move(pulled));
  return absl::OkStatus();
}

DataFingerprint FingerprintOf(const JobData& data) {
  DataFingerprint fingerprint;
  fingerprint.set_train_samples(data.train->size());
  fingerprint.set_train(data.train->fingerprint());
  if (data.eval == nullptr) return fingerprint;
  fingerprint.set_eval_samples(data.eval->size());
  fingerprint.set_eval(data.eval->fingerprint());
  return fingerprint;
}

// Does everything that precedes the first step.
absl::Status Prepare(const WorkerOptions& options, Client& client, Training& training,
                     Interrupt& abandon) {
  const Job& job = training.job;
  // The scheduler assigns ranks when the job's first workers have joined.
  const MonotonicDuration assignment_timeout = AtLeastPatience(options.assignment_timeout, client);
  auto assigned = client.Assignment({.timeout = assignment_timeout});
  auto loaded = StartLoading(
      job, {.max_bytes = options.max_data_bytes == 0 ? MemoryLimitBytes() : options.max_data_bytes,
            .max_rank_bytes = options.max_rank_data_bytes,
            .index_dir = options.index_dir});
  while (loaded.wait_for(kInterruptInterval) != std::future_status::ready) {
    PAWL_RETURN_IF_ERROR(training.interrupt.reason());
  }
  PAWL_ASSIGN_OR_RETURN(training.data, loaded.get());
  const MonotonicDuration call_timeout = AtLeastPatience(kCallTimeout, client);
  auto agreed = client.AgreeOnData(FingerprintOf(training.data), {.timeout = call_timeout});
  PAWL_RETURN_IF_ERROR(Await(agreed, call_timeout + kLibraryGrace, training.interrupt,
                             "comparison of the data with other workers'"));
  absl::StatusOr<GetAssignmentResponse> answer;
  do {
    answer = Await(assigned, assignment_timeout + kLibraryGrace, training.interrupt,
                   "assignment of ranks");
    // Servers that load a large checkpoint take longer; the scheduler limits that.
    const bool is_late =
        absl::IsDeadlineExceeded(answer.status()) || absl::IsUnavailable(answer.status());
    if (!is_late || client.job_state() != STARTING) break;
    spdlog::info("the job has not started yet");
    assigned = client.Assignment({.timeout = assignment_timeout});
  } while (true);
  PAWL_ASSIGN_OR_RETURN(const GetAssignmentResponse assignment, std::move(answer));
  const uint32_t logical_workers = assignment.logical_workers_total();
  PAWL_ASSIGN_OR_RETURN(training.sampler, Sampler::Create(Sampler::OptionsOf(
                                              job, training.data.train->size(), logical_workers)));
  training.plan.emplace(job, training.sampler->epochs(), assignment.counted_from_step());

  const auto make_model = [&training, records_steps = options.records_steps] {
    return TrainingModel::Create(training.job, training.data.train->shape(), *training.device,
                                 records_steps, DenseStaysOnDevice(training.job, *training.device));
  };
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingModel> model, make_model());
  if (options.records_steps && !model->records_steps()) {
    spdlog::warn(
        "--cuda_graphs has no effect: it needs a GPU and a model without categorical fields");
  }
  PAWL_RETURN_IF_ERROR(PrepareTables(options, client, *model, logical_workers, training));

  training.rendezvous = std::make_unique<ClientRendezvous>(client);
  training.progress = std::make_unique<ProgressBoard>(
      training.plan->total_steps(),
      [&client](const WorkerProgress& progress) { client.SetProgress(progress); });
  DenseSource* dense = training.dense.get();
  if (training.replica != nullptr) dense = training.replica.get();
  const RankShared shared{.job = job,
                          .logical_workers = logical_workers,
                          .sampler = *training.sampler,
                          .plan = *training.plan,
                          .train = *training.data.train,
                          .eval = training.data.eval.get(),
                          .eval_in_memory = training.data.eval_in_memory,
                          .tables = training.tables,
                          .dense = dense,
                          .evaluation_dense = training.dense.get(),
                          .replica = training.replica.get(),
                          .store = training.dense_store.get(),
                          .rendezvous = *training.rendezvous,
                          .progress = *training.progress,
                          .step_delay = options.step_delay,
                          .straggler = options.straggler,
                          .element_delay = options.element_delay,
                          .step_timeout = AtLeastPatience(kStepTimeout, client)};
  training.host = std::make_unique<RankHost>(
      client, RankHost::Options{.shared = shared,
                                .interrupts = {training.interrupt, abandon},
                                .make_model = make_model,
                                .counted_from_step = assignment.counted_from_step(),
                                .call_timeout = call_timeout});
  spdlog::info("ready for logical workers of {}, for {} steps", logical_workers,
               training.plan->total_steps());
  if (options.on_training != nullptr) options.on_training();
  return absl::OkStatus();
}

// Runs this process's ranks until the job ends. Returns the first error after all ranks have
// stopped.
absl::Status Train(Training& training) {
  const MonotonicTime begin = Clock::Real().Now();
  PAWL_RETURN_IF_ERROR(training.host->Run());
  const WorkerProgress progress = training.progress->progress();
  const double seconds = Seconds(Clock::Real().Now() - begin);
  spdlog::info(
      "trained {} samples in {:.1f} s ({:.0f} samples/s), mean loss of the last steps {:.5f}",
      progress.samples(), seconds, static_cast<double>(progress.samples()) / seconds,
      progress.loss());
  if (training.data.streamed != nullptr) {
    const StreamCounts counts = training.data.streamed->counts();
    spdlog::info(
        "read {} samples in {} windows, for {:.1f} s ({:.0f} samples/s of one thread); "
        "training waited {:.2f} s for them",
        counts.samples, counts.windows, counts.read_s,
        static_cast<double>(counts.samples) / counts.read_s, counts.waited_s);
  }
  return absl::OkStatus();
}

// Reports to the scheduler that this worker fails the job, and why. Returns the scheduler's answer.
absl::Status ReportFailure(Client& client, const Interrupt& leave, const Training& training,
                           absl::string_view why) {
  WorkerProgress progress =
      training.progress == nullptr ? WorkerProgress() : training.progress->progress();
  progress.set_failure(BoundedText(why, kMaxFailureReportBytes));
  auto answer = client.FinishWork(progress, {.timeout = kFailureReportTimeout});
  absl::Status told =
      Await(answer, kFailureReportTimeout + kLibraryGrace, leave, "report of the failure");
  if (!told.ok())
    spdlog::warn("the failure report did not reach the scheduler: {}", told.ToString());
  return told;
}

WorkerOutcome Conclude(Client& client, const Interrupt& leave, const Training& training,
                       absl::Status status) {
  // Other workers take over the ranks.
  if (absl::Status reason = leave.reason(); !reason.ok())
    return {WorkerEnd::kInterrupted, std::move(reason)};
  switch (client.job_state()) {
    case COMPLETED:
      if (status.ok()) return {WorkerEnd::kCompleted, absl::OkStatus()};
      return {WorkerEnd::kStopped, std::move(status)};
    case STOPPED:
      return {WorkerEnd::kStopped, client.status()};
    case FAILED:
      return {WorkerEnd::kFailed, client.status()};
    default:
      break;
  }
  if (!client.status().ok()) return {WorkerEnd::kFailed, client.status()};
  // This incarnation of the worker has ended and another one has its ranks; no work is lost.
  if (absl::IsAborted(status)) return {WorkerEnd::kFailed, std::move(status)};
  auto answer = client.GetStatus({.timeout = kFailureReportTimeout});
  const auto job = Await(answer, kFailureReportTimeout + kLibraryGrace, leave, "state of the job");
  // A worker that no group accepts does not contribute to the others' training; its ranks go to a
  // worker that does.
  const bool refused = training.replica != nullptr && training.replica->refused();
  if (!ShouldFailJob(status, training.progress != nullptr && !refused,
                     !job.ok() || HasStarted(*job))) {
    const bool others = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    return {others ? WorkerEnd::kFailed : WorkerEnd::kUnable, std::move(status)};
  }
  const absl::Status told = ReportFailure(client, leave, training, status.message());
  // The job had already failed; this worker only saw a consequence.
  if (absl::IsFailedPrecondition(told)) return {WorkerEnd::kFailed, told};
  return {WorkerEnd::kUnable, std::move(status)};
}

}  // namespace

WorkerOutcome RunWorker(const WorkerOptions& options, Interrupt& leave, Interrupt& abandon) {
  auto device = OpenDevice(options.device, options.cuda_math, options.matmul_kernel);
  if (!device.ok()) return {WorkerEnd::kUnable, Annotate(device.status(), "--device")};
  if (options.collectives == CollectivesChoice::kNccl) {
    // Report missing prerequisites at once, not when others already wait for this worker.
    const auto nccl =
        OpenNcclKind(options.collectives, options.device, **device, NcclLibraryPaths());
    if (!nccl.ok()) return {WorkerEnd::kUnable, Annotate(nccl.status(), "--collectives=nccl")};
  }

  ClientOptions client_options;
  client_options.scheduler = options.scheduler;
  client_options.security = options.security;
  client_options.role = WORKER_ROLE;
  client_options.follows_assignment = true;
  client_options.connect_timeout = options.connect_timeout;
  client_options.check_interrupted = [&leave] { return leave.reason(); };
  std::unique_ptr<WorkerIdentity> identity;
  if (!options.data_dir.empty()) {
    auto opened = WorkerIdentity::Open(Env::Real(), options.data_dir);
    if (!opened.ok()) return {WorkerEnd::kUnable, Annotate(opened.status(), "--data_dir")};
    identity = *std::move(opened);
    client_options.node = identity->node();
    client_options.node_job_id = identity->job_id();
    client_options.node_start_count = identity->start_count();
  }
  // Declared before the client, which is destroyed first and whose calls write into it.
  std::unique_ptr<Training> training;
  auto client = Client::Connect(std::move(client_options));
  if (absl::IsUnimplemented(client.status())) return {WorkerEnd::kUnable, client.status()};
  if (!client.ok()) {
    return {leave.reason().ok() ? WorkerEnd::kFailed : WorkerEnd::kInterrupted, client.status()};
  }
  spdlog::info("joined job '{}' as {}", (*client)->job().name(), (*client)->node());
  training = std::make_unique<Training>((*client)->job(), *std::move(device));
  // Leaves such a job unchanged: others may be using its tables.
  if (absl::Status status = CheckHasModel(training->job); !status.ok())
    return {WorkerEnd::kUnable, std::move(status)};
  if (identity != nullptr) {
    // Without the identity a restarted worker only starts later.
    const absl::Status kept = identity->Update((*client)->node(), (*client)->job_id());
    if (!kept.ok())
      spdlog::warn("cannot store this worker's identity in --data_dir: {}", kept.ToString());
  }
  absl::Status status;
  {
    const EndWatcher watcher(**client, leave, training->interrupt, abandon);
    status = Prepare(options, **client, *training, abandon);
    if (status.ok()) status = Train(*training);
  }
  WorkerOutcome outcome = Conclude(**client, leave, *training, std::move(status));
  // Its thread uses the client, and no call of the client borrows its memory.
  training->replica.reset();
  training->group_former.reset();
  client->reset();
  if (training->host != nullptr && !training->host->IsIdle()) {
    // The read may hang. What its thread uses stays until the process ends.
    outcome.is_reading = true;
    static_cast<void>(training.release());
  }
  return outcome;
}

}  // namespace pawl
