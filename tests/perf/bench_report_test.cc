#include "tests/perf/bench_report.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

BenchRow Throughput() {
  return {.name = "dense push",
          .value = 1.5,
          .unit = "GB/s",
          .limit_name = "iperf3",
          .limit = 2.0,
          .goal = 1.4};
}

TEST(BenchReportTest, ThroughputShareIsValueOverLimit) {
  EXPECT_DOUBLE_EQ(Throughput().share(), 0.75);
}

TEST(BenchReportTest, LatencyShareIsLimitOverValue) {
  const BenchRow row = {.name = "p50",
                        .value = 80,
                        .unit = "us",
                        .limit_name = "echo",
                        .limit = 60,
                        .smaller_is_better = true};
  EXPECT_DOUBLE_EQ(row.share(), 0.75);
}

TEST(BenchReportTest, RowWithoutALimitHasNoShare) {
  EXPECT_EQ((BenchRow{.name = "n", .value = 1}).share(), 0);
  const auto json = nlohmann::json::parse(BenchJson({{.name = "n", .value = 1, .note = "why"}}));
  EXPECT_FALSE(json["rows"][0].contains("share"));
  EXPECT_EQ(json["rows"][0]["note"], "why");
}

TEST(BenchReportTest, JsonMatchesTheTable) {
  const auto json = nlohmann::json::parse(BenchJson({Throughput()}));
  EXPECT_EQ(json["rows"][0]["name"], "dense push");
  EXPECT_DOUBLE_EQ(json["rows"][0]["share"].get<double>(), 0.75);
  const std::string table = BenchTable({Throughput()});
  for (const char* part : {"dense push", "1.500 GB/s", "2.000 iperf3", "0.75", "1.40"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
}

}  // namespace
}  // namespace pawl
