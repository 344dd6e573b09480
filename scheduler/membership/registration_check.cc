#include "scheduler/membership/registration_check.h"

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "client_lib/rpc/version.h"

namespace pawl {
namespace {

// OK if other nodes can reach a server at this address.
absl::Status CheckAddress(const std::string& address) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (address.size() > kMaxAddressBytes || !parsed.ok() || parsed->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("address is '", BoundedText(address, kMaxAddressBytes),
                     "'; a server's must be host:port with a port from 1 to 65535"));
  }
  if (parsed->IsWildcard()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address is '", address,
        "', which means all addresses of a machine and "
        "cannot be reached; give the server an address that others reach (--advertise)"));
  }
  return absl::OkStatus();
}

std::string VersionText(const RegisterRequest& request) {
  return request.version().empty() ? "of an unknown version"
                                   : BoundedText(request.version(), kMaxVersionBytes);
}

absl::Status CheckProtocol(const RegisterRequest& request, ProtocolRange own) {
  return CommonProtocol(
             {request.oldest_protocol(), request.newest_protocol()},
             absl::StrCat("the process that registers (Pawl ", VersionText(request), ")"), own)
      .status();
}

}  // namespace

absl::Status CheckServerProtocol(const RegisterRequest& request) {
  if (request.role() != SERVER_ROLE) return absl::OkStatus();
  return CheckProtocol(request, {.oldest = kOldestServerProtocol});
}

absl::Status CheckWorkerProtocol(const RegisterRequest& request, const Job& job) {
  if (request.role() != WORKER_ROLE || request.newest_protocol() >= kStepPhasesProtocol)
    return absl::OkStatus();
  const auto refused = [&](absl::string_view setting, absl::string_view way_out) {
    return absl::UnimplementedError(absl::StrCat(
        "the job's ", setting, ", which needs workers with protocol ", kStepPhasesProtocol,
        "; the newest protocol of this one (Pawl ", VersionText(request), ") is ",
        std::max(request.newest_protocol(), kOldestProtocol),
        ": run a newer version of pawl-worker, or ", way_out));
  };
  // An older worker would end steps and close none, and the others would wait for it.
  if (job.clip_global_norm() != 0) {
    return refused(absl::StrCat("clip_global_norm is ", job.clip_global_norm()),
                   "set clip_global_norm to 0");
  }
  // An older worker would wait at a barrier before each evaluation, and not report its arrival.
  if (job.has_model() && job.data().eval_size() > 0 && !IsSync(job.consistency().mode())) {
    return refused(absl::StrCat("data.eval is set and its consistency.mode is ",
                                ConsistencyMode_Name(job.consistency().mode())),
                   "clear data.eval");
  }
  return absl::OkStatus();
}

absl::Status CheckRegistration(const RegisterRequest& request) {
  if (request.role() != SERVER_ROLE && request.role() != WORKER_ROLE &&
      request.role() != CLIENT_ROLE) {
    return absl::InvalidArgumentError(
        absl::StrCat("role is ", static_cast<int>(request.role()),
                     "; it must be SERVER_ROLE, WORKER_ROLE or CLIENT_ROLE"));
  }
  if (request.process_nonce() == 0) {
    return absl::InvalidArgumentError("process_nonce is 0; choose a random one per process");
  }
  PAWL_RETURN_IF_ERROR(CheckProtocol(request, ProtocolRange()));
  if (request.version().size() > kMaxVersionBytes || HasControlCharacters(request.version())) {
    return absl::InvalidArgumentError(absl::StrCat("version is longer than ", kMaxVersionBytes,
                                                   " bytes or has control characters"));
  }
  if (request.description().size() > kMaxDescriptionBytes) {
    return absl::InvalidArgumentError(absl::StrCat("description has ", request.description().size(),
                                                   " bytes; at most ", kMaxDescriptionBytes,
                                                   " are possible"));
  }
  // Both are printed on terminals and in logs.
  if (HasControlCharacters(request.description()) || HasControlCharacters(request.zone())) {
    return absl::InvalidArgumentError("description or zone has control characters");
  }
  if (request.role() == SERVER_ROLE) {
    PAWL_RETURN_IF_ERROR(CheckAddress(request.address()));
  } else if (!request.address().empty()) {
    return absl::InvalidArgumentError("address is set; only a server has one");
  }
  if (request.role() != SERVER_ROLE && request.has_held_job()) {
    return absl::InvalidArgumentError("held_job is set; only a server holds a job");
  }
  if (request.data_damaged() && (request.role() != SERVER_ROLE || request.recovered_size() > 0)) {
    return absl::InvalidArgumentError(
        "data_damaged is set; only a server that has recovered nothing sets it");
  }
  if (request.role() != SERVER_ROLE && request.recovered_size() > 0) {
    return absl::InvalidArgumentError("recovered is set; only a server has replicas");
  }
  if (request.node().size() > kMaxNodeNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("node has ", request.node().size(),
                                                   " bytes; at most ", kMaxNodeNameBytes,
                                                   " are possible"));
  }
  if (request.role() != SERVER_ROLE && !request.zone().empty()) {
    return absl::InvalidArgumentError("zone is set; only a server has one");
  }
  if (request.zone().size() > kMaxZoneBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "zone has ", request.zone().size(), " bytes; at most ", kMaxZoneBytes, " are possible"));
  }
  if (request.role() != WORKER_ROLE && request.logical_workers_size() > 0) {
    return absl::InvalidArgumentError("logical_workers is set; only a worker hosts ranks");
  }
  return absl::OkStatus();
}

}  // namespace pawl
