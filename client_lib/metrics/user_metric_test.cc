#include "client_lib/metrics/user_metric.h"

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(UserMetricTest, NamesHaveAllowedCharactersAndLength) {
  for (const std::string& name :
       {std::string("ctr"), std::string("val/Loss_a-1.x"), std::string(kMaxMetricNameBytes, 'n')}) {
    EXPECT_TRUE(CheckUserMetric(name, 1).ok()) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a{b=\"c\"}"), std::string("caf\xc3\xa9"),
        std::string("a\nb"), std::string(kMaxMetricNameBytes + 1, 'n')}) {
    const absl::Status status = CheckUserMetric(name, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name;
    EXPECT_TRUE(absl::StrContains(status.message(), "1 to 128 letters")) << status;
  }
}

TEST(UserMetricTest, ValuesAreFinite) {
  EXPECT_TRUE(CheckUserMetric("a", -1e300).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckUserMetric("a", NAN)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckUserMetric("a", -INFINITY)));
}

}  // namespace
}  // namespace pawl
