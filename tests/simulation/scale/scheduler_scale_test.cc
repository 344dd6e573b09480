#include "tests/simulation/scale/scheduler_scale.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(SchedulerScaleTest, LosingAServerOrZoneIsRepaired) {
  SchedulerScaleOptions options;
  options.servers = 60;
  options.workers = 100;
  options.partitions = 512;
  options.zones = 6;
  options.parameter_bytes = uint64_t{1} << 33;
  const auto figures = MeasureScheduler(options);
  ASSERT_TRUE(figures.ok()) << figures.status();
  const double whole = (*figures)["whole_routing_bytes"];
  for (const char* const what : {"one_server", "one_zone"}) {
    const auto& loss = (*figures)[what];
    EXPECT_GT(loss["epochs_told"], 1) << *figures;
    EXPECT_LT(loss["change_bytes_min"], whole / 10) << *figures;
    EXPECT_LT(loss["bytes_told"], static_cast<double>(loss["bytes_as_whole_tables"]) / 2)
        << *figures;
  }
  EXPECT_LT((*figures)["one_server"]["change_bytes_max"], whole / 2) << *figures;
}

}  // namespace
}  // namespace pawl
