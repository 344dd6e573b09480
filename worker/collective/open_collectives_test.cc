#include "worker/collective/open_collectives.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/device/testing/remote_memory_device.h"

namespace pawl {
namespace {

CollectiveKind Named(const std::string& name) {
  return {.name = name, .exclusive = "", .make = nullptr};
}

// The names of the kinds that a choice opens.
std::vector<std::string> Names(CollectivesChoice choice, const std::string& device, bool has_nccl) {
  const auto nccl = [&]() -> absl::StatusOr<CollectiveKind> {
    if (!has_nccl) return absl::UnimplementedError("no libpawl_nccl.so");
    return Named("nccl");
  };
  const auto kinds = OpenCollectives(choice, device, nccl, Named("gloo"));
  if (!kinds.ok()) return {std::string(kinds.status().message())};
  std::vector<std::string> names;
  for (const CollectiveKind& kind : *kinds) names.push_back(kind.name);
  return names;
}

using Strings = std::vector<std::string>;

TEST(OpenCollectivesTest, ParsesTheChoices) {
  EXPECT_EQ(*ParseCollectives("auto"), CollectivesChoice::kAuto);
  EXPECT_EQ(*ParseCollectives("gloo"), CollectivesChoice::kGloo);
  EXPECT_EQ(*ParseCollectives("nccl"), CollectivesChoice::kNccl);
  EXPECT_TRUE(absl::IsInvalidArgument(ParseCollectives("mpi").status()));
}

TEST(OpenCollectivesTest, AutoPrefersNcclOnAGpuAndFallsBack) {
  EXPECT_EQ(Names(CollectivesChoice::kAuto, "cuda:1", true), (Strings{"nccl", "gloo"}));
  EXPECT_EQ(Names(CollectivesChoice::kAuto, "cuda:1", false), Strings{"gloo"});
  EXPECT_EQ(Names(CollectivesChoice::kAuto, "cpu", true), Strings{"gloo"});
}

TEST(OpenCollectivesTest, ExplicitChoiceGetsThatKindOrAnError) {
  EXPECT_EQ(Names(CollectivesChoice::kGloo, "cuda:1", true), Strings{"gloo"});
  EXPECT_EQ(Names(CollectivesChoice::kNccl, "cuda:1", true), Strings{"nccl"});
  EXPECT_EQ(Names(CollectivesChoice::kNccl, "cuda:1", false), Strings{"no libpawl_nccl.so"});
}

// Workers on one GPU reach each other by NCCL only on explicit request.
TEST(OpenCollectivesTest, OnlyExplicitNcclSharesAGpuBetweenMachines) {
  unsetenv("NCCL_HOSTID");
  const std::string gpu = NcclExclusive(CollectivesChoice::kAuto, "0000:3b:00.0");
  EXPECT_EQ(NcclExclusive(CollectivesChoice::kNccl, "0000:3b:00.0"), gpu);
  EXPECT_NE(NcclExclusive(CollectivesChoice::kAuto, "0000:3c:00.0"), gpu);
  setenv("NCCL_HOSTID", "pawl-1", 1);
  EXPECT_EQ(NcclExclusive(CollectivesChoice::kAuto, "0000:3b:00.0"), gpu);
  EXPECT_EQ(NcclExclusive(CollectivesChoice::kNccl, "0000:3b:00.0"),
            "GPU 0000:3b:00.0 of machine \"pawl-1\"");
}

TEST(OpenCollectivesTest, NcclErrorSaysWhatIsMissing) {
  RemoteMemoryDevice device(RemoteMemoryDevice::Reads::kLate);
  const auto without_gpu =
      OpenNcclKind(CollectivesChoice::kNccl, "cpu", device, {"/nowhere/libpawl_nccl.so"});
  EXPECT_TRUE(absl::IsInvalidArgument(without_gpu.status()));
  EXPECT_TRUE(absl::StrContains(without_gpu.status().message(), "--device=cuda:N"))
      << without_gpu.status();
  const auto without_library =
      OpenNcclKind(CollectivesChoice::kAuto, "cuda:0", device, {"/nowhere/libpawl_nccl.so"});
  EXPECT_TRUE(absl::IsUnimplemented(without_library.status()));
  EXPECT_TRUE(absl::StrContains(without_library.status().message(), "libpawl_nccl.so"))
      << without_library.status();
}

}  // namespace
}  // namespace pawl
