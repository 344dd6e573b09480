#include "client_lib/security/security.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/admission/gate_counts.h"
#include "client_lib/security/grpc_log.h"
#include "client_lib/security/identity.h"
#include "client_lib/security/rate_limiter.h"
#include "client_lib/security/tls/memory_files.h"
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
  // Tokens expire after hours; their owners know.
  if (state.is_token) return;
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

// The credentials that are open now, by the files that they read, so that the clients of one
// process share threads and descriptors.
struct OpenCredentials {
  Mutex mu;
  absl::flat_hash_map<std::string, std::weak_ptr<TlsCredentials>> by_files PAWL_GUARDED_BY(mu);
};

// Never destroyed: a Security may end after main.
OpenCredentials& TheOpenCredentials() {
  static auto* const open = new OpenCredentials;
  return *open;
}

absl::StatusOr<std::shared_ptr<TlsCredentials>> OpenOrShare(TlsCredentials::Options options) {
  // Roles are checked when credentials are opened, so only equal ones are shared.
  const std::string key =
      absl::StrCat(options.own_roles.Describe(), " ", options.dir, " ", FileKey(options.dir), " ",
                   options.authorities_file, " ", FileKey(options.authorities_file), " ",
                   options.token_file, " ", options.token);
  OpenCredentials& open = TheOpenCredentials();
  MutexLock lock(open.mu);
  if (const auto found = open.by_files.find(key); found != open.by_files.end()) {
    if (std::shared_ptr<TlsCredentials> shared = found->second.lock(); shared != nullptr)
      return shared;
  }
  PAWL_ASSIGN_OR_RETURN(std::shared_ptr<TlsCredentials> opened,
                        TlsCredentials::Open(Env::Real(), std::move(options)));
  WarnOfExpiry(opened->State());
  absl::erase_if(open.by_files, [](const auto& entry) { return entry.second.expired(); });
  open.by_files[key] = opened;
  return opened;
}

absl::Status CheckContradictions(const SecurityOptions& options) {
  if (options.has_token()) {
    if (options.insecure) {
      return absl::InvalidArgumentError(
          "--insecure and a token (--token_file, PAWL_TOKEN) contradict each other: a token is "
          "sent over TLS only; omit one of them");
    }
    if (options.authorities_file.empty() && options.tls_dir.empty()) {
      return absl::InvalidArgumentError(
          "a token (--token_file, PAWL_TOKEN) is sent over TLS only: set --ca=FILE to the "
          "authorities of the scheduler's certificate, or --tls_dir (PAWL_TLS_DIR) to a folder "
          "with its ca.pem");
    }
    return absl::OkStatus();
  }
  if (!options.authorities_file.empty()) {
    return absl::InvalidArgumentError(
        "--ca goes with a token (--token_file, PAWL_TOKEN); with a certificate the authorities are "
        "in ca.pem of --tls_dir");
  }
  if (options.insecure && !options.tls_dir.empty()) {
    return absl::InvalidArgumentError(
        "--insecure and --tls_dir (or PAWL_TLS_DIR in the environment) contradict each other; give "
        "one of them");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Security>> Security::Open(const SecurityOptions& options,
                                                         RoleSet own_roles, AuditLog* audit) {
  PAWL_RETURN_IF_ERROR(CheckContradictions(options));
  if (options.tls_dir.empty() && !options.has_token()) {
    if (options.insecure) {
      spdlog::warn(
          "--insecure: connections are neither encrypted nor authenticated; every process that "
          "reaches a port can read the model and stop the job");
    }
    return std::unique_ptr<Security>(new Security(options.insecure, nullptr, audit));
  }
  TlsCredentials::Options tls_options;
  tls_options.dir = options.tls_dir;
  tls_options.token = options.token;
  tls_options.token_file = options.token_file;
  if (options.has_token()) {
    tls_options.authorities_file = options.authorities_file.empty()
                                       ? JoinPath(options.tls_dir, kAuthoritiesFile)
                                       : options.authorities_file;
  }
  tls_options.own_roles = own_roles;
  tls_options.unix_seconds = UnixSeconds;
  tls_options.reloaded = LogReload;
  absl::StatusOr<std::shared_ptr<TlsCredentials>> tls = OpenOrShare(std::move(tls_options));
  if (!tls.ok()) return Annotate(tls.status(), options.has_token() ? "token" : "--tls_dir");
  LogGrpcErrors();
  return std::unique_ptr<Security>(new Security(false, *std::move(tls), audit));
}

Security::Security(bool insecure, std::shared_ptr<TlsCredentials> tls, AuditLog* audit)
    : insecure_(insecure),
      tls_(std::move(tls)),
      quotas_(tls_ == nullptr ? nullptr : std::make_shared<PeerQuotas>(PeerLimits())) {
  if (tls_ == nullptr) return;
  auto limiter = std::make_shared<RateLimiter>(kMaxRefusalsLoggedPerSecond);
  gate_ = std::make_shared<const Gate>(
      tls_->State().identity,
      [limiter, audit](const Gate::Refusal& refusal) {
        if (!limiter->Allows(Clock::Real().Now())) return;
        if (audit != nullptr) {
          audit->Write({.who = refusal.peer,
                        .from = "",
                        .method = refusal.method,
                        .request = "",
                        .result = absl::Status(refusal.code, refusal.reason)});
        }
        spdlog::warn("refused {} to {}: {}", refusal.method, refusal.peer, refusal.reason);
      },
      tls_->tokens());
}

absl::Status Security::CheckAddresses(absl::string_view flag, absl::string_view addresses) const {
  const absl::StatusOr<std::vector<HostPort>> parsed = ParseHostPorts(addresses);
  if (!parsed.ok()) return Annotate(parsed.status(), absl::StrCat("--", flag));
  for (const HostPort& address : *parsed) {
    if (is_tls() || insecure_ || IsLoopback(address.host)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", address.host, ":", address.port,
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
  if (is_tls()) {
    listening.revocations = [tls = tls_] { return tls->State().revocations; };
    listening.counting_credentials = [tls = tls_,
                                      gate = gate_](std::shared_ptr<GateCounts> counts) {
      return tls->Listening(gate, std::move(counts));
    };
    // They carry the job: a limit on them would stop it, and who holds their keys can do that too.
    listening.is_trusted = [](const std::vector<std::string>& uris) {
      const absl::StatusOr<Identity> peer = IdentityAmong(uris);
      return peer.ok() && (peer->role == PeerRole::kScheduler || peer->role == PeerRole::kServer);
    };
  }
  listening.quotas = quotas_;
  listening.figures = figures_;
  return listening;
}

std::optional<Identity> Security::identity() const {
  if (!is_tls()) return std::nullopt;
  return tls_->State().identity;
}

SecurityReport Security::Report() const {
  SecurityReport report;
  report.set_connections(figures_->connections);
  report.set_refused_connections(figures_->refused_connections);
  report.set_closed_connections(figures_->closed_connections);
  if (!is_tls()) return report;
  report.set_delayed_calls(quotas_->delayed());
  report.set_calls_over_quota(quotas_->refused());
  const CertificateState state = tls_->State();
  report.set_tls(true);
  if (!state.is_token) report.set_certificate_expires(state.not_after);
  report.set_reload_failure(std::string(state.reload_status.message()));
  report.set_refused_calls(gate_->refused());
  return report;
}

}  // namespace pawl
