#include "tests/chaos/storm/storm_report.h"

#include <chrono>
#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

StormReport Report() {
  StormReport report;
  report.seed = 42;
  report.faults.push_back({FaultKind::kServerKill,
                           "server-kill of server-1",
                           1.5,
                           2.0,
                           {milliseconds(300), milliseconds(900)}});
  report.faults.push_back({FaultKind::kServerKill,
                           "server-kill of server-2",
                           9.5,
                           4.0,
                           {milliseconds(500), milliseconds(100)}});
  report.faults.push_back({FaultKind::kLinkDelay, "link-delay", 19.5, -1, {}});
  report.pushes_sent = 1000;
  report.pushes_failed["UNAVAILABLE"] = 2;
  return report;
}

TEST(StormReportTest, ReportSummarizesFaultsByKind) {
  const nlohmann::json json = Report().ToJson();
  EXPECT_EQ(json["seed"], 42);
  EXPECT_EQ(json["ok"], true);
  const nlohmann::json& kill = json["faults"]["server-kill"];
  EXPECT_EQ(kill["count"], 2);
  EXPECT_EQ(kill["pause"]["count"], 4);
  EXPECT_DOUBLE_EQ(kill["pause"]["p50_s"], 0.3);
  EXPECT_DOUBLE_EQ(kill["pause"]["max_s"], 0.9);
  EXPECT_DOUBLE_EQ(kill["recovery"]["max_s"], 4.0);
  // A fault without recovery has no recovery time.
  EXPECT_EQ(json["faults"]["link-delay"]["recovery"]["count"], 0);
  EXPECT_EQ(json["pushes"]["failed"]["UNAVAILABLE"], 2);
}

TEST(StormReportTest, FaultsThatDidNotHappenAreNotMeasured) {
  StormReport report = Report();
  report.faults[1].happened = false;
  const nlohmann::json kill = report.ToJson()["faults"]["server-kill"];
  EXPECT_EQ(kill["count"], 2);
  EXPECT_EQ(kill["happened"], 1);
  EXPECT_DOUBLE_EQ(kill["recovery"]["max_s"], 2.0);
  EXPECT_NE(report.ToText().find("1 of 2"), std::string::npos) << report.ToText();
}

TEST(StormReportTest, KindThatNeverHappensIsNamed) {
  StormReport report = Report();
  FaultRecord vain{FaultKind::kLinkReset, "link-reset", 1, 1, {}, /*happened=*/false};
  for (uint64_t i = 1; i < kInjectionsToHappen; ++i) report.faults.push_back(vain);
  EXPECT_TRUE(KindsThatNeverHappened(report.faults).empty());
  report.faults.push_back(vain);
  ASSERT_EQ(KindsThatNeverHappened(report.faults).size(), 1u);
  EXPECT_EQ(KindsThatNeverHappened(report.faults)[0],
            "link-reset was injected 8 times and never happened");
  vain.happened = true;
  report.faults.push_back(vain);
  EXPECT_TRUE(KindsThatNeverHappened(report.faults).empty());
}

TEST(StormReportTest, ViolationFailsTheReport) {
  StormReport report = Report();
  EXPECT_NE(report.ToText().find("all promises kept"), std::string::npos);
  report.violations.emplace_back("worker 1, sequence 2, partition 3: lost");
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.ToJson()["ok"], false);
  EXPECT_NE(report.ToText().find("VIOLATION: worker 1, sequence 2, partition 3: lost"),
            std::string::npos);
  EXPECT_EQ(report.ToText().find("all promises kept"), std::string::npos);
}

}  // namespace
}  // namespace pawl
