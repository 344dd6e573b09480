#include "client_lib/security/security.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/env.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/grpc_log.h"
#include "client_lib/security/rate_limiter.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr int64_t kSecondsPerDay = 86400;
// The log warns of the end of a certificate this long before.
constexpr int64_t kExpiryWarningDays = 7;

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void WarnOfExpiry(const CertificateState& state) {
  const int64_t days = (state.not_after - UnixSeconds()) / kSecondsPerDay;
  if (days < kExpiryWarningDays)
    spdlog::warn("the certificate in --tls_dir expires in {} days", days);
}

void LogReload(const CertificateState& state) {
  if (state.reload_status.ok()) {
    spdlog::info("reloaded the files of --tls_dir");
    WarnOfExpiry(state);
  } else {
    spdlog::error("--tls_dir: the files are not used, and the previous ones stay in use: {}",
                  std::string(state.reload_status.message()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Security>> Security::Open(const SecurityOptions& options,
                                                         RoleSet own_roles, AuditLog* audit) {
  if (options.tls_dir.empty()) {
    if (options.insecure) {
      spdlog::warn(
          "--insecure: connections are neither encrypted nor authenticated; every process that "
          "reaches a port can read the model and stop the job");
    }
    return std::unique_ptr<Security>(new Security(options.insecure, nullptr, audit));
  }
  if (options.insecure) {
    return absl::InvalidArgumentError(
        "--insecure and --tls_dir contradict each other; give one of them");
  }
  TlsCredentials::Options tls_options;
  tls_options.dir = options.tls_dir;
  tls_options.own_roles = own_roles;
  tls_options.unix_seconds = UnixSeconds;
  tls_options.reloaded = LogReload;
  absl::StatusOr<std::unique_ptr<TlsCredentials>> tls =
      TlsCredentials::Open(Env::Real(), std::move(tls_options));
  if (!tls.ok()) return Annotate(tls.status(), "--tls_dir");
  LogGrpcErrors();
  WarnOfExpiry((*tls)->State());
  return std::unique_ptr<Security>(new Security(false, *std::move(tls), audit));
}

Security::Security(bool insecure, std::unique_ptr<TlsCredentials> tls, AuditLog* audit)
    : insecure_(insecure),
      tls_(std::move(tls)),
      quotas_(tls_ == nullptr ? nullptr : std::make_shared<PeerQuotas>(PeerLimits())) {
  if (tls_ == nullptr) return;
  auto limiter = std::make_shared<RateLimiter>(kMaxRefusalsLoggedPerSecond);
  gate_ = std::make_shared<const Gate>(
      tls_->State().identity, [limiter, audit](const Gate::Refusal& refusal) {
        if (!limiter->Allows(Clock::Real().Now())) return;
        if (audit != nullptr) {
          audit->Write({.who = refusal.peer,
                        .from = "",
                        .method = refusal.method,
                        .request = "",
                        .result = absl::PermissionDeniedError(refusal.reason)});
        }
        spdlog::warn("refused {} to {}: {}", refusal.method, refusal.peer, refusal.reason);
      });
}

absl::Status Security::CheckAddresses(absl::string_view flag, absl::string_view addresses) const {
  for (const absl::string_view address : absl::StrSplit(addresses, ',')) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
    if (!parsed.ok()) return Annotate(parsed.status(), absl::StrCat("--", flag));
    if (is_tls() || insecure_ || IsLoopback(parsed->host)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", address,
        " is not on this machine, and connections would be neither encrypted nor "
        "authenticated; set --tls_dir=FOLDER (deploy/tls/make_certificates makes "
        "certificates), or --insecure if everyone who reaches the network is trusted"));
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::ChannelCredentials> Security::To(RoleSet peers) const {
  return is_tls() ? tls_->To(peers) : grpc::InsecureChannelCredentials();
}

ListenerSecurity Security::Listening() const {
  ListenerSecurity listening(is_tls() ? tls_->Listening(gate_) : grpc::InsecureServerCredentials());
  listening.is_tls = is_tls();
  listening.quotas = quotas_;
  listening.figures = figures_;
  return listening;
}

SecurityReport Security::Report() const {
  SecurityReport report;
  report.set_connections(figures_->connections);
  report.set_refused_connections(figures_->refused_connections);
  if (!is_tls()) return report;
  report.set_delayed_calls(quotas_->delayed());
  report.set_calls_over_quota(quotas_->refused());
  const CertificateState state = tls_->State();
  report.set_tls(true);
  report.set_certificate_expires(state.not_after);
  report.set_reload_failure(std::string(state.reload_status.message()));
  report.set_refused_calls(gate_->refused());
  return report;
}

}  // namespace pawl
