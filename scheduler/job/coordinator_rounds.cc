// Calls to all servers, and what follows from their answers.
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client_lib/rpc/retry.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {

void Coordinator::CreateTableOnServers(uint32_t table, DeferredActions& actions) {
  CreateTableOnServerRequest request;
  request.set_job_id(options_.job_id);
  *request.mutable_table() = tables_.Find(table)->spec;
  rounds_.Ask(
      absl::StrCat("creating table ", request.table().name()),
      {running_.Now(), kCreateTableTimeout}, kCreateTableRpc, request,
      [this, request](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        const TableSpec& spec = request.table();
        if (IsTransientError(status)) {
          // Some servers may have created it: a retry under another id would start with fresh
          // parameters.
          spdlog::warn("table {} is not created yet; trying again: {}", spec.name(),
                       status.ToString());
          CreateTableOnServers(spec.id(), actions);
          return;
        }
        const std::optional<StoredRestore>& restored = checkpoints_.restored_from();
        if (!status.ok() && restored.has_value() && spec.id() <= restored->last_table()) {
          FailJob(status.message(), actions);
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
        gate_.OnChange();
        pending_.tables.AnswerKey(spec.id(), answer, actions);
      },
      actions);
}

void Coordinator::PrepareServers(bool all_tables, DeferredActions& actions) {
  for (const TableCatalogue::Entry* entry : tables_.All()) {
    if (all_tables || !entry->ready) CreateTableOnServers(entry->spec.id(), actions);
  }
  ReleaseOnServers(ranks_.RanksToRelease(), actions);
}

void Coordinator::ReleaseOnServers(const std::vector<FreeRank>& ranks, DeferredActions& actions) {
  if (options_.job.consistency().mode() == SYNC || !servers_ready()) return;
  const std::vector<FreeRank> due = ranks_.RanksToRelease();
  for (const FreeRank& rank : ranks) {
    if (absl::c_linear_search(due, rank)) ReleaseOnServers(rank, actions);
  }
}

void Coordinator::ReleaseOnServers(const FreeRank& rank, DeferredActions& actions) {
  ReleaseLogicalWorkerRequest request;
  request.set_job_id(options_.job_id);
  request.set_logical_worker(rank.rank);
  request.set_incarnation(rank.incarnation);
  rounds_.Ask(
      absl::StrCat("releasing rank ", rank.rank), {running_.Now(), kReleaseTimeout},
      kReleaseLogicalWorkerRpc, request,
      [this, rank](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (status.ok()) {
          spdlog::info("rank {} is released: others do not wait for it", rank.rank);
          return;
        }
        spdlog::warn("{}", status.ToString());
        // Other errors do not pass: a successor has taken over, or the server's mode has no
        // release.
        if (IsTransientError(status)) ReleaseOnServers(std::vector<FreeRank>{rank}, actions);
      },
      actions);
}

void Coordinator::LoadOnServers(DeferredActions& actions) {
  LoadCheckpointRequest request;
  request.set_job_id(options_.job_id);
  request.set_dir(checkpoints_.restored_from()->dir());
  request.set_name(checkpoints_.restored_from()->name());
  rounds_.Ask(
      "loading the checkpoint", {running_.Now(), kLoadTimeout}, kLoadCheckpointRpc, request,
      [this, name = request.name()](const absl::Status& status, DeferredActions& actions)
          PAWL_REQUIRES(mu_) {
            if (FailIfError(status, actions)) return;
            checkpoints_.OnLoaded();
            starts_from_ = running_.Now();
            gate_.OnChange();
            replan_ = true;
            spdlog::info("all partitions are loaded from the checkpoint {}", name);
            // Creates the tables that were incomplete at the cut or are new; existing ones stay.
            PrepareServers(/*all_tables=*/true, actions);
            for (const Node* worker : membership_.Present(WORKER_ROLE))
              AnswerAssignment(worker->name, actions);
            MaybeStartJob();
          },
      actions);
}

MonotonicDuration Coordinator::ReadTimeout(MonotonicDuration least) const {
  uint64_t bytes = 0;
  for (const Node* server : membership_.Present(SERVER_ROLE))
    bytes += server->counters.parameter_bytes();
  return least + std::chrono::seconds(bytes / kMinReadBytesPerSecond);
}

}  // namespace pawl
