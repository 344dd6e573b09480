// Keys and tokens for tests.
#ifndef PAWL_CLIENT_LIB_SECURITY_TOKEN_TESTING_TOKEN_KEY_H_
#define PAWL_CLIENT_LIB_SECURITY_TOKEN_TESTING_TOKEN_KEY_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/security/token/token.h"
#include "gtest/gtest.h"

namespace pawl {

struct TokenKeyPair {
  std::string private_pem;
  std::string public_pem;
};

// A new key pair of the kind `type`, such as "ED25519".
inline TokenKeyPair NewTokenKeyPair(const char* type = "ED25519") {
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, type);
  EXPECT_NE(key, nullptr);
  const auto text_of = [](BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  };
  TokenKeyPair pair;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  pair.private_pem = text_of(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PUBKEY(bio, key);
  pair.public_pem = text_of(bio);
  EVP_PKEY_free(key);
  return pair;
}

// A token for the owner with this URI, valid for an hour from `now` on (Unix seconds).
inline Token TokenFor(const std::string& uri, int64_t now) {
  const absl::StatusOr<Identity> identity = ParseIdentity(uri);
  EXPECT_TRUE(identity.ok()) << identity.status();
  return {identity.value_or(Identity()), NewTokenId(), now, now + 3600};
}

// The text of the token, signed with the key `name`.
inline std::string Signed(const Token& token, const TokenKeyPair& key,
                          const std::string& name = "test") {
  const absl::StatusOr<std::string> text = SignToken(token, name, key.private_pem);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

// A token with this header and payload, which SignToken might refuse to sign.
inline std::string SignedText(const std::string& header, const std::string& payload,
                              const TokenKeyPair& key) {
  const std::string text =
      absl::StrCat(absl::WebSafeBase64Escape(header), ".", absl::WebSafeBase64Escape(payload));
  BIO* const bio =
      BIO_new_mem_buf(key.private_pem.data(), static_cast<int>(key.private_pem.size()));
  EVP_PKEY* const signer = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  std::string signature(64, '\0');
  size_t size = signature.size();
  EXPECT_EQ(EVP_DigestSignInit(context, nullptr, nullptr, nullptr, signer), 1);
  EXPECT_EQ(EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &size,
                           reinterpret_cast<const unsigned char*>(text.data()), text.size()),
            1);
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(signer);
  BIO_free(bio);
  return absl::StrCat(text, ".", absl::WebSafeBase64Escape(signature));
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TOKEN_TESTING_TOKEN_KEY_H_
