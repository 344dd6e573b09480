#include "client_lib/security/token/token_files.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/tls_files.h"

namespace pawl {

absl::StatusOr<TokenFiles> ReadTokenFiles(Env& env, const std::string& authorities,
                                          const std::string& text, const std::string& token_file,
                                          int64_t now) {
  TokenFiles files;
  PAWL_ASSIGN_OR_RETURN(files.authorities_pem, ReadAuthorities(env, authorities));
  std::string source = "PAWL_TOKEN";
  files.text = text;
  if (text.empty()) {
    source = token_file;
    PAWL_ASSIGN_OR_RETURN(files.text, ReadWholeFile(env, token_file, 2 * kMaxTokenBytes));
    PAWL_RETURN_IF_ERROR(CheckIsPrivate(token_file));
  }
  absl::StripAsciiWhitespace(&files.text);
  absl::StatusOr<TokenParts> parts = ReadToken(files.text);
  PAWL_RETURN_IF_ERROR(Annotate(parts.status(), source));
  files.token = std::move(parts->token);
  if (now >= files.token.expires) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": the token ", files.token.id, " has expired at ",
        TokenTimeText(files.token.expires), ", and it is ", TokenTimeText(now),
        " now; get a new one (pawlctl token), or set this machine's clock if it is wrong"));
  }
  return files;
}

}  // namespace pawl
