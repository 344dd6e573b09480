// The lists of revoked certificates in --tls_dir.
#ifndef PAWL_CLIENT_LIB_SECURITY_TLS_REVOCATION_LISTS_H_
#define PAWL_CLIENT_LIB_SECURITY_TLS_REVOCATION_LISTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/base/env.h"

namespace pawl {

// In --tls_dir. Optional folder: the authorities' lists of revoked certificates, HASH.rN with the
// hash of `openssl crl -hash`. OpenSSL reads each file once: a newer list has the next number.
inline constexpr char kRevokedFolder[] = "crl";

// The names and sizes of the files in kRevokedFolder of `tls_dir`, sorted. Empty without a folder.
std::vector<std::pair<std::string, uint64_t>> RevocationLists(Env& env, const std::string& tls_dir);

// INVALID_ARGUMENT, naming the file: the folder has something else than lists, or a list that has
// revoked the first certificate of `certificate_pem` (empty: the process has none). OpenSSL would
// trust an authority's certificate there as if it were in ca.pem, and would ignore a list with
// another name. Names that begin with a dot are skipped: Kubernetes puts its own into mounted
// secrets.
absl::Status CheckRevocationLists(Env& env, const std::string& tls_dir,
                                  const std::string& certificate_pem);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TLS_REVOCATION_LISTS_H_
