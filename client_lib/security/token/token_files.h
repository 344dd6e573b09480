// The files of a process that has a token instead of a certificate.
#ifndef PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_FILES_H_
#define PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "client_lib/security/token/token.h"

namespace pawl {

struct TokenFiles {
  // The token's text and, not verified, its content.
  std::string text;
  Token token;
  std::string authorities_pem;
};

// Reads and checks the file `authorities` and the token, which is `text` or, if that is empty, the
// content of `token_file`. Errors name the file and the remedy.
//   NOT_FOUND           a file is missing
//   PERMISSION_DENIED   a file cannot be read
//   INVALID_ARGUMENT    a file has other content, other users may read the token, or it has expired
//                       at `now` (Unix seconds)
absl::StatusOr<TokenFiles> ReadTokenFiles(Env& env, const std::string& authorities,
                                          const std::string& text, const std::string& token_file,
                                          int64_t now);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_FILES_H_
