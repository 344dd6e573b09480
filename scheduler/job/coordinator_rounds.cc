// What the Coordinator asks of servers, and what it does with their answers.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/rpc/retry.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

std::string EvaluationText(const EvaluationResult& result) {
  std::string text = absl::StrCat("evaluation ", result.evaluation(), " at step ", result.step(),
                                  ", ", result.samples(), " samples:");
  if (result.has_auc()) absl::StrAppend(&text, absl::StrFormat(" auc %.5f", result.auc()));
  if (result.has_logloss())
    absl::StrAppend(&text, absl::StrFormat(" logloss %.5f", result.logloss()));
  if (result.has_accuracy())
    absl::StrAppend(&text, absl::StrFormat(" accuracy %.5f", result.accuracy()));
  if (result.has_rmse()) absl::StrAppend(&text, absl::StrFormat(" rmse %.5f", result.rmse()));
  return text;
}

}  // namespace

void Coordinator::CreateTableOnServers(uint32_t table, DeferredActions& actions) {
  CreateTableOnServerRequest request;
  request.set_job_id(options_.job_id);
  *request.mutable_table() = tables_.Find(table)->spec;
  rounds_.Ask(
      absl::StrCat("creating table ", request.table().name()),
      {running_.Now(), kCreateTableTimeout}, request, &ServerCaller::CreateTable,
      [this, request](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        const TableSpec& spec = request.table();
        if (IsPassing(status)) {
          // Servers may have it: under another id it would be another table, with fresh parameters.
          spdlog::warn("table {} is not created yet, and asked for again: {}", spec.name(),
                       status.ToString());
          CreateTableOnServers(spec.id(), actions);
          return;
        }
        if (!status.ok() && restore_.has_value() && spec.id() <= restore_->last_table()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        absl::StatusOr<CreateTableResponse> answer = CreateTableResponse();
        if (status.ok()) {
          tables_.MarkReady(spec.id());
          spdlog::info("table {}: {} {}", spec.id(), spec.name(), TableKind_Name(spec.kind()));
          *answer->mutable_table() = spec;
        } else {
          answer = status;
          tables_.Remove(spec.id());
          spdlog::warn("table {}: {}", spec.id(), status.ToString());
        }
        gate_.Changed();
        pending_.tables.AnswerIf([&](uint32_t id) { return id == spec.id(); }, answer, actions);
      },
      actions);
}

void Coordinator::ReleaseOnServers(const std::vector<LogicalWorkers::FreeRank>& ranks,
                                   DeferredActions& actions) {
  if (options_.job.consistency().mode() == SYNC || !servers_are_ready()) return;
  const std::vector<LogicalWorkers::FreeRank> free = logical_workers_.FreeRanks();
  for (const LogicalWorkers::FreeRank& rank : ranks) {
    const bool still_free =
        std::any_of(free.begin(), free.end(), [&](const LogicalWorkers::FreeRank& other) {
          return other.rank == rank.rank && other.incarnation == rank.incarnation;
        });
    if (still_free) ReleaseOnServers(rank, actions);
  }
}

void Coordinator::ReleaseOnServers(const LogicalWorkers::FreeRank& rank, DeferredActions& actions) {
  ReleaseLogicalWorkerRequest request;
  request.set_job_id(options_.job_id);
  request.set_logical_worker(rank.rank);
  request.set_incarnation(rank.incarnation);
  rounds_.Ask(
      absl::StrCat("releasing rank ", rank.rank), {running_.Now(), kReleaseTimeout}, request,
      &ServerCaller::ReleaseLogicalWorker,
      [this, rank](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (status.ok()) {
          spdlog::info("rank {} holds nobody back until it has a host again", rank.rank);
          return;
        }
        spdlog::warn("{}", status.ToString());
        // Anything else is no matter of waiting: a successor has taken over, or the server's mode
        // knows no release.
        if (IsPassing(status))
          ReleaseOnServers(std::vector<LogicalWorkers::FreeRank>{rank}, actions);
      },
      actions);
}

void Coordinator::EvaluationIsComplete(const EvaluationInput& input) {
  // Sorting millions of scores takes seconds, in which nobody's heartbeat must wait.
  const EvaluationResult result = ComputeEvaluation(input, options_.job.model().loss());
  Section section(*this);
  if (state_.over()) return;
  spdlog::info("{}", EvaluationText(result));
  const EarlyStoppingPolicy::Decision decision = evaluations_.Observe(result);
  if (decision.stop) spdlog::info("early stopping after evaluation {}", result.evaluation());
  if (!decision.improved) {
    PublishEvaluation(result, section.actions());
    return;
  }
  KeepBestRequest request;
  request.set_job_id(options_.job_id);
  request.set_step(result.step());
  rounds_.Ask(
      "keeping the best parameters", {running_.Now(), TimeToRead(kKeepBestTimeout)}, request,
      &ServerCaller::KeepBest,
      [this, result](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        evaluations_.BestIsKept();
        PublishEvaluation(result, actions);
      },
      section.actions());
}

void Coordinator::PublishEvaluation(const EvaluationResult& result, DeferredActions& actions) {
  evaluations_.Publish(result);
  gate_.Changed();
  ReportEvaluationResponse response;
  *response.mutable_result() = result;
  response.set_stop(evaluations_.stop_training());
  pending_.evaluations.AnswerIf(
      [&](uint64_t evaluation) { return evaluation == result.evaluation(); }, response, actions);
}

MonotonicDuration Coordinator::TimeToRead(MonotonicDuration least) const {
  uint64_t bytes = 0;
  for (const Node* server : membership_.Present(SERVER_ROLE))
    bytes += server->counters.parameter_bytes();
  return least + std::chrono::seconds(bytes / kLeastBytesPerSecondRead);
}

}  // namespace pawl
