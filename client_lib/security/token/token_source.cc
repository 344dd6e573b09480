#include "client_lib/security/token/token_source.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "client_lib/security/token/token.h"

namespace pawl {
namespace {

class TokenPlugin final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenPlugin(std::shared_ptr<const TokenSource> source) : source_(std::move(source)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace(kTokenMetadata, absl::StrCat(kBearer, source_->text()));
    return grpc::Status::OK;
  }
  // The default would be as good; a log must never have the token.
  grpc::string DebugString() override { return "a token of Pawl"; }

 private:
  const std::shared_ptr<const TokenSource> source_;
};

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> WithToken(
    const std::shared_ptr<grpc::ChannelCredentials>& transport,
    std::shared_ptr<const TokenSource> source) {
  return grpc::CompositeChannelCredentials(
      transport,
      grpc::MetadataCredentialsFromPlugin(std::make_unique<TokenPlugin>(std::move(source))));
}

}  // namespace pawl
