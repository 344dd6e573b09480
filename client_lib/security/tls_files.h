// The files of --tls_dir: a process's certificate and key, and the authorities that it trusts.
#ifndef PAWL_CLIENT_LIB_SECURITY_TLS_FILES_H_
#define PAWL_CLIENT_LIB_SECURITY_TLS_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "client_lib/security/identity.h"

namespace pawl {

// PEM files in --tls_dir.
// The certificate, followed by those of intermediate authorities.
inline constexpr char kCertificateFile[] = "cert.pem";
// The certificate's private key, not encrypted.
inline constexpr char kKeyFile[] = "key.pem";
// The authorities whose certificates are accepted. It has two while one replaces the other.
inline constexpr char kAuthoritiesFile[] = "ca.pem";

struct TlsFiles {
  std::string certificate_pem;
  std::string key_pem;
  std::string authorities_pem;

  Identity identity;
  // The DNS names and IP addresses of the certificate. Empty: it is not bound to hosts.
  std::vector<std::string> hosts;
  // When the certificate, or an authority of its chain, expires first. Unix seconds.
  int64_t not_after = 0;
};

// Reads and checks the files: the certificate has an Identity, is within its period of validity at
// `now` (Unix seconds), fits its key, and is signed by one of the authorities. Errors name the file
// and the remedy.
//   NOT_FOUND           a file is missing
//   PERMISSION_DENIED   a file cannot be read
//   INVALID_ARGUMENT    a file has other content, or other users may read the key
absl::StatusOr<TlsFiles> ReadTlsFiles(Env& env, const std::string& dir, int64_t now);

// Reads a file with the certificates of authorities. Errors as for ReadTlsFiles.
absl::StatusOr<std::string> ReadAuthorities(Env& env, const std::string& path);

// INVALID_ARGUMENT: every user of the machine can read the file at `path`, which holds a secret.
absl::Status CheckIsPrivate(const std::string& path);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TLS_FILES_H_
