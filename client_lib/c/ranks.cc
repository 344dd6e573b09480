// Ranks: taking them over, giving them up, and what they report.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/c/membership.h"

namespace pawl::c {
namespace {

absl::StatusOr<LogicalWorkerAssignment> AssignedRank(Membership& membership, uint32_t rank) {
  const absl::MutexLock lock(&membership.mutex);
  for (const LogicalWorkerAssignment& assigned : membership.assignment.logical_workers()) {
    if (assigned.rank() == rank) return assigned;
  }
  return absl::NotFoundError(
      absl::StrCat("rank ", rank, " is not in the latest answer of pawl_assignment"));
}

absl::StatusOr<LogicalWorkerAssignment> TakenOverRank(Membership& membership, uint32_t rank) {
  const absl::MutexLock lock(&membership.mutex);
  const auto found = membership.taken_over.find(rank);
  if (found != membership.taken_over.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("rank ", rank, " has not been taken over"));
}

}  // namespace
}  // namespace pawl::c

using pawl::c::AsNothing;
using pawl::c::AssignedRank;
using pawl::c::Connected;
using pawl::c::EndsWithJson;
using pawl::c::EndsWithNothing;
using pawl::c::Fail;
using pawl::c::FromJson;
using pawl::c::NotConnected;
using pawl::c::Shared;
using pawl::c::StartClientCall;
using pawl::c::State;
using pawl::c::TakenOverRank;
using pawl::c::Text;
using pawl::c::Timeout;

int pawl_assignment(pawl_client* client, uint64_t newer_than_version, int64_t timeout_ms,
                    pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        pawl::GetAssignmentRequest request;
        request.set_newer_than_version(newer_than_version);
        request.set_ready(true);
        connected.Assignment(std::move(request), Timeout(timeout_ms),
                             [membership = std::move(membership), state = std::move(state)](
                                 const absl::StatusOr<pawl::GetAssignmentResponse>& assignment) {
                               if (assignment.ok()) {
                                 const absl::MutexLock lock(&membership->mutex);
                                 membership->assignment = *assignment;
                               }
                               EndsWithJson<pawl::GetAssignmentResponse>(state)(assignment);
                             });
        return absl::OkStatus();
      });
}

int pawl_take_over(pawl_client* client, uint32_t rank, int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(const pawl::LogicalWorkerAssignment assigned,
                              AssignedRank(*membership, rank));
        connected.TakeOver(assigned, Timeout(timeout_ms),
                           [membership = std::move(membership), state = std::move(state),
                            assigned](const absl::StatusOr<pawl::LogicalWorker*>& session) {
                             if (session.ok()) {
                               const uint32_t rank = assigned.rank();
                               const absl::MutexLock lock(&membership->mutex);
                               membership->taken_over[rank] = assigned;
                               membership->ranks[rank] = std::make_unique<pawl_session>(
                                   pawl_session{membership.get(), *session, *session});
                             }
                             state->End(AsNothing(session.status()));
                           });
        return absl::OkStatus();
      });
}

pawl_session* pawl_rank(pawl_client* client, uint32_t rank) {
  if (client == nullptr) return nullptr;
  const absl::MutexLock lock(&client->membership->mutex);
  const auto found = client->membership->ranks.find(rank);
  return found == client->membership->ranks.end() ? nullptr : found->second.get();
}

void pawl_close_rank(pawl_client* client, uint32_t rank) {
  pawl::Client* const connected = Connected(client);
  if (connected == nullptr) return;
  connected->CloseLogicalWorker(rank);
  const absl::MutexLock lock(&client->membership->mutex);
  client->membership->ranks.erase(rank);
}

int pawl_give_up_ranks(pawl_client* client, const uint32_t* ranks, size_t count, int64_t timeout_ms,
                       pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared membership, State state) -> absl::Status {
        if (ranks == nullptr && count > 0) return absl::InvalidArgumentError("an array is NULL");
        pawl::GiveUpRanksRequest request;
        for (size_t i = 0; i < count; ++i) {
          PAWL_ASSIGN_OR_RETURN(*request.add_logical_workers(),
                                TakenOverRank(*membership, ranks[i]));
        }
        connected.GiveUpRanks(request, Timeout(timeout_ms),
                              [membership = std::move(membership), state = std::move(state),
                               request](const absl::Status& given_up) {
                                if (given_up.ok()) {
                                  const absl::MutexLock lock(&membership->mutex);
                                  for (const auto& rank : request.logical_workers())
                                    membership->taken_over.erase(rank.rank());
                                }
                                state->End(AsNothing(given_up));
                              });
        return absl::OkStatus();
      });
}

int pawl_finish_rank(pawl_client* client, uint32_t rank, const char* progress_json,
                     int64_t timeout_ms, pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(const pawl::WorkerProgress progress,
                              FromJson<pawl::WorkerProgress>(progress_json, "progress_json"));
        const uint32_t ranks[] = {rank};
        connected.FinishWork(progress, Timeout(timeout_ms), ranks,
                             EndsWithNothing(std::move(state)));
        return absl::OkStatus();
      });
}

int pawl_report_progress(pawl_client* client, const char* progress_json) {
  pawl::Client* const connected = Connected(client);
  if (connected == nullptr) return Fail(NotConnected());
  const absl::StatusOr<pawl::WorkerProgress> progress =
      FromJson<pawl::WorkerProgress>(progress_json, "progress_json");
  if (!progress.ok()) return Fail(progress.status());
  connected->SetProgress(*progress);
  return PAWL_OK;
}

int pawl_log_metric(pawl_client* client, const char* name, uint64_t step, double value) {
  pawl::Client* const connected = Connected(client);
  if (connected == nullptr) return Fail(NotConnected());
  const absl::Status logged = connected->LogMetric(Text(name), step, value);
  return logged.ok() ? PAWL_OK : Fail(logged);
}

int pawl_report_evaluation(pawl_client* client, const char* report_json, int64_t timeout_ms,
                           pawl_call** call) {
  return StartClientCall(
      client, call, [&](pawl::Client& connected, Shared, State state) -> absl::Status {
        PAWL_ASSIGN_OR_RETURN(pawl::ReportEvaluationRequest report,
                              FromJson<pawl::ReportEvaluationRequest>(report_json, "report_json"));
        connected.ReportEvaluation(std::move(report), Timeout(timeout_ms),
                                   EndsWithJson<pawl::ReportEvaluationResponse>(std::move(state)));
        return absl::OkStatus();
      });
}
