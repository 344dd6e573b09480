#include "client_lib/security/tls/certificate_uris.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstddef>
#include <memory>

namespace pawl {
namespace {

struct Deleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename Object>
using Owned = std::unique_ptr<Object, Deleter>;

}  // namespace

std::vector<std::string> CertificateUris(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const Owned<X509> certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  std::vector<std::string> uris;
  if (certificate == nullptr) {
    ERR_clear_error();
    return uris;
  }
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(names.get(), i);
    if (name.type != GEN_URI) continue;
    uris.emplace_back(
        reinterpret_cast<const char*>(ASN1_STRING_get0_data(name.d.uniformResourceIdentifier)),
        static_cast<size_t>(ASN1_STRING_length(name.d.uniformResourceIdentifier)));
  }
  return uris;
}

}  // namespace pawl
