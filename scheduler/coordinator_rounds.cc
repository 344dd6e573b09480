// What the Coordinator asks of servers, and what it does with their answers.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/rpc/retry.h"
#include "scheduler/coordinator.h"
#include "scheduler/digest.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

std::string EvaluationText(const EvaluationResult& result) {
  std::string text =
      absl::StrCat("evaluation ", result.evaluation(), " at step ", result.step(), ", ", result.samples(), " samples:");
  if (result.has_auc()) absl::StrAppend(&text, absl::StrFormat(" auc %.5f", result.auc()));
  if (result.has_logloss()) absl::StrAppend(&text, absl::StrFormat(" logloss %.5f", result.logloss()));
  if (result.has_accuracy()) absl::StrAppend(&text, absl::StrFormat(" accuracy %.5f", result.accuracy()));
  if (result.has_rmse()) absl::StrAppend(&text, absl::StrFormat(" rmse %.5f", result.rmse()));
  return text;
}

// A message without fields, where an answer says nothing.
struct Nothing {};

}  // namespace

ServerRounds::Ask Coordinator::AskBy(std::function<void(const ServerRounds::Question&, ServerCaller::Done)> call) {
  return AskBy<Nothing>(
      [call = std::move(call)](const ServerRounds::Question& question,
                               absl::AnyInvocable<void(absl::StatusOr<Nothing>)> done) {
        call(question, [done = std::move(done)](const absl::Status& status) mutable {
          if (status.ok()) {
            done(Nothing());
          } else {
            done(status);
          }
        });
      },
      [](const ServerRounds::Question&, Nothing) {});
}

void Coordinator::CreateTableOnServers(uint32_t table, DeferredActions& actions) {
  CreateTableOnServerRequest request;
  request.set_job_id(options_.job_id);
  *request.mutable_table() = tables_.Find(table)->spec;
  rounds_.Start(
      absl::StrCat("creating table ", request.table().name()), running_.Now(), kCreateTableTimeout,
      AskBy([this, request](const ServerRounds::Question& question, ServerCaller::Done done) {
        CreateTableOnServerRequest asked = request;
        asked.set_routing_epoch(question.epoch);
        servers_.CreateTable(question.address, asked, question.timeout, std::move(done));
      }),
      [this, request](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        const TableSpec& spec = request.table();
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
        table_calls_.AnswerIf([&](uint32_t id) { return id == spec.id(); }, answer, actions);
      },
      actions);
}

