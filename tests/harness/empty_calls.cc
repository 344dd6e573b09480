#include "tests/harness/empty_calls.h"

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/token/token.h"

namespace pawl {

namespace tls = grpc::experimental;

std::shared_ptr<grpc::ChannelCredentials> Credulous(const std::string& dir) {
  tls::TlsChannelCredentialsOptions options;
  if (!dir.empty()) {
    options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
        absl::StrCat(dir, "/key.pem"), absl::StrCat(dir, "/cert.pem"), 1));
    options.watch_identity_key_cert_pairs();
  }
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
  return tls::TlsCredentials(options);
}

EmptyCalls::EmptyCalls(const std::string& address,
                       const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : stub_(grpc::CreateCustomChannel(address, credentials,
                                      ChannelSettings(ChannelKind::kControl))) {}

grpc::Status EmptyCalls::Call(absl::string_view method, const std::string& authorization) {
  grpc::ClientContext context;
  SetDeadline(context, kEmptyCallTimeout);
  if (!authorization.empty()) context.AddMetadata(kTokenMetadata, authorization);
  grpc::CompletionQueue queue;
  // A buffer without a slice is not an empty message.
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto call = stub_.PrepareUnaryCall(&context, std::string(method), request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  return status;
}

}  // namespace pawl
