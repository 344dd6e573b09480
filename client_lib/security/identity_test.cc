#include "client_lib/security/identity.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(IdentityTest, UriNamesTrustDomainJobAndRole) {
  const auto identity = ParseIdentity("spiffe://example.org/pawl/flights/server");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->trust_domain, "example.org");
  EXPECT_EQ(identity->job, "flights");
  EXPECT_EQ(identity->role, PeerRole::kServer);
  EXPECT_EQ(identity->name, "");
  EXPECT_EQ(identity->Uri(), "spiffe://example.org/pawl/flights/server");
}

TEST(IdentityTest, RoleMayHaveName) {
  const auto identity = ParseIdentity("spiffe://d/pawl/j/operator/alice");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->role, PeerRole::kOperator);
  EXPECT_EQ(identity->name, "alice");
  EXPECT_EQ(identity->Uri(), "spiffe://d/pawl/j/operator/alice");
}

TEST(IdentityTest, OtherUrisAreRefused) {
  for (const char* uri :
       {"", "spiffe://", "spiffe://d/pawl/j", "spiffe://d/pawl/j/admin",
        "spiffe://d/pawl/j/server/", "spiffe://d/pawl/j/server/a/b", "spiffe:///pawl/j/server",
        "spiffe://d/pawl//server", "spiffe://d/other/j/server", "https://d/pawl/j/server",
        "spiffe://d/pawl/j%2f/server", "spiffe://d/pawl/j/Server",
        "spiffe://d/pawl/../server/x y"}) {
    EXPECT_EQ(ParseIdentity(uri).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
}

TEST(IdentityTest, IdentitiesOfAnotherJobOrTrustDomainDiffer) {
  const Identity own = *ParseIdentity("spiffe://d/pawl/j/server");
  EXPECT_TRUE(own.IsSameJobAs(*ParseIdentity("spiffe://d/pawl/j/worker")));
  EXPECT_FALSE(own.IsSameJobAs(*ParseIdentity("spiffe://d/pawl/k/worker")));
  EXPECT_FALSE(own.IsSameJobAs(*ParseIdentity("spiffe://e/pawl/j/worker")));
}

TEST(IdentityTest, CertificateNeedsExactlyOneIdentity) {
  EXPECT_TRUE(IdentityAmong({"https://example.org", "spiffe://d/pawl/j/worker"}).ok());
  EXPECT_FALSE(IdentityAmong({"https://example.org"}).ok());
  EXPECT_FALSE(IdentityAmong({"spiffe://d/pawl/j/worker", "spiffe://d/pawl/j/operator"}).ok());
}

}  // namespace
}  // namespace pawl
