#include "client_lib/security/tls_credentials.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace pawl {
namespace {

namespace tls = grpc::experimental;

// How often gRPC looks at the checked files, in seconds; the least it accepts.
constexpr unsigned int kProviderInterval = 1;

// A file in memory whose path stays the same while its content is replaced. gRPC can reload
// certificates only from files, and takes any that are there: this process gives it copies that
// have been checked, and no key reaches another file.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : name_(name) {}
  // Keeps the descriptor open: gRPC reads the path until it has let go of the last channel, on a
  // thread of its own, and another file must not get the number before. A process opens few.
  ~MemoryFile() = default;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // A reader gets either the previous content or all of this one.
  absl::Status Replace(absl::string_view content) {
    const int descriptor = memfd_create(name_, MFD_CLOEXEC);
    if (descriptor < 0) return FileError("create", name_, errno);
    absl::Status status = WriteAll(descriptor, content);
    if (status.ok() && descriptor_ < 0) {
      descriptor_ = descriptor;
      return status;
    }
    if (status.ok() && dup3(descriptor, descriptor_, O_CLOEXEC) < 0)
      status = FileError("replace", name_, errno);
    close(descriptor);
    return status;
  }

  std::string path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

 private:
  absl::Status WriteAll(int descriptor, absl::string_view content) const {
    while (!content.empty()) {
      const ssize_t count = write(descriptor, content.data(), content.size());
      if (count < 0) return FileError("write", name_, errno);
      content.remove_prefix(static_cast<size_t>(count));
    }
    return absl::OkStatus();
  }

  const char* const name_;
  int descriptor_ = -1;
};

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
  explicit GateProcessor(std::shared_ptr<const Gate> gate) : gate_(std::move(gate)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* peer, OutputMetadata*,
                       OutputMetadata*) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : peer->FindPropertyValues("peer_uri"))
      uris.emplace_back(uri.data(), uri.size());
    const auto path = metadata.find(":path");
    return ToGrpcStatus(gate_->Check(
        uris,
        path == metadata.end() ? "" : absl::string_view(path->second.data(), path->second.size())));
  }

 private:
  const std::shared_ptr<const Gate> gate_;
};

class ReloadedTlsCredentials final : public TlsCredentials {
 public:
  ReloadedTlsCredentials(Env& env, Options options, TlsFiles files)
      : env_(env),
        options_(std::move(options)),
        identity_(files.identity),
        files_(std::move(files)) {
    state_.identity = identity_;
    state_.not_after = files_.not_after;
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
    revocation_lists_ = RevocationLists();
    PAWL_RETURN_IF_ERROR(Give(files_));
    provider_ = std::make_shared<tls::FileWatcherCertificateProvider>(
        key_.path(), certificate_.path(), authorities_.path(), kProviderInterval);
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
    return tls::TlsCredentials(options);
  }

  std::shared_ptr<grpc::ServerCredentials> Listening(
      std::shared_ptr<const Gate> gate) const override {
    tls::TlsServerCredentialsOptions options(provider_);
    Apply(options);
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    std::shared_ptr<grpc::ServerCredentials> credentials = tls::TlsServerCredentials(options);
    credentials->SetAuthMetadataProcessor(std::make_shared<GateProcessor>(std::move(gate)));
    return credentials;
  }

  CertificateState State() const override {
    MutexLock lock(mu_);
    return state_;
  }

 private:
  void Apply(tls::TlsCredentialsOptions& options) const {
    options.set_certificate_provider(provider_);
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    // OpenSSL looks for new lists during each handshake; the folder may appear later.
    options.set_crl_directory(JoinPath(options_.dir, kRevokedFolder));
  }

  absl::Status Give(const TlsFiles& files) {
    PAWL_RETURN_IF_ERROR(authorities_.Replace(files.authorities_pem));
    PAWL_RETURN_IF_ERROR(key_.Replace(files.key_pem));
    // gRPC forgets sessions when the content changes. What follows a certificate is a comment.
    PAWL_RETURN_IF_ERROR(
        certificate_.Replace(absl::StrCat(files.certificate_pem, "\n", ++generation_, "\n")));
    given_ = Clock::Real().Now();
    return absl::OkStatus();
  }

  // The names and sizes of the files in kRevokedFolder.
  std::vector<std::pair<std::string, uint64_t>> RevocationLists() const {
    const std::string folder = JoinPath(options_.dir, kRevokedFolder);
    std::vector<std::pair<std::string, uint64_t>> lists;
    for (std::string& name : env_.List(folder).value_or(std::vector<std::string>())) {
      const uint64_t size = env_.FileSize(JoinPath(folder, name)).value_or(0);
      lists.emplace_back(std::move(name), size);
    }
    std::sort(lists.begin(), lists.end());
    return lists;
  }

  absl::Status CheckStillSame(const TlsFiles& files) const {
    if (files.identity == identity_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(JoinPath(options_.dir, kCertificateFile), " is for ", files.identity.Uri(),
                     " and this process is ", identity_.Uri(), "; restart it to change that"));
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
    absl::StatusOr<TlsFiles> files = ReadTlsFiles(env_, options_.dir, options_.unix_seconds());
    absl::Status status = files.status();
    if (files.ok()) status = CheckStillSame(*files);
    const bool is_new = status.ok() && (files->certificate_pem != files_.certificate_pem ||
                                        files->key_pem != files_.key_pem ||
                                        files->authorities_pem != files_.authorities_pem);
    auto lists = RevocationLists();
    const bool has_new_lists = lists != revocation_lists_;
    revocation_lists_ = std::move(lists);
    if (is_new) {
      status = Give(*files);
    } else if (has_new_lists || Clock::Real().Now() - given_ >= options_.max_session_age) {
      // Sessions end even if the files that are there now cannot be used.
      status.Update(Give(files_));
    }
    CertificateState state;
    {
      MutexLock lock(mu_);
      if (!is_new && !has_new_lists && status == state_.reload_status) return;
      state_.reload_status = status;
      if (is_new && status.ok()) state_.not_after = files->not_after;
      if ((is_new || has_new_lists) && status.ok()) ++state_.reloads;
      state = state_;
    }
    if (is_new && status.ok()) files_ = *std::move(files);
    if (options_.reloaded) options_.reloaded(state);
  }

  Env& env_;
  const Options options_;
  const Identity identity_;
  MemoryFile authorities_{"ca.pem"};
  MemoryFile certificate_{"cert.pem"};
  MemoryFile key_{"key.pem"};
  std::shared_ptr<tls::CertificateProviderInterface> provider_;
  // Used by the reloading thread only, once that has started, as files_ is.
  uint64_t generation_ = 0;
  MonotonicTime given_;
  std::vector<std::pair<std::string, uint64_t>> revocation_lists_;

  mutable Mutex mu_;
  CondVar stop_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  // Those in use. Used by the reloading thread only, once that has started.
  TlsFiles files_;
  CertificateState state_ PAWL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TlsCredentials>> TlsCredentials::Open(Env& env, Options options) {
  PAWL_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(env, options.dir, options.unix_seconds()));
  if (!options.own_roles.Contains(files.identity.role)) {
    return absl::InvalidArgumentError(absl::StrCat(
        JoinPath(options.dir, kCertificateFile), " has the role ", RoleName(files.identity.role),
        "; this program needs one with the role ", options.own_roles.Describe()));
  }
  auto credentials =
      std::make_unique<ReloadedTlsCredentials>(env, std::move(options), std::move(files));
  PAWL_RETURN_IF_ERROR(credentials->Start());
  return credentials;
}

}  // namespace pawl
