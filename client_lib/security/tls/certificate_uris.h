// The URIs among the subject alternative names of a certificate.
#ifndef PAWL_CLIENT_LIB_SECURITY_TLS_CERTIFICATE_URIS_H_
#define PAWL_CLIENT_LIB_SECURITY_TLS_CERTIFICATE_URIS_H_

#include <string>
#include <vector>

namespace pawl {

// In the order of the certificate, as gRPC's property "peer_uri" has them. Empty also if `pem` does
// not begin with a certificate.
std::vector<std::string> CertificateUris(const std::string& pem);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TLS_CERTIFICATE_URIS_H_
