// Owners of OpenSSL's objects.
#ifndef PAWL_CLIENT_LIB_SECURITY_TOKEN_OPENSSL_OBJECTS_H_
#define PAWL_CLIENT_LIB_SECURITY_TOKEN_OPENSSL_OBJECTS_H_

#include <openssl/bio.h>
#include <openssl/evp.h>

#include <memory>
#include <string>

namespace pawl {

struct OpensslDeleter {
  void operator()(BIO* object) const { BIO_free(object); }
  void operator()(EVP_PKEY* object) const { EVP_PKEY_free(object); }
  void operator()(EVP_MD_CTX* object) const { EVP_MD_CTX_free(object); }
};
template <typename Object>
using OpensslPtr = std::unique_ptr<Object, OpensslDeleter>;

// `text` outlives it.
inline OpensslPtr<BIO> ReadingFrom(const std::string& text) {
  return OpensslPtr<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Never asks at the terminal, as OpenSSL does by default.
inline int NoPassphraseForKey(char*, int, int, void*) { return 0; }

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TOKEN_OPENSSL_OBJECTS_H_
