#include "client_lib/security/token/token.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/token/openssl_objects.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

using Json = nlohmann::json;

constexpr char kAlgorithm[] = "EdDSA";
constexpr char kCharacters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
constexpr size_t kIdBytes = 8;
constexpr size_t kMaxIdBytes = 64;
constexpr size_t kSignatureBytes = 64;

absl::Status NotAToken(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("it is not a token of Pawl: ", why));
}

absl::StatusOr<Json> ReadPart(absl::string_view what, absl::string_view part) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(part, &text))
    return NotAToken(absl::StrCat("its ", what, " is not base64url"));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return NotAToken(absl::StrCat("its ", what, " is not a JSON object"));
  return json;
}

absl::StatusOr<std::string> TextOf(const Json& json, const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_string())
    return NotAToken(absl::StrCat("it has no text '", field, "'"));
  return found->get<std::string>();
}

absl::StatusOr<int64_t> SecondsOf(const Json& json, const char* field) {
  const auto found = json.find(field);
  // Beyond the year 9999 a number is no time.
  constexpr int64_t kMaxSeconds = 253402300799;
  if (found == json.end() || !found->is_number_integer() || found->get<int64_t>() < 0 ||
      found->get<int64_t>() > kMaxSeconds) {
    return NotAToken(absl::StrCat("it has no time '", field, "' in seconds"));
  }
  return found->get<int64_t>();
}

// Checks the content of a token, not its signature.
absl::Status CheckContent(const Token& token) {
  if (!kTokenRoles.Contains(token.identity.role)) {
    return absl::InvalidArgumentError(absl::StrCat("a token cannot have the role ",
                                                   RoleName(token.identity.role), ", only ",
                                                   kTokenRoles.Describe()));
  }
  if (token.identity.name.empty()) return NotAToken("its subject has no name");
  if (token.id.empty() || token.id.size() > kMaxIdBytes ||
      token.id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-"
                                 "_.") != std::string::npos) {
    return NotAToken(absl::StrCat("its id must have 1 to ", kMaxIdBytes,
                                  " letters, digits or characters of '.-_'"));
  }
  if (token.expires <= token.not_before || token.expires - token.not_before > kMaxTokenSeconds) {
    return absl::InvalidArgumentError(absl::StrCat("the token is valid for longer than ",
                                                   kMaxTokenSeconds / 3600,
                                                   " hours, or ends before it begins"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Token::Describe() const { return absl::StrCat(identity.Uri(), " (token ", id, ")"); }

std::string NewTokenId() {
  std::array<unsigned char, kIdBytes> bytes = {};
  // Fails only without any source of randomness.
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) std::abort();
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

absl::StatusOr<std::string> SignToken(const Token& token, absl::string_view key_name,
                                      const std::string& key_pem) {
  PAWL_RETURN_IF_ERROR(CheckContent(token));
  PAWL_RETURN_IF_ERROR(ParseIdentity(token.identity.Uri()).status());
  const OpensslPtr<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(ReadingFrom(key_pem).get(), nullptr, NoPassphraseForKey, nullptr));
  ERR_clear_error();
  if (key == nullptr || EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519)
    return absl::InvalidArgumentError("it has no private Ed25519 key in PEM form, not encrypted");
  const Json header = {{"alg", kAlgorithm}, {"kid", std::string(key_name)}, {"typ", "JWT"}};
  const Json payload = {{"sub", token.identity.Uri()},
                        {"jti", token.id},
                        {"nbf", token.not_before},
                        {"exp", token.expires}};
  const std::string text = absl::StrCat(absl::WebSafeBase64Escape(header.dump()), ".",
                                        absl::WebSafeBase64Escape(payload.dump()));
  const OpensslPtr<EVP_MD_CTX> context(EVP_MD_CTX_new());
  std::array<unsigned char, kSignatureBytes> signature = {};
  size_t size = signature.size();
  const bool is_signed =
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
      EVP_DigestSign(context.get(), signature.data(), &size,
                     reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  ERR_clear_error();
  if (!is_signed) return absl::InternalError("OpenSSL cannot sign with this key");
  return absl::StrCat(text, ".",
                      absl::WebSafeBase64Escape(absl::string_view(
                          reinterpret_cast<const char*>(signature.data()), size)));
}

absl::StatusOr<TokenParts> ReadToken(absl::string_view text) {
  if (text.size() > kMaxTokenBytes)
    return NotAToken(absl::StrCat("it has more than ", kMaxTokenBytes, " bytes"));
  // The decoder would skip white space.
  if (text.find_first_not_of(kCharacters) != absl::string_view::npos)
    return NotAToken("it has other characters than base64url and dots");
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  if (parts.size() != 3) return NotAToken("it has not three parts with dots between them");
  TokenParts read;
  PAWL_ASSIGN_OR_RETURN(const Json header, ReadPart("header", parts[0]));
  PAWL_ASSIGN_OR_RETURN(const std::string algorithm, TextOf(header, "alg"));
  // The key decides how to verify, never the token.
  if (algorithm != kAlgorithm)
    return NotAToken(absl::StrCat("its signature algorithm is not ", kAlgorithm));
  PAWL_ASSIGN_OR_RETURN(read.key_name, TextOf(header, "kid"));
  PAWL_ASSIGN_OR_RETURN(const Json payload, ReadPart("payload", parts[1]));
  PAWL_ASSIGN_OR_RETURN(const std::string subject, TextOf(payload, "sub"));
  PAWL_ASSIGN_OR_RETURN(read.token.identity, ParseIdentity(subject));
  PAWL_ASSIGN_OR_RETURN(read.token.id, TextOf(payload, "jti"));
  PAWL_ASSIGN_OR_RETURN(read.token.not_before, SecondsOf(payload, "nbf"));
  PAWL_ASSIGN_OR_RETURN(read.token.expires, SecondsOf(payload, "exp"));
  PAWL_RETURN_IF_ERROR(CheckContent(read.token));
  if (!absl::WebSafeBase64Unescape(parts[2], &read.signature) ||
      read.signature.size() != kSignatureBytes) {
    return NotAToken(absl::StrCat("its signature has not ", kSignatureBytes, " bytes"));
  }
  read.signed_text = text.substr(0, parts[0].size() + 1 + parts[1].size());
  return read;
}

absl::string_view TokenTextOf(absl::string_view authorization) {
  // The name of the scheme has no case.
  if (absl::StartsWithIgnoreCase(authorization, kBearer))
    authorization.remove_prefix(sizeof(kBearer) - 1);
  return authorization;
}

std::string TokenTimeText(int64_t unix_seconds) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixSeconds(unix_seconds),
                          absl::UTCTimeZone());
}

}  // namespace pawl
