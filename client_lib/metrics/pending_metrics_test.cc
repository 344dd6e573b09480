#include "client_lib/metrics/pending_metrics.h"

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

WorkerProgress ReportOf(const PendingMetrics& pending) {
  WorkerProgress progress;
  pending.AddTo(progress);
  return progress;
}

Figures FiguresOf(const WorkerProgress& progress) {
  Figures figures;
  for (const UserMetric& metric : progress.metrics())
    figures[metric.name()] = {metric.step(), metric.value()};
  return figures;
}

TEST(PendingMetricsTest, LatestFigureOfEachNameIsReported) {
  PendingMetrics pending;
  ASSERT_TRUE(pending.Add("a", 3, 0.5).ok());
  ASSERT_TRUE(pending.Add("b", 1, 2).ok());
  ASSERT_TRUE(pending.Add("a", 4, 0.25).ok());
  // A step that is repeated replaces its figure; an earlier step does not.
  ASSERT_TRUE(pending.Add("a", 4, 0.125).ok());
  ASSERT_TRUE(pending.Add("a", 2, 9).ok());
  EXPECT_EQ(FiguresOf(ReportOf(pending)), (Figures{{"a", {4, 0.125}}, {"b", {1, 2}}}));
}

TEST(PendingMetricsTest, FiguresArePendingUntilTheyAreAcknowledged) {
  PendingMetrics pending;
  ASSERT_TRUE(pending.Add("a", 1, 1).ok());
  ASSERT_TRUE(pending.Add("b", 1, 1).ok());
  const WorkerProgress report = ReportOf(pending);
  EXPECT_EQ(ReportOf(pending).metrics_size(), 2);
  // On its way while "a" changes.
  ASSERT_TRUE(pending.Add("a", 1, 2).ok());
  pending.Acknowledge(report);
  EXPECT_EQ(FiguresOf(ReportOf(pending)), (Figures{{"a", {1, 2}}}));
  pending.Acknowledge(ReportOf(pending));
  EXPECT_EQ(ReportOf(pending).metrics_size(), 0);
}

TEST(PendingMetricsTest, LimitOnNamesIsNamed) {
  PendingMetrics pending;
  for (size_t i = 0; i < kMaxMetricNames; ++i)
    ASSERT_TRUE(pending.Add(absl::StrCat("m", i), 0, 1).ok());
  pending.Acknowledge(ReportOf(pending));
  const absl::Status status = pending.Add("one-more", 0, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "'one-more': there are 256 metrics")) << status;
  EXPECT_TRUE(pending.Add("m7", 5, 1).ok());
}

TEST(PendingMetricsTest, RefusedFigureChangesNothing) {
  PendingMetrics pending;
  EXPECT_TRUE(absl::IsInvalidArgument(pending.Add("a b", 0, 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(pending.Add("a", 0, NAN)));
  EXPECT_EQ(ReportOf(pending).metrics_size(), 0);
}

}  // namespace
}  // namespace pawl
