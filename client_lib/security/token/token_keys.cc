#include "client_lib/security/token/token_keys.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr uint64_t kMaxKeyBytes = uint64_t{64} << 10;
constexpr uint64_t kMaxRevokedBytes = uint64_t{4} << 20;
constexpr size_t kMaxKeys = 100;
constexpr size_t kMaxRevokedIdBytes = 64;

absl::Status Invalid(const std::string& path, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(path, " ", problem));
}

}  // namespace

absl::StatusOr<TokenKeys> TokenKeys::Read(Env& env, const std::string& tls_dir) {
  TokenKeys keys;
  const std::string folder = JoinPath(tls_dir, kTokensFolder);
  absl::StatusOr<std::vector<std::string>> names = env.List(folder);
  if (absl::IsNotFound(names.status())) return keys;
  PAWL_RETURN_IF_ERROR(names.status());
  std::sort(names->begin(), names->end());
  for (const std::string& file : *names) {
    const std::string path = JoinPath(folder, file);
    absl::string_view name = file;
    const bool is_key =
        absl::ConsumeSuffix(&name, kPublicKeySuffix) && !absl::StartsWith(name, ".");
    if (!is_key && file != kRevokedTokensFile) continue;
    PAWL_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(env, path, is_key ? kMaxKeyBytes : kMaxRevokedBytes));
    PAWL_RETURN_IF_ERROR(is_key ? keys.AddKey(std::string(name), path, text)
                                : keys.AddRevoked(path, text));
    absl::StrAppend(&keys.content_, file, "\n", text, "\n");
  }
  return keys;
}

absl::Status TokenKeys::AddKey(const std::string& name, const std::string& path,
                               const std::string& pem) {
  OpensslPtr<EVP_PKEY> key(
      PEM_read_bio_PUBKEY(ReadingFrom(pem).get(), nullptr, NoPassphraseForKey, nullptr));
  ERR_clear_error();
  if (key == nullptr || EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519)
    return Invalid(path, "has no public Ed25519 key in PEM form");
  if (keys_.size() >= kMaxKeys)
    return Invalid(path, absl::StrCat("is one of more than ", kMaxKeys, " keys"));
  keys_.emplace(name, std::move(key));
  return absl::OkStatus();
}

absl::Status TokenKeys::AddRevoked(const std::string& path, const std::string& text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    // A line that is no id, such as a whole token, would revoke nothing.
    if (line.size() > kMaxRevokedIdBytes || absl::StrContains(line, ' '))
      return Invalid(path, "has a line that is not the id of a token");
    revoked_.emplace(line);
  }
  return absl::OkStatus();
}

absl::Status TokenKeys::CheckSignature(const TokenParts& parts) const {
  const auto found = keys_.find(parts.key_name);
  if (found == keys_.end())
    return absl::UnauthenticatedError("this process has no public key of the token's signer");
  const OpensslPtr<EVP_MD_CTX> context(EVP_MD_CTX_new());
  const auto bytes = [](absl::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  };
  const bool is_valid =
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, found->second.get()) == 1 &&
      EVP_DigestVerify(context.get(), bytes(parts.signature), parts.signature.size(),
                       bytes(parts.signed_text), parts.signed_text.size()) == 1;
  ERR_clear_error();
  if (is_valid) return absl::OkStatus();
  return absl::UnauthenticatedError("the token's signature is wrong");
}

}  // namespace pawl
