// Tokens as a scheduler or server gets them from strangers. Accepted ones must be complete; others
// must be refused with INVALID_ARGUMENT.
#include <cstdint>

#include "absl/strings/string_view.h"
#include "client_lib/security/token/token.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<TokenParts> read = ReadToken(TokenTextOf(text));
  if (!read.ok()) {
    FuzzCheck(absl::IsInvalidArgument(read.status()), "refused as INVALID_ARGUMENT");
    return 0;
  }
  FuzzCheck(size <= kMaxTokenBytes + sizeof(kBearer), "bounded");
  FuzzCheck(kTokenRoles.Contains(read->token.identity.role), "a role of tokens");
  FuzzCheck(ParseIdentity(read->token.identity.Uri()).ok(), "an identity");
  FuzzCheck(!read->token.identity.name.empty() && !read->token.id.empty(), "name and id");
  FuzzCheck(read->token.not_before >= 0 && read->token.expires > read->token.not_before &&
                read->token.expires - read->token.not_before <= kMaxTokenSeconds,
            "a bounded time");
  FuzzCheck(text.find(read->signed_text) != absl::string_view::npos,
            "a part of the text is signed");
  FuzzCheck(read->signature.size() == 64, "a signature");
  return 0;
}

}  // namespace pawl
