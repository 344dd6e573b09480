#include "tests/chaos/storm/storm_check.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/grpcpp.h"
#include "proto/server_control.grpc.pb.h"
#include "tests/chaos/storm/bulk_table.h"
#include "tests/chaos/storm/replica_agreement.h"
#include "tests/harness/ledger/ledger_driver.h"
#include "tests/harness/ledger/ledger_sender.h"
#include "tests/harness/plain_client.h"

namespace pawl {
namespace {

// The timeout of a call that reads all parameters of a server.
constexpr std::chrono::seconds kInspectTimeout{30};
// The time for idle replicas to become equal.
constexpr std::chrono::seconds kSettleLimit{15};
constexpr std::chrono::milliseconds kSettleInterval{200};
constexpr uint64_t kBallastRowsInPull = 256;

template <typename Call>
absl::Status Control(ProcessCluster& cluster, const std::string& server, const Call& call) {
  const auto stub = ServerControl::NewStub(grpc::CreateCustomChannel(
      cluster.proxy(server).address(), cluster.security().To(RoleSet(PeerRole::kServer)),
      ChannelSettings(ChannelKind::kBulk)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kInspectTimeout);
  context.set_wait_for_ready(true);
  return ToAbslStatus(call(*stub, context));
}

}  // namespace

absl::Status StormCheck::CheckRows(Client& client, const Ledger& ledger) {
  if (options_.bulk_rows > 0) {
    PAWL_ASSIGN_OR_RETURN(const uint64_t bad, CountBadBulkRows(client, options_.bulk_rows));
    if (bad > 0)
      violation_(absl::StrCat(bad, " of the ", options_.bulk_rows,
                              " rows of the bulk table have changed"));
  }
  PAWL_ASSIGN_OR_RETURN(const Table table, client.OpenTable("ledger").get());
  job_id_ = client.job_id();
  LedgerScope scope = ScopeOf(ledger, options_.partitions, options_.row_width);
  if (options_.mode == SYNC) scope.unit = 1.0f / static_cast<float>(options_.senders);
  LedgerDigest digest(table.id(), options_.partitions);
  PAWL_ASSIGN_OR_RETURN(const LedgerVerdict verdict,
                        CheckLedger(ledger, scope,
                                    digest.Recording(ReadThrough(client.free_running(), table,
                                                                 options_.partitions))));
  report_.rows_applied = verdict.applied;
  report_.rows_lost = verdict.lost;
  report_.rows_doubled = verdict.doubled;
  report_.unknown_applied = verdict.unknown_applied;
  report_.unknown_not_applied = verdict.unknown_not_applied;
  for (const std::string& violation : verdict.violations) violation_(violation);
  if (verdict.violation_count > verdict.violations.size()) {
    violation_(absl::StrCat(verdict.violation_count - verdict.violations.size(), " more rows"));
  }
  PAWL_ASSIGN_OR_RETURN(const uint64_t ballast, CountBallast(client));
  // Each bulk row was pushed once.
  return CompareDigests(digest, table.id(), verdict.applied + options_.bulk_rows + ballast);
}

absl::StatusOr<uint64_t> StormCheck::CountBallast(Client& client) {
  if (ballast_rows_ == 0) return 0;
  const auto opened = client.OpenTable(BallastTable().name()).get();
  // The senders have died before they pushed.
  if (absl::IsNotFound(opened.status())) return 0;
  PAWL_RETURN_IF_ERROR(opened.status());
  uint64_t applied = 0;
  for (uint64_t first = 0; first < ballast_rows_; first += kBallastRowsInPull) {
    std::vector<uint64_t> keys(std::min(kBallastRowsInPull, ballast_rows_ - first));
    std::iota(keys.begin(), keys.end(), first);
    std::vector<float> values(keys.size() * opened->row_width());
    PAWL_RETURN_IF_ERROR(
        client.free_running()
            .Pull({{.table = *opened, .keys = keys, .values = absl::MakeSpan(values)}},
                  {.timeout = kInspectTimeout})
            .get());
    for (size_t i = 0; i < values.size(); i += opened->row_width())
      applied += static_cast<uint64_t>(values[i]);
  }
  return applied;
}

absl::StatusOr<std::map<std::string, InspectResponse>> StormCheck::InspectServers() {
  const MonotonicTime deadline = Clock::Real().Now() + kSettleLimit;
  while (true) {
    PAWL_ASSIGN_OR_RETURN(const GetStatusResponse before, cluster_.GetStatus());
    std::map<std::string, InspectResponse> responses;
    for (const std::string& server : servers_) {
      InspectRequest request;
      request.set_job_id(job_id_);
      request.set_digest(true);
      PAWL_RETURN_IF_ERROR(
          Annotate(Control(cluster_, server,
                           [&](ServerControl::Stub& stub, grpc::ClientContext& context) {
                             return stub.Inspect(&context, request, &responses[server]);
                           }),
                   server));
    }
    // A partition that is handed over meanwhile is counted by both of its primaries, or by none.
    PAWL_ASSIGN_OR_RETURN(const GetStatusResponse after, cluster_.GetStatus());
    if (before.routing_epoch() == after.routing_epoch() || Clock::Real().Now() >= deadline)
      return responses;
    std::this_thread::sleep_for(kSettleInterval);
  }
}

absl::Status StormCheck::CompareDigests(const LedgerDigest& digest, uint32_t table,
                                        uint64_t applied) {
  std::map<uint32_t, LedgerDigest::Record> reported;
  uint64_t counted = 0;
  PAWL_ASSIGN_OR_RETURN(const auto responses, InspectServers());
  for (const auto& [server, response] : responses) {
    counted += response.counters().keys_pushed();
    report_.pushes_deduplicated += response.counters().pushes_deduplicated();
    for (const PartitionDigest& partition : response.digests()) {
      if (partition.table() != table || partition.rows() == 0) continue;
      const LedgerDigest::Record record = {partition.crc32c(), partition.rows()};
      const bool first = reported.emplace(partition.partition(), record).second;
      if (!first && !(reported[partition.partition()] == record)) {
        violation_(absl::StrCat("partition ", partition.partition(), ": ", server,
                                " has replicas with different digests"));
      }
    }
  }
  const auto expected = digest.Records();
  for (uint32_t partition = 0; partition < options_.partitions; ++partition) {
    const auto of_rows = expected.find(partition);
    const auto of_server = reported.find(partition);
    const bool equal = (of_rows == expected.end()) == (of_server == reported.end()) &&
                       (of_rows == expected.end() || of_rows->second == of_server->second);
    if (!equal) {
      violation_(absl::StrCat("partition ", partition,
                              ": the server's digest differs from that of the rows read from it"));
    }
    report_.digests_compared += equal;
  }
  if (counted != applied) {
    violation_(absl::StrCat("the servers counted ", counted, " applied rows, and the tables show ",
                            applied));
  }
  return absl::OkStatus();
}

absl::Status StormCheck::CheckReplicas() {
  if (options_.replicas < 2) return absl::OkStatus();
  const MonotonicTime deadline = Clock::Real().Now() + kSettleLimit;
  ReplicaAgreement agreement;
  do {
    std::map<std::string, FingerprintResponse> answers;
    for (const std::string& server : servers_) {
      FingerprintRequest request;
      request.set_job_id(job_id_);
      PAWL_RETURN_IF_ERROR(
          Annotate(Control(cluster_, server,
                           [&](ServerControl::Stub& stub, grpc::ClientContext& context) {
                             return stub.Fingerprint(&context, request, &answers[server]);
                           }),
                   server));
    }
    agreement = CompareReplicas(answers, options_.partitions, options_.replicas);
    if (!agreement.problems.empty()) std::this_thread::sleep_for(kSettleInterval);
  } while (!agreement.problems.empty() && Clock::Real().Now() < deadline);
  report_.replicas_compared = agreement.compared;
  for (const std::string& problem : agreement.problems) violation_(problem);
  return absl::OkStatus();
}

}  // namespace pawl