void Coordinator::ReleaseOnServers(const std::vector<LogicalWorkers::FreeRank>& ranks, DeferredActions& actions) {
  if (options_.job.consistency().mode() == SYNC || !servers_are_ready()) return;
  const std::vector<LogicalWorkers::FreeRank> free = logical_workers_.FreeRanks();
  for (const LogicalWorkers::FreeRank& rank : ranks) {
    const bool still_free = std::any_of(free.begin(), free.end(), [&](const LogicalWorkers::FreeRank& other) {
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
  rounds_.Start(
      absl::StrCat("releasing rank ", rank.rank), running_.Now(), kReleaseTimeout,
      AskBy([this, request](const ServerRounds::Question& question, ServerCaller::Done done) {
        ReleaseLogicalWorkerRequest asked = request;
        asked.set_routing_epoch(question.epoch);
        servers_.ReleaseLogicalWorker(question.address, asked, question.timeout, std::move(done));
      }),
      [this, rank](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (status.ok()) {
          spdlog::info("rank {} holds nobody back until it has a host again", rank.rank);
          return;
        }
        spdlog::warn("{}", status.ToString());
        // Anything else is no matter of waiting: a successor has taken over, or the server's mode knows no release.
        if (IsPassing(status)) ReleaseOnServers(std::vector<LogicalWorkers::FreeRank>{rank}, actions);
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
  request.set_evaluation(result.evaluation());
  rounds_.Start(
      "keeping the best parameters", running_.Now(), TimeToRead(kKeepBestTimeout),
      AskBy([this, request](const ServerRounds::Question& question, ServerCaller::Done done) {
        KeepBestRequest asked = request;
        asked.set_routing_epoch(question.epoch);
        servers_.KeepBest(question.address, asked, question.timeout, std::move(done));
      }),
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
  evaluation_calls_.AnswerIf([&](uint64_t evaluation) { return evaluation == result.evaluation(); }, response, actions);
}

MonotonicDuration Coordinator::TimeToRead(MonotonicDuration least) const {
  uint64_t bytes = 0;
  for (const Node* server : membership_.Present(SERVER_ROLE)) bytes = std::max(bytes, server->counters.parameter_bytes());
  return least + std::chrono::seconds(bytes / kLeastBytesPerSecondRead);
}

void Coordinator::FinishOnServers(DeferredActions& actions) {
  if (!evaluations_.best_is_kept()) {
    CheckpointEnd(actions);
    return;
  }
  RestoreBestRequest request;
  request.set_job_id(options_.job_id);
  rounds_.Start(
      "restoring the best parameters", running_.Now(), TimeToRead(kKeepBestTimeout),
      AskBy([this, request](const ServerRounds::Question& question, ServerCaller::Done done) {
        RestoreBestRequest asked = request;
        asked.set_routing_epoch(question.epoch);
        servers_.RestoreBest(question.address, asked, question.timeout, std::move(done));
      }),
      [this](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        spdlog::info("restored the parameters of evaluation {}", evaluations_.FinalResult()->evaluation());
        CheckpointEnd(actions);
      },
      actions);
}

void Coordinator::InspectServers(bool digest, Inspected done, DeferredActions& actions) {
  InspectRequest request;
  request.set_job_id(options_.job_id);
  request.set_digest(digest);
  // Of the newest attempt, by server; changed under the lock.
  struct Answers {
    uint64_t attempt = 0;
    std::map<size_t, InspectResponse> by_server;
  };
  auto answers = std::make_shared<Answers>();
  rounds_.Start(
      digest ? "inspecting" : "reading the counters", running_.Now(), digest ? TimeToRead(kInspectTimeout) : kInspectTimeout,
      AskBy<InspectResponse>(
          [this, request](const ServerRounds::Question& question, ServerCaller::InspectDone done) {
            InspectRequest asked = request;
            asked.set_routing_epoch(question.epoch);
            servers_.Inspect(question.address, asked, question.timeout, std::move(done));
          },
          [answers](const ServerRounds::Question& question, InspectResponse answer) {
            if (answers->attempt != question.attempt) *answers = {question.attempt, {}};
            answers->by_server[question.server] = std::move(answer);
          }),
      [this, answers, done = std::move(done)](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        std::vector<InspectResponse> all;
        for (auto& [server, answer] : answers->by_server) all.push_back(std::move(answer));
        done(all, actions);
      },
      actions);
}

void Coordinator::GatherResult(DeferredActions& actions) {
  InspectServers(
      /*digest=*/true,
      [this](const std::vector<InspectResponse>& answers, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        std::map<uint32_t, std::string> names;
        for (const TableCatalogue::Entry* table : tables_.All()) names[table->spec.id()] = table->spec.name();
        ServerCounters counters;
        std::vector<PartitionDigest> digests;
        for (const InspectResponse& answer : answers) {
          AddCounters(answer.counters(), counters);
          digests.insert(digests.end(), answer.digests().begin(), answer.digests().end());
        }
        const absl::StatusOr<uint32_t> digest = CombineDigests(names, digests);
        if (!digest.ok()) {
          FailJob(std::string(digest.status().message()), actions);
          return;
        }
        digest_ = *digest;
        final_counters_ = counters;
        spdlog::info("digest {}", DigestText(*digest));
        ReportResult(actions);
      },
      actions);
}

void Coordinator::ReportResult(DeferredActions& actions) {
  settled_ = true;
  JobReport report = Report();
  report.status.set_state(COMPLETED);
  actions.Add([this, report = std::move(report)] {
    ReportIsWritten(options_.write_report == nullptr ? absl::OkStatus() : options_.write_report(report));
  });
}

}  // namespace pawl
