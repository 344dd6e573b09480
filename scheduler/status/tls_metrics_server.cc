#include "scheduler/status/tls_metrics_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/identity.h"
#include "client_lib/security/tls/revocation_lists.h"
#include "client_lib/security/tls_files.h"

namespace pawl {
namespace {

constexpr int kBacklog = 64;
constexpr size_t kMaxRequestBytes = 8192;
// How long the files in --tls_dir are not read again.
constexpr std::chrono::seconds kFilesAge{2};
// The time of a connection, from its begin to its end.
constexpr std::chrono::seconds kMaxConnectionTime{5};
// The part of that time in which the peer must prove who it is. Strangers get no more of a thread.
constexpr std::chrono::seconds kMaxHandshakeTime{2};

constexpr absl::string_view kNotFound =
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

template <typename Object, void (*Free)(Object*)>
struct Deleter {
  void operator()(Object* object) const { Free(object); }
};
void FreeBio(BIO* bio) { BIO_free(bio); }
void FreeNames(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }
using Bio = std::unique_ptr<BIO, Deleter<BIO, FreeBio>>;
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Deleter<GENERAL_NAMES, FreeNames>>;
using Connection = std::unique_ptr<SSL, Deleter<SSL, SSL_free>>;

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// An authority without a list of revoked certificates has revoked none, as gRPC sees it too.
int TolerateMissingList(int ok, X509_STORE_CTX* context) {
  return X509_STORE_CTX_get_error(context) == X509_V_ERR_UNABLE_TO_GET_CRL ? 1 : ok;
}

bool Use(SSL_CTX* context, const TlsFiles& files, const std::string& lists) {
  const Bio own = Open(files.certificate_pem);
  const Certificate certificate(PEM_read_bio_X509(own.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr || SSL_CTX_use_certificate(context, certificate.get()) != 1)
    return false;
  while (X509* const intermediate = PEM_read_bio_X509(own.get(), nullptr, nullptr, nullptr)) {
    // Takes ownership.
    if (SSL_CTX_add_extra_chain_cert(context, intermediate) != 1) return false;
  }
  const Key key(PEM_read_bio_PrivateKey(Open(files.key_pem).get(), nullptr, nullptr, nullptr));
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1) return false;
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  const Bio authorities = Open(files.authorities_pem);
  while (const Certificate authority{
      PEM_read_bio_X509(authorities.get(), nullptr, nullptr, nullptr)}) {
    if (X509_STORE_add_cert(store, authority.get()) != 1) return false;
  }
  X509_LOOKUP* const lookup = X509_STORE_add_lookup(store, X509_LOOKUP_hash_dir());
  if (lookup == nullptr || X509_LOOKUP_add_dir(lookup, lists.c_str(), X509_FILETYPE_PEM) != 1)
    return false;
  X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
  X509_STORE_set_verify_cb(store, TolerateMissingList);
  return true;
}

// Whether the peer's certificate is one of the job.
bool IsOfJob(SSL* connection, const Identity& own) {
  const Certificate certificate(SSL_get1_peer_certificate(connection));
  if (certificate == nullptr) return false;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  const absl::StatusOr<Identity> peer = IdentityAmong(uris);
  return peer.ok() && peer->IsSameJobAs(own);
}

// Repeats an operation of OpenSSL on a socket that does not block until it succeeds, fails or the
// time is up. Returns its result; 0 or less: it has not succeeded.
int Complete(SSL* connection, MonotonicTime deadline, const std::function<int()>& operation) {
  while (true) {
    const MonotonicDuration left = deadline - Clock::Real().Now();
    if (left <= MonotonicDuration::zero()) return 0;
    // SSL_get_error looks at the errors of the thread.
    ERR_clear_error();
    const int result = operation();
    if (result > 0) return result;
    const int why = SSL_get_error(connection, result);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return result;
    pollfd socket = {SSL_get_fd(connection),
                     static_cast<int16_t>(why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    poll(&socket, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
  }
}

absl::Status CannotListen(const std::string& address, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", address, ": ", why));
}

}  // namespace

struct TlsMetricsServer::Files {
  std::unique_ptr<SSL_CTX, Deleter<SSL_CTX, SSL_CTX_free>> context;
  // Stays that of the start, as that of the process does.
  Identity identity;
};

absl::StatusOr<std::unique_ptr<TlsMetricsServer>> TlsMetricsServer::Listen(
    const std::string& address, const std::string& tls_dir, Text text) {
  std::unique_ptr<TlsMetricsServer> server(new TlsMetricsServer(tls_dir, std::move(text)));
  PAWL_RETURN_IF_ERROR(server->CurrentFiles().status());
  PAWL_RETURN_IF_ERROR(server->Bind(address));
  for (int i = 0; i < kMetricsThreads; ++i)
    server->threads_.emplace_back([server = server.get()] { server->Run(); });
  return server;
}

TlsMetricsServer::~TlsMetricsServer() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
  }
  // Wakes the threads that accept.
  if (listener_ >= 0) shutdown(listener_, SHUT_RDWR);
  for (std::thread& thread : threads_) thread.join();
  if (listener_ >= 0) close(listener_);
}

absl::Status TlsMetricsServer::Bind(const std::string& address) {
  PAWL_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
  std::string host = at.host;
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), absl::StrCat(at.port).c_str(), &hints, &found);
      error != 0) {
    return CannotListen(address, gai_strerror(error));
  }
  listener_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool is_bound =
      bind(listener_, found->ai_addr, found->ai_addrlen) == 0 && listen(listener_, kBacklog) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (!is_bound) return CannotListen(address, std::strerror(error));
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size);
  port_ = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(own).sin_port);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const TlsMetricsServer::Files>> TlsMetricsServer::CurrentFiles() {
  MutexLock lock(mu_);
  const MonotonicTime now = Clock::Real().Now();
  if (files_ != nullptr && now - read_at_ < kFilesAge) return files_;
  const absl::StatusOr<TlsFiles> read = ReadTlsFiles(Env::Real(), tls_dir_, UnixSeconds());
  read_at_ = now;
  // Files that are being replaced do not fit together; the previous ones stay in use.
  if (files_ != nullptr && (!read.ok() || read->identity != files_->identity)) return files_;
  PAWL_RETURN_IF_ERROR(read.status());
  auto files = std::make_shared<Files>();
  files->identity = read->identity;
  files->context.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* const context = files->context.get();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // A session would be continued without a look at the lists of revoked certificates.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  if (!Use(context, *read, JoinPath(tls_dir_, kRevokedFolder)))
    return absl::InvalidArgumentError(absl::StrCat(tls_dir_, ": OpenSSL cannot use the files"));
  return files_ = std::move(files);
}

