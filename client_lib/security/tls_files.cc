#include "client_lib/security/tls_files.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;
constexpr size_t kMaxCertificates = 100;

template <typename Object, void (*Free)(Object*)>
struct Deleter {
  void operator()(Object* object) const { Free(object); }
};
template <typename Object, void (*Free)(Object*)>
using Owned = std::unique_ptr<Object, Deleter<Object, Free>>;

void FreeCertificates(STACK_OF(X509) * certificates) { sk_X509_pop_free(certificates, X509_free); }
void FreeNames(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }
void FreeBio(BIO* bio) { BIO_free(bio); }

using Bio = Owned<BIO, FreeBio>;
using Certificate = Owned<X509, X509_free>;
using Certificates = Owned<STACK_OF(X509), FreeCertificates>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Store = Owned<X509_STORE, X509_STORE_free>;
using StoreContext = Owned<X509_STORE_CTX, X509_STORE_CTX_free>;
using Names = Owned<GENERAL_NAMES, FreeNames>;

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Never asks at the terminal, as OpenSSL does by default.
int NoPassphrase(char*, int, int, void*) { return 0; }

absl::Status Invalid(const std::string& path, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(path, " ", problem));
}

// All certificates of the file, at least one.
absl::StatusOr<Certificates> ParseCertificates(const std::string& path, const std::string& pem) {
  Certificates certificates(sk_X509_new_null());
  const Bio bio = Open(pem);
  while (X509* const one = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) {
    sk_X509_push(certificates.get(), one);
    if (sk_X509_num(certificates.get()) > static_cast<int>(kMaxCertificates))
      return Invalid(path, absl::StrCat("has more than ", kMaxCertificates, " certificates"));
  }
  const bool is_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (sk_X509_num(certificates.get()) == 0) return Invalid(path, "has no certificate in PEM form");
  if (!is_end) return Invalid(path, "has a damaged certificate");
  return certificates;
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return timegm(&parts);
}

std::string ShownTime(int64_t unix_seconds) {
  const time_t time = unix_seconds;
  tm parts = {};
  gmtime_r(&time, &parts);
  std::array<char, 32> text = {};
  strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return text.data();
}

std::string HostOf(const GENERAL_NAME& name) {
  if (name.type == GEN_DNS) {
    return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name.d.dNSName)),
                       static_cast<size_t>(ASN1_STRING_length(name.d.dNSName)));
  }
  const int length = ASN1_STRING_length(name.d.iPAddress);
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const int family = length == 4 ? AF_INET : AF_INET6;
  if (length != 4 && length != 16) return "";
  inet_ntop(family, ASN1_STRING_get0_data(name.d.iPAddress), text.data(), text.size());
  return text.data();
}

// Sets `identity` and `hosts` from the certificate's subject alternative names.
absl::Status ReadNames(const std::string& path, const X509& certificate, TlsFiles& files) {
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(names.get(), i);
    if (name.type == GEN_URI) {
      uris.emplace_back(
          reinterpret_cast<const char*>(ASN1_STRING_get0_data(name.d.uniformResourceIdentifier)),
          static_cast<size_t>(ASN1_STRING_length(name.d.uniformResourceIdentifier)));
    } else if (name.type == GEN_DNS || name.type == GEN_IPADD) {
      files.hosts.push_back(HostOf(name));
    }
  }
  absl::StatusOr<Identity> identity = IdentityAmong(uris);
  if (!identity.ok()) return Annotate(identity.status(), path);
  files.identity = *std::move(identity);
  return absl::OkStatus();
}

