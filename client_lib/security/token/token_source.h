// The token of a process that has no certificate, attached to its calls.
#ifndef PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_SOURCE_H_
#define PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_SOURCE_H_

#include <memory>
#include <string>
#include <utility>

#include "client_lib/base/mutex.h"
#include "grpcpp/security/credentials.h"

namespace pawl {

// Thread-safe.
class TokenSource {
 public:
  explicit TokenSource(std::string text) : text_(std::move(text)) {}

  std::string text() const {
    MutexLock lock(mu_);
    return text_;
  }
  void Set(std::string text) {
    MutexLock lock(mu_);
    text_ = std::move(text);
  }

 private:
  mutable Mutex mu_;
  std::string text_ PAWL_GUARDED_BY(mu_);
};

// `transport` with the newest token of `source` on every call. gRPC refuses to combine a token with
// a transport that is not encrypted: the result is then null.
std::shared_ptr<grpc::ChannelCredentials> WithToken(
    const std::shared_ptr<grpc::ChannelCredentials>& transport,
    std::shared_ptr<const TokenSource> source);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_SOURCE_H_
