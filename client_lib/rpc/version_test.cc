#include "client_lib/rpc/version.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(VersionTest, NewestCommonProtocolIsChosen) {
  EXPECT_EQ(*CommonProtocol({2, 5}, "x", {3, 9}), 5u);
  EXPECT_EQ(*CommonProtocol({2, 5}, "x", {1, 3}), 3u);
  EXPECT_EQ(*CommonProtocol({2, 5}, "x", {5, 5}), 5u);
  EXPECT_EQ(*CommonProtocol({0, 0}, "x", {1, 4}), 1u) << "a peer that names no version";
}

TEST(VersionTest, ErrorNamesBothProtocolRanges) {
  for (const ProtocolRange own : {ProtocolRange{1, 1}, ProtocolRange{7, 8}}) {
    const absl::Status status = CommonProtocol({3, 5}, "server-1", own).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("server-1 speaks protocols 3 to 5"));
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr(absl::StrCat(own.oldest, " to ", own.newest)));
  }
  EXPECT_FALSE(CommonProtocol({0, 0}, "x", {2, 4}).ok());
  EXPECT_FALSE(CommonProtocol({9, 3}, "x", {1, 8}).ok()) << "an empty range";
}

}  // namespace
}  // namespace pawl
