// Calls of every rpc by callers that choose their own credentials, for tests of who may call what.
#ifndef PAWL_TESTS_HARNESS_EMPTY_CALLS_H_
#define PAWL_TESTS_HARNESS_EMPTY_CALLS_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace pawl {

// A refused call is answered at once; one that reaches a handler may wait.
inline constexpr std::chrono::seconds kEmptyCallTimeout{5};

// TLS to any server, with the certificate in `dir`, or none if it is empty.
std::shared_ptr<grpc::ChannelCredentials> Credulous(const std::string& dir = "");

// A connection on which every call has an empty message.
class EmptyCalls {
 public:
  EmptyCalls(const std::string& address,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  // `authorization` is the metadata that has the token; empty: none. The status is
  // DEADLINE_EXCEEDED after kEmptyCallTimeout.
  grpc::Status Call(absl::string_view method, const std::string& authorization = "");

 private:
  grpc::GenericStub stub_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_EMPTY_CALLS_H_
