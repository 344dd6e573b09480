// Short storms. deploy/chaos runs long ones.
#include "tests/chaos/storm/storm.h"

#include <chrono>
#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

StormOptions Options(uint64_t seed) {
  StormOptions options;
  options.seed = seed;
  options.duration = std::chrono::seconds(12);
  options.senders = 2;
  options.pushes_per_second = 40;
  options.row_width = 16;
  // Long, because the machine runs other tests too.
  options.lease_ms = 20000;
  options.progress = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  return options;
}

TEST(StormTest, LinkFaultsAndDyingSendersLoseAndDoubleNothing) {
  StormOptions options = Options(11);
  options.replicas = 0;
  options.durability = DURABILITY_UNSPECIFIED;
  options.max_silence = std::chrono::milliseconds(1500);
  const auto report = RunStorm(options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok()) << report->ToText();
  EXPECT_GE(report->faults.size(), 2u);
  EXPECT_GT(report->pushes_acknowledged, 100u);
  EXPECT_EQ(report->digests_compared, options.partitions);
}

// A storm that accepts this would accept anything.
TEST(StormTest, LosingTheOnlyServersDataIsAViolation) {
  StormOptions options = Options(5);
  options.replicas = 1;
  options.durability = MEMORY;
  options.lease_ms = 1000;
  options.kinds = {FaultKind::kServerKill};
  options.max_recovery = std::chrono::seconds(5);
  const auto report = RunStorm(options, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->ok());
}

}  // namespace
}  // namespace pawl
