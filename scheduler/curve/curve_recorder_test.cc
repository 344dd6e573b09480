#include "scheduler/curve/curve_recorder.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "gtest/gtest.h"
#include "scheduler/curve/event_file.h"

namespace pawl {
namespace {

std::string ContentOf(const std::string& folder) {
  std::stringstream text;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
  return text.str();
}

std::vector<CurveRecorder::Output> OutputsOf(std::unique_ptr<CurveSink> sink) {
  std::vector<CurveRecorder::Output> outputs;
  outputs.push_back({"--tensorboard_dir", std::move(sink)});
  return outputs;
}

TEST(CurveRecorderTest, LastPointsAreWrittenBeforeItStops) {
  const std::string folder = testing::TempDir() + "/curve_recorder";
  auto file = EventFile::Create(Env::Real(), folder, 1, "test");
  ASSERT_TRUE(file.ok()) << file.status();
  Mutex mu;
  GetStatusResponse status;
  CurveRecorder recorder(
      OutputsOf(*std::move(file)),
      [&] {
        MutexLock lock(mu);
        return status;
      },
      std::chrono::hours(1));
  {
    MutexLock lock(mu);
    status.set_steps(3);
  }
  EXPECT_TRUE(recorder.Stop(Clock::Real().Now() + std::chrono::seconds(30)));
  EXPECT_NE(ContentOf(folder).find("tables/rows"), std::string::npos);
}

TEST(CurveRecorderTest, PointsAreWrittenWhileTheJobRuns) {
  const std::string folder = testing::TempDir() + "/curve_running";
  auto file = EventFile::Create(Env::Real(), folder, 1, "test");
  ASSERT_TRUE(file.ok()) << file.status();
  std::atomic<uint64_t> steps = 0;
  const CurveRecorder recorder(
      OutputsOf(*std::move(file)),
      [&] {
        GetStatusResponse status;
        status.set_steps(steps++);
        return status;
      },
      std::chrono::milliseconds(1));
  const MonotonicTime deadline = Clock::Real().Now() + std::chrono::seconds(30);
  while (ContentOf(folder).find("tables/rows") == std::string::npos)
    ASSERT_LT(Clock::Real().Now(), deadline);
}

class FailingSink : public CurveSink {
 public:
  absl::Status Add(double, const CurvePoint&) override { return absl::DataLossError("full"); }
};

TEST(CurveRecorderTest, FailureOfAFileDoesNotEndTheOthers) {
  const std::string folder = testing::TempDir() + "/curve_failing";
  auto file = EventFile::Create(Env::Real(), folder, 1, "test");
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<CurveRecorder::Output> outputs = OutputsOf(std::make_unique<FailingSink>());
  outputs.push_back({"--curve_file", *std::move(file)});
  std::atomic<uint64_t> steps = 0;
  CurveRecorder recorder(
      std::move(outputs),
      [&] {
        GetStatusResponse status;
        status.set_steps(steps++);
        return status;
      },
      std::chrono::hours(1));
  EXPECT_TRUE(recorder.Stop(Clock::Real().Now() + std::chrono::seconds(30)));
  EXPECT_NE(ContentOf(folder).find("tables/rows"), std::string::npos);
}

}  // namespace
}  // namespace pawl
