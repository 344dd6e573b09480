#include "client_lib/job/straggler.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(StragglerTest, WrongTextIsRefusedByName) {
  const struct {
    const char* text;
    const char* message;
  } wrong[] = {
      {"gaussian:ms=1", "the kind is \"gaussian\""},
      {"constant", "ms is missing"},
      {"constant:ms=0", "ms=0 is not a number"},
      {"constant:ms=nan", "ms=nan is not a number"},
      {"constant:ms=3600001", "at most 3.6e+06"},
      {"constant:mean_ms=1", "\"mean_ms\" is no setting of constant"},
      {"exponential:ms=1", "\"ms\" is no setting of exponential"},
      {"exponential:mean_ms=1,shape=2", "\"shape\" is no setting of exponential"},
      {"pareto:scale_ms=5", "shape is missing"},
      {"pareto:shape=1.5", "scale_ms is missing"},
      {"pareto:shape=0.01,scale_ms=5", "below 0.1"},
      {"constant:ms=1,ranks=", "ranks="},
      {"constant:ms=1,ranks=3-2", "ranks=3-2"},
      {"constant:ms=1,ranks=0;1", "ranks=0;1"},
  };
  for (const auto& [text, message] : wrong) {
    const absl::StatusOr<Straggler> straggler = ParseStraggler(text);
    EXPECT_EQ(straggler.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(straggler.status().message().find(message), absl::string_view::npos)
        << text << ": " << straggler.status();
  }
}

}  // namespace
}  // namespace pawl
