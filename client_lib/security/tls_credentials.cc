#include "client_lib/security/tls_credentials.h"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/security/tls/memory_files.h"
#include "client_lib/security/tls/revocation_lists.h"
#include "client_lib/security/token/token_files.h"
#include "client_lib/security/token/token_source.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace pawl {
namespace {

namespace tls = grpc::experimental;

// How often gRPC looks at the checked files, in seconds; the least it accepts.
constexpr unsigned int kProviderInterval = 1;
// The time after which gRPC has seen a change of its files for sure.
constexpr std::chrono::seconds kProviderDelay{2 * kProviderInterval};

// Accepts peers of the same job with one of the roles, whatever their host.
class PeerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  PeerVerifier(Identity own, RoleSet roles) : own_(std::move(own)), roles_(roles) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names())
      uris.emplace_back(uri.data(), uri.size());
    *sync_status = Check(uris);
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  grpc::Status Check(const std::vector<std::string>& uris) const {
    const auto refuse = [](const std::string& why) {
      return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, why);
    };
    const absl::StatusOr<Identity> peer = IdentityAmong(uris);
    if (!peer.ok()) return refuse(std::string(peer.status().message()));
    if (!peer->IsSameJobAs(own_)) {
      return refuse(absl::StrCat("the peer's certificate ", peer->Uri(), " is not one of job ",
                                 own_.job, " of ", own_.trust_domain));
    }
    if (!roles_.Contains(peer->role)) {
      return refuse(absl::StrCat("the peer's certificate ", peer->Uri(), " has not the role ",
                                 roles_.Describe()));
    }
    return grpc::Status::OK;
  }

  const Identity own_;
  const RoleSet roles_;
};

class GateProcessor final : public grpc::AuthMetadataProcessor {
 public:
  GateProcessor(std::shared_ptr<const Gate> gate, std::shared_ptr<GateCounts> counts)
      : gate_(std::move(gate)), counts_(std::move(counts)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* peer, OutputMetadata*,
                       OutputMetadata*) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : peer->FindPropertyValues("peer_uri"))
      uris.emplace_back(uri.data(), uri.size());
    const auto text_of = [&](const char* key) {
      const auto found = metadata.find(key);
      return found == metadata.end()
                 ? absl::string_view()
                 : absl::string_view(found->second.data(), found->second.size());
    };
    // Handlers must not read another token than the gate has checked.
    const bool is_ambiguous = metadata.count(kTokenMetadata) > 1;
    const absl::Status status = gate_->Check(
        uris, text_of(":path"), is_ambiguous ? "several tokens" : text_of(kTokenMetadata));
    if (counts_ != nullptr) ++(status.ok() ? counts_->passed : counts_->refused);
    return ToGrpcStatus(status);
  }

 private:
  const std::shared_ptr<const Gate> gate_;
  const std::shared_ptr<GateCounts> counts_;
};

// The files with which a process connects.
struct OwnFiles {
  Identity identity;
  int64_t not_after = 0;
  std::string authorities_pem;
  // Empty if the process has a token.
  std::string certificate_pem;
  std::string key_pem;
  std::string token;

  bool IsSameAs(const OwnFiles& other) const {
    return certificate_pem == other.certificate_pem && key_pem == other.key_pem &&
           authorities_pem == other.authorities_pem && token == other.token;
  }
};

absl::StatusOr<OwnFiles> ReadOwnFiles(Env& env, const TlsCredentials::Options& options) {
  OwnFiles own;
  if (options.has_token()) {
    PAWL_ASSIGN_OR_RETURN(TokenFiles files,
                          ReadTokenFiles(env, options.authorities_file, options.token,
                                         options.token_file, options.unix_seconds()));
    own.identity = std::move(files.token.identity);
    own.not_after = files.token.expires;
    own.authorities_pem = std::move(files.authorities_pem);
    own.token = std::move(files.text);
    return own;
  }
  PAWL_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(env, options.dir, options.unix_seconds()));
  own.identity = std::move(files.identity);
  own.not_after = files.not_after;
  own.authorities_pem = std::move(files.authorities_pem);
  own.certificate_pem = std::move(files.certificate_pem);
  own.key_pem = std::move(files.key_pem);
  return own;
}

class ReloadedTlsCredentials final : public TlsCredentials {
 public:
  // `tokens`: see TlsCredentials::tokens.
  ReloadedTlsCredentials(Env& env, Options options, OwnFiles files,
                         std::shared_ptr<TokenVerifier> tokens)
      : env_(env),
        options_(std::move(options)),
        identity_(files.identity),
        tokens_(std::move(tokens)),
        token_source_(options_.has_token() ? std::make_shared<TokenSource>(files.token) : nullptr),
        memory_(options_.has_token() ? options_.authorities_file : options_.dir),
        files_(std::move(files)) {
    state_.identity = identity_;
    state_.not_after = files_.not_after;
    state_.is_token = options_.has_token();
  }

