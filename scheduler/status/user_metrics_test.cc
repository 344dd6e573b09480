#include "scheduler/status/user_metrics.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/metrics/user_metric.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Figures = std::map<std::string, std::pair<uint64_t, double>>;

void AddMetric(WorkerProgress& progress, const std::string& name, uint64_t step, double value) {
  UserMetric& metric = *progress.add_metrics();
  metric.set_name(name);
  metric.set_step(step);
  metric.set_value(value);
}

WorkerProgress ReportOf(const std::string& name, uint64_t step, double value) {
  WorkerProgress progress;
  AddMetric(progress, name, step, value);
  return progress;
}

Figures FiguresOf(const UserMetrics& metrics) {
  GetStatusResponse status;
  metrics.AddTo(status);
  Figures figures;
  for (const UserMetric& metric : status.metrics())
    figures[metric.name()] = {metric.step(), metric.value()};
  return figures;
}

TEST(UserMetricsTest, LatestStepOfEachNameIsKept) {
  UserMetrics metrics;
  metrics.Note(ReportOf("b", 5, 0.5));
  metrics.Note(ReportOf("a", 7, 1));
  metrics.Note(ReportOf("b", 4, 9));
  EXPECT_EQ(FiguresOf(metrics), (Figures{{"a", {7, 1}}, {"b", {5, 0.5}}}));
  // A step that is computed again replaces its figure.
  metrics.Note(ReportOf("b", 5, 0.25));
  EXPECT_EQ(FiguresOf(metrics), (Figures{{"a", {7, 1}}, {"b", {5, 0.25}}}));
}

TEST(UserMetricsTest, FurtherNamesAreIgnored) {
  UserMetrics metrics;
  for (size_t i = 0; i < kMaxMetricNames; ++i) metrics.Note(ReportOf(absl::StrCat("m", i), 1, 1));
  metrics.Note(ReportOf("one-more", 1, 1));
  metrics.Note(ReportOf("m3", 2, 5));
  const Figures figures = FiguresOf(metrics);
  EXPECT_EQ(figures.size(), kMaxMetricNames);
  EXPECT_EQ(figures.count("one-more"), 0u);
  EXPECT_EQ(figures.at("m3").second, 5);
}

TEST(UserMetricsTest, ReportsThatNoClientSendsAreRefused) {
  EXPECT_TRUE(UserMetrics::Check(ReportOf("a", 1, 1)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(UserMetrics::Check(ReportOf("a", 1, NAN))));
  EXPECT_TRUE(absl::IsInvalidArgument(UserMetrics::Check(ReportOf("a\"} 1\nb", 1, 1))));
  WorkerProgress many;
  for (size_t i = 0; i < kMaxMetricsInMessage; ++i) AddMetric(many, "a", i, 1);
  EXPECT_TRUE(UserMetrics::Check(many).ok());
  AddMetric(many, "a", 0, 1);
  const absl::Status refused = UserMetrics::Check(many);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_TRUE(absl::StrContains(refused.message(), "at most 1024")) << refused;
}

TEST(UserMetricsTest, SavedFiguresAreRestored) {
  UserMetrics metrics;
  metrics.Note(ReportOf("a", 7, 1));
  metrics.Note(ReportOf("b", 8, 2));
  StoredMembership stored;
  stored.add_nodes()->set_role(SERVER_ROLE);
  stored.add_nodes()->set_role(WORKER_ROLE);
  stored.add_nodes()->set_role(WORKER_ROLE);
  metrics.Save(stored);
  UserMetrics restored;
  restored.Restore(stored);
  EXPECT_EQ(FiguresOf(restored), FiguresOf(metrics));
  EXPECT_EQ(stored.nodes(2).progress().metrics_size(), 0);
}

}  // namespace
}  // namespace pawl