void TlsMetricsServer::Run() {
  // OpenSSL writes to sockets that the peer may have closed.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  while (!stopping_) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      if (AddConnection(connection)) Serve(connection);
      CloseConnection(connection);
    } else if (!stopping_ && errno != EINTR && errno != ECONNABORTED) {
      // Out of file descriptors.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

bool TlsMetricsServer::AddConnection(int connection) {
  MutexLock lock(mu_);
  if (stopping_) return false;
  connections_.insert(connection);
  return true;
}

void TlsMetricsServer::CloseConnection(int connection) {
  // Under the lock, so that the destructor shuts down no other file with this descriptor.
  MutexLock lock(mu_);
  connections_.erase(connection);
  close(connection);
}

void TlsMetricsServer::Serve(int connection) {
  const MonotonicTime begin = Clock::Real().Now();
  const MonotonicTime deadline = begin + kMaxConnectionTime;
  const absl::StatusOr<std::shared_ptr<const Files>> files = CurrentFiles();
  if (!files.ok()) return;
  const Connection ssl(SSL_new((*files)->context.get()));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), connection) != 1) return;
  if (Complete(ssl.get(), begin + kMaxHandshakeTime, [&] { return SSL_accept(ssl.get()); }) <= 0)
    return;
  if (!IsOfJob(ssl.get(), (*files)->identity)) return;
  std::string request;
  std::array<char, 1024> part;
  while (!absl::StrContains(request, "\r\n\r\n")) {
    if (request.size() > kMaxRequestBytes) return;
    const int count = Complete(ssl.get(), deadline, [&] {
      return SSL_read(ssl.get(), part.data(), static_cast<int>(part.size()));
    });
    if (count <= 0) return;
    request.append(part.data(), static_cast<size_t>(count));
  }
  std::string answer(kNotFound);
  if (absl::StartsWith(request, "GET /metrics ")) {
    const std::string text = text_();
    answer = absl::StrCat(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        "Connection: close\r\nContent-Length: ",
        text.size(), "\r\n\r\n", text);
  }
  const int written = Complete(ssl.get(), deadline, [&] {
    return SSL_write(ssl.get(), answer.data(), static_cast<int>(answer.size()));
  });
  if (written > 0) SSL_shutdown(ssl.get());
}

}  // namespace pawl