  ~ReloadedTlsCredentials() override {
    {
      MutexLock lock(mu_);
      stopping_ = true;
    }
    stop_.NotifyAll();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    if (!options_.dir.empty()) {
      PAWL_RETURN_IF_ERROR(CheckRevocationLists(env_, options_.dir, files_.certificate_pem));
    }
    revocation_lists_ = RevocationLists(env_, options_.dir);
    PAWL_RETURN_IF_ERROR(Give(files_));
    const std::string authorities = memory_.files().authorities.path();
    if (token_source_ != nullptr) {
      provider_ =
          std::make_shared<tls::FileWatcherCertificateProvider>(authorities, kProviderInterval);
    } else {
      provider_ = std::make_shared<tls::FileWatcherCertificateProvider>(
          memory_.files().key.path(), memory_.files().certificate.path(), authorities,
          kProviderInterval);
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  std::shared_ptr<grpc::ChannelCredentials> To(RoleSet peers) const override {
    tls::TlsChannelCredentialsOptions options;
    Apply(options);
    // Peers are told apart by role, because their addresses change.
    options.set_check_call_host(false);
    options.set_verify_server_certs(true);
    options.set_certificate_verifier(
        tls::ExternalCertificateVerifier::Create<PeerVerifier>(identity_, peers));
    std::shared_ptr<grpc::ChannelCredentials> credentials = tls::TlsCredentials(options);
    return token_source_ == nullptr ? credentials : WithToken(credentials, token_source_);
  }

  using TlsCredentials::Listening;
  std::shared_ptr<grpc::ServerCredentials> Listening(
      std::shared_ptr<const Gate> gate, std::shared_ptr<GateCounts> counts) const override {
    tls::TlsServerCredentialsOptions options(provider_);
    Apply(options);
    // With tokens the gate refuses callers that have neither.
    options.set_cert_request_type(tokens_ == nullptr
                                      ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
    std::shared_ptr<grpc::ServerCredentials> credentials = tls::TlsServerCredentials(options);
    credentials->SetAuthMetadataProcessor(
        std::make_shared<GateProcessor>(std::move(gate), std::move(counts)));
    return credentials;
  }

  std::shared_ptr<const TokenVerifier> tokens() const override { return tokens_; }

  CertificateState State() const override {
    MutexLock lock(mu_);
    return state_;
  }

 private:
  void Apply(tls::TlsCredentialsOptions& options) const {
    options.set_certificate_provider(provider_);
    options.watch_root_certs();
    if (token_source_ == nullptr) options.watch_identity_key_cert_pairs();
    // OpenSSL looks for new lists during each handshake; the folder may appear later.
    if (!options_.dir.empty()) options.set_crl_directory(JoinPath(options_.dir, kRevokedFolder));
  }

  absl::Status Give(const OwnFiles& files) {
    MemoryFiles& memory = memory_.files();
    PAWL_RETURN_IF_ERROR(memory.authorities.Replace(files.authorities_pem));
    if (token_source_ != nullptr) {
      token_source_->Set(files.token);
    } else {
      PAWL_RETURN_IF_ERROR(memory.key.Replace(files.key_pem));
      // gRPC forgets sessions when the content changes. What follows a certificate is a comment.
      PAWL_RETURN_IF_ERROR(memory.certificate.Replace(
          absl::StrCat(files.certificate_pem, "\n", ++generation_, "\n")));
    }
    given_ = Clock::Real().Now();
    return absl::OkStatus();
  }

  absl::Status CheckStillSame(const OwnFiles& files) const {
    if (files.identity == identity_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        token_source_ != nullptr ? options_.token_file : JoinPath(options_.dir, kCertificateFile),
        " is for ", files.identity.Uri(), " and this process is ", identity_.Uri(),
        "; restart it to change that"));
  }

  // Returns true if the process is to stop reloading.
  bool WaitForNextReload() {
    const MonotonicTime next = Clock::Real().Now() + options_.reload_interval;
    MutexLock lock(mu_);
    while (!stopping_ && stop_.WaitUntil(mu_, next)) {
    }
    return stopping_;
  }

  void Run() {
    while (!WaitForNextReload()) Reload();
  }

  // Reads outside the lock, because a file system may hang.
  void Reload() {
    absl::StatusOr<OwnFiles> files = ReadOwnFiles(env_, options_);
    absl::Status status = files.status();
    if (files.ok()) status = CheckStillSame(*files);
    const bool is_new = status.ok() && !files->IsSameAs(files_);
    const bool has_new_lists = ReloadRevocationLists();
    if (has_new_lists || is_new) {
      revocation_status_ = CheckRevocationLists(
          env_, options_.dir, is_new ? files->certificate_pem : files_.certificate_pem);
    }
    if (is_new) {
      status = Give(*files);
    } else if (has_new_lists || Clock::Real().Now() - given_ >= options_.max_session_age) {
      // Sessions end even if the files that are there now cannot be used.
      status.Update(Give(files_));
    }
    const bool gave = is_new && status.ok();
    const bool obeys_new_lists = TakeObeyedLists(has_new_lists);
    status.Update(revocation_status_);
    const absl::StatusOr<bool> has_new_keys = ReloadTokenKeys();
    status.Update(has_new_keys.status());
    const bool has_changed = is_new || has_new_lists || has_new_keys.value_or(false);
    CertificateState state;
    {
      MutexLock lock(mu_);
      if (obeys_new_lists) ++state_.revocations;
      if (!has_changed && status == state_.reload_status) return;
      state_.reload_status = status;
      if (gave) state_.not_after = files->not_after;
      if (has_changed && status.ok()) ++state_.reloads;
      state = state_;
    }
    if (gave) files_ = *std::move(files);
    if (options_.reloaded) options_.reloaded(state);
  }

  // Returns whether kRevokedFolder has changed.
  bool ReloadRevocationLists() {
    if (options_.dir.empty()) return false;
    auto lists = RevocationLists(env_, options_.dir);
    if (lists == revocation_lists_) return false;
    revocation_lists_ = std::move(lists);
    return true;
  }

  // Returns true once after the last change of kRevokedFolder, when gRPC no longer resumes sessions
  // from before it.
  bool TakeObeyedLists(bool has_new_lists) {
    const MonotonicTime now = Clock::Real().Now();
    if (has_new_lists) lists_changed_ = now;
    if (!lists_changed_.has_value() || now < *lists_changed_ + kProviderDelay) return false;
    lists_changed_.reset();
    return true;
  }

  // Returns whether the keys or the revoked tokens have changed.
  absl::StatusOr<bool> ReloadTokenKeys() {
    if (tokens_ == nullptr) return false;
    PAWL_ASSIGN_OR_RETURN(TokenKeys keys, TokenKeys::Read(env_, options_.dir));
    return tokens_->Replace(std::move(keys));
  }

  Env& env_;
  const Options options_;
  const Identity identity_;
  const std::shared_ptr<TokenVerifier> tokens_;
  // Null if the process has a certificate.
  const std::shared_ptr<TokenSource> token_source_;
  std::shared_ptr<tls::CertificateProviderInterface> provider_;

  // Used by the reloading thread only, once that has started.
  MemoryFilesLease memory_;
  uint64_t generation_ = 0;
  MonotonicTime given_;
  std::vector<std::pair<std::string, uint64_t>> revocation_lists_;
  absl::Status revocation_status_;
  std::optional<MonotonicTime> lists_changed_;
  // Those in use.
  OwnFiles files_;

  mutable Mutex mu_;
  CondVar stop_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  CertificateState state_ PAWL_GUARDED_BY(mu_);
  std::thread thread_;
};

// See TlsCredentials::tokens.
absl::StatusOr<std::shared_ptr<TokenVerifier>> OpenTokens(Env& env,
                                                          const TlsCredentials::Options& options,
                                                          const Identity& own) {
  if (options.has_token() || !env.List(JoinPath(options.dir, kTokensFolder)).ok()) return nullptr;
  PAWL_ASSIGN_OR_RETURN(TokenKeys keys, TokenKeys::Read(env, options.dir));
  return std::make_shared<TokenVerifier>(own, options.unix_seconds, std::move(keys));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsCredentials>> TlsCredentials::Open(Env& env, Options options) {
  PAWL_ASSIGN_OR_RETURN(OwnFiles files, ReadOwnFiles(env, options));
  if (!options.own_roles.Contains(files.identity.role)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.has_token() ? "the token" : JoinPath(options.dir, kCertificateFile),
                     " has the role ", RoleName(files.identity.role),
                     "; this program needs one with the role ", options.own_roles.Describe()));
  }
  PAWL_ASSIGN_OR_RETURN(std::shared_ptr<TokenVerifier> tokens,
                        OpenTokens(env, options, files.identity));
  auto credentials = std::make_unique<ReloadedTlsCredentials>(env, std::move(options),
                                                              std::move(files), std::move(tokens));
  PAWL_RETURN_IF_ERROR(credentials->Start());
  return credentials;
}

}  // namespace pawl
