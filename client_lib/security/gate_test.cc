#include "client_lib/security/gate.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(GateTest, RefusedPathIsShownEscapedAndBounded) {
  std::vector<std::string> methods;
  const Gate gate(*ParseIdentity("spiffe://d/pawl/j/scheduler"),
                  [&](const Gate::Refusal& refusal) { methods.push_back(refusal.method); });
  const std::vector<std::string> uris = {"spiffe://d/pawl/j/worker"};
  EXPECT_EQ(gate.Check(uris, "/a\nb\x1b[").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(gate.Check(uris, std::string(1000, '\n')).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(gate.Check(uris, "/pawl.Scheduler/StopJob").code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(methods.size(), 3u);
  EXPECT_EQ(methods[0], "/a\\nb\\x1b[");
  EXPECT_EQ(methods[1].size(), 128u);
  EXPECT_EQ(methods[1].find('\n'), std::string::npos);
  EXPECT_EQ(methods[2], "/pawl.Scheduler/StopJob");
}

}  // namespace
}  // namespace pawl