// Whether the certificate chains up to one of the authorities at `now`, and until when.
absl::Status CheckChain(const std::string& dir, STACK_OF(X509) & chain,
                        STACK_OF(X509) & authorities, int64_t now, int64_t& not_after) {
  const std::string path = JoinPath(dir, kCertificateFile);
  X509* const certificate = sk_X509_value(&chain, 0);
  const int64_t from = UnixSeconds(X509_get0_notBefore(certificate));
  const int64_t end = UnixSeconds(X509_get0_notAfter(certificate));
  if (now < from || now >= end) {
    return Invalid(
        path, absl::StrCat(now < from ? "is not valid yet" : "has expired", ": it is valid from ",
                           ShownTime(from), " to ", ShownTime(end), ", and it is ", ShownTime(now),
                           " now; replace it, or set this machine's clock if that is wrong"));
  }
  const Store store(X509_STORE_new());
  for (int i = 0; i < sk_X509_num(&authorities); ++i)
    X509_STORE_add_cert(store.get(), sk_X509_value(&authorities, i));
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), certificate, &chain);
  X509_STORE_CTX_set_time(context.get(), 0, static_cast<time_t>(now));
  if (X509_verify_cert(context.get()) != 1) {
    const std::string reason =
        X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
    ERR_clear_error();
    return Invalid(path, absl::StrCat("is not accepted by the authorities in ",
                                      JoinPath(dir, kAuthoritiesFile), ": ", reason, "; it is ",
                                      ShownTime(now), " now"));
  }
  const Certificates verified(X509_STORE_CTX_get1_chain(context.get()));
  not_after = UnixSeconds(X509_get0_notAfter(certificate));
  for (int i = 0; i < sk_X509_num(verified.get()); ++i) {
    not_after =
        std::min(not_after, UnixSeconds(X509_get0_notAfter(sk_X509_value(verified.get(), i))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(Env& env, const std::string& dir, int64_t now) {
  const std::string certificate_path = JoinPath(dir, kCertificateFile);
  const std::string key_path = JoinPath(dir, kKeyFile);
  const std::string authorities_path = JoinPath(dir, kAuthoritiesFile);
  TlsFiles files;
  absl::StatusOr<std::string> authorities_pem = ReadWholeFile(env, authorities_path, kMaxFileBytes);
  if (!authorities_pem.ok() && absl::IsNotFound(env.List(dir).status()))
    return absl::NotFoundError(absl::StrCat("there is no folder ", dir));
  PAWL_ASSIGN_OR_RETURN(files.authorities_pem, std::move(authorities_pem));
  PAWL_ASSIGN_OR_RETURN(files.certificate_pem, ReadWholeFile(env, certificate_path, kMaxFileBytes));
  PAWL_ASSIGN_OR_RETURN(files.key_pem, ReadWholeFile(env, key_path, kMaxFileBytes));
  PAWL_RETURN_IF_ERROR(CheckIsPrivate(key_path));
  PAWL_ASSIGN_OR_RETURN(const Certificates authorities,
                        ParseCertificates(authorities_path, files.authorities_pem));
  PAWL_ASSIGN_OR_RETURN(const Certificates chain,
                        ParseCertificates(certificate_path, files.certificate_pem));
  const Key key(PEM_read_bio_PrivateKey(Open(files.key_pem).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) return Invalid(key_path, "has no private key in PEM form, not encrypted");
  X509* const certificate = sk_X509_value(chain.get(), 0);
  const bool fits = X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return Invalid(key_path, absl::StrCat("is not the key of ", certificate_path,
                                          "; replace both files together"));
  }
  PAWL_RETURN_IF_ERROR(ReadNames(certificate_path, *certificate, files));
  PAWL_RETURN_IF_ERROR(CheckChain(dir, *chain, *authorities, now, files.not_after));
  return files;
}

absl::StatusOr<std::string> ReadAuthorities(Env& env, const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(std::string pem, ReadWholeFile(env, path, kMaxFileBytes));
  PAWL_RETURN_IF_ERROR(ParseCertificates(path, pem).status());
  return pem;
}

absl::Status CheckIsPrivate(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || (status.st_mode & S_IROTH) == 0) return absl::OkStatus();
  return Invalid(path, "can be read by every user of this machine; run chmod 600 on it");
}

}  // namespace pawl
