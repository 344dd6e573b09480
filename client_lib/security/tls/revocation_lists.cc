#include "client_lib/security/tls/revocation_lists.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr uint64_t kMaxListBytes = uint64_t{64} << 20;

constexpr char kListSuffix[] = ".r";

struct Deleter {
  void operator()(BIO* object) const { BIO_free(object); }
  void operator()(X509_CRL* object) const { X509_CRL_free(object); }
  void operator()(X509* object) const { X509_free(object); }
};

std::unique_ptr<BIO, Deleter> Reader(const std::string& pem) {
  return std::unique_ptr<BIO, Deleter>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// `certificate_pem` may have further certificates, which are ignored.
bool HasRevoked(X509_CRL* list, const std::string& certificate_pem) {
  const std::unique_ptr<X509, Deleter> certificate(
      PEM_read_bio_X509(Reader(certificate_pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return false;
  if (X509_NAME_cmp(X509_CRL_get_issuer(list), X509_get_issuer_name(certificate.get())) != 0)
    return false;
  X509_REVOKED* entry = nullptr;
  return X509_CRL_get0_by_cert(list, &entry, certificate.get()) == 1;
}

absl::Status CheckList(const std::string& path, const std::string& name, const std::string& pem,
                       const std::string& certificate_pem) {
  const auto invalid = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(path, " ", why));
  };
  if (absl::StrContains(pem, "CERTIFICATE-----")) {
    return invalid(
        "has a certificate, which would be trusted like one in ca.pem; only lists of revoked "
        "certificates belong there");
  }
  const std::unique_ptr<X509_CRL, Deleter> list(
      PEM_read_bio_X509_CRL(Reader(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (list == nullptr) return invalid("has no list of revoked certificates in PEM form");
  const std::string hash = absl::StrFormat(
      "%08x", X509_NAME_hash_ex(X509_CRL_get_issuer(list.get()), nullptr, nullptr, nullptr));
  const std::string number = name.substr(std::min(name.size(), hash.size() + 2));
  const bool is_named = absl::StartsWith(name, absl::StrCat(hash, kListSuffix)) &&
                        !number.empty() &&
                        std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  if (is_named) {
    if (!HasRevoked(list.get(), certificate_pem)) return absl::OkStatus();
    return invalid(
        "says that the certificate in cert.pem has been revoked: no process accepts it; replace "
        "cert.pem and key.pem by new ones");
  }
  return invalid(absl::StrCat("would not be read: the name of this list must be ", hash,
                              kListSuffix,
                              "0, or have the next number after those that are there"));
}

}  // namespace

std::vector<std::pair<std::string, uint64_t>> RevocationLists(Env& env,
                                                              const std::string& tls_dir) {
  const std::string folder = JoinPath(tls_dir, kRevokedFolder);
  std::vector<std::pair<std::string, uint64_t>> lists;
  for (std::string& name : env.List(folder).value_or(std::vector<std::string>())) {
    if (absl::StartsWith(name, ".")) continue;
    const uint64_t size = env.FileSize(JoinPath(folder, name)).value_or(0);
    lists.emplace_back(std::move(name), size);
  }
  std::sort(lists.begin(), lists.end());
  return lists;
}

absl::Status CheckRevocationLists(Env& env, const std::string& tls_dir,
                                  const std::string& certificate_pem) {
  const std::string folder = JoinPath(tls_dir, kRevokedFolder);
  for (const auto& [name, size] : RevocationLists(env, tls_dir)) {
    const std::string path = JoinPath(folder, name);
    PAWL_ASSIGN_OR_RETURN(const std::string pem, ReadWholeFile(env, path, kMaxListBytes));
    PAWL_RETURN_IF_ERROR(CheckList(path, name, pem, certificate_pem));
  }
  return absl::OkStatus();
}

}  // namespace pawl
