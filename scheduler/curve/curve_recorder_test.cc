#include "scheduler/curve/curve_recorder.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

std::string ContentOf(const std::string& folder) {
  std::stringstream text;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
  return text.str();
}

TEST(CurveRecorderTest, LastPointsAreWrittenBeforeItStops) {
  const std::string folder = testing::TempDir() + "/curve_recorder";
  auto file = EventFile::Create(Env::Real(), folder, 1, "test");
  ASSERT_TRUE(file.ok()) << file.status();
  Mutex mu;
  GetStatusResponse status;
  CurveRecorder recorder(
      *std::move(file),
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
      *std::move(file),
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

}  // namespace
}  // namespace pawl
