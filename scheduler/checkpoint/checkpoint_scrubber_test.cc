#include "scheduler/checkpoint/checkpoint_scrubber.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "gtest/gtest.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 3;
constexpr char kFolder[] = "/checkpoints";

// Calls each hook before the operation of its name, which fails with the hook's error. Set the
// hooks before the scrubber starts.
class HookedEnv final : public ForwardingEnv {
 public:
  using ForwardingEnv::ForwardingEnv;

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    if (open != nullptr) open(path);
    return ForwardingEnv::OpenForRead(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    if (list != nullptr) PAWL_RETURN_IF_ERROR(list());
    return ForwardingEnv::List(folder);
  }

  std::function<void(const std::string& path)> open;
  std::function<absl::Status()> list;
};

class CheckpointScrubberTest : public testing::Test {
 protected:
  CheckpointScrubberTest() {
    hooked_.list = [this] {
      ++passes_begun_;
      return absl::OkStatus();
    };
    options_.dir = kFolder;
    options_.job_name = "job";
    options_.pause = std::chrono::milliseconds(1);
    options_.throttle = [](MonotonicDuration) {};
  }

  void Write(uint64_t step) {
    CheckpointManifest manifest;
    manifest.set_job_id(77);
    manifest.set_job_name("job");
    manifest.set_step(step);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      const auto part = store_.BeginPart({77, "job", step}, p, 9).value();
      EXPECT_TRUE(part->Append(std::string(1000 * (p + 1), 'x')).ok());
      *manifest.add_parts() = part->Commit().value();
    }
    EXPECT_TRUE(store_.WriteManifest(manifest).ok());
  }
  static std::string Path(uint64_t step, const std::string& file) {
    return absl::StrCat(kFolder, "/", CheckpointStore::NameOf("job", step), "/", file);
  }
  // Flips a bit on the disk. The system's cache has a good copy.
  void Flip(const std::string& path) {
    EXPECT_TRUE(env_.Rot(path, env_.Contents(path).size() / 2));
  }

  void Begin() {
    scrubber_ = std::make_unique<CheckpointScrubber>(
        hooked_, options_,
        CheckpointScrubber::Events{.may_read = [this] { return may_read_.load(); },
                                   .damaged =
                                       [this](const CheckpointId& id, const absl::Status& damage) {
                                         MutexLock lock(mu_);
                                         damaged_.push_back(
                                             absl::StrCat(id.step, ": ", damage.message()));
                                       }});
  }
  std::vector<std::string> Damaged() {
    MutexLock lock(mu_);
    return damaged_;
  }
  // Waits until three whole passes have run.
  bool Passes() {
    const int until = passes_begun_ + 4;
    return Eventually([&] { return passes_begun_ >= until; });
  }

  FaultEnv env_{1};
  CheckpointStore store_{env_, kFolder};
  HookedEnv hooked_{env_};
  CheckpointScrubberOptions options_;
  std::atomic<bool> may_read_ = true;
  std::atomic<int> passes_begun_ = 0;
  Mutex mu_;
  std::vector<std::string> damaged_ PAWL_GUARDED_BY(mu_);
  std::unique_ptr<CheckpointScrubber> scrubber_;
};

TEST_F(CheckpointScrubberTest, DamagedFileIsReportedOnceAndStays) {
  for (const uint64_t step : {10, 20, 30}) Write(step);
  Begin();
  ASSERT_TRUE(Passes());
  EXPECT_TRUE(Damaged().empty()) << Damaged().front();

  std::string damaged = env_.Contents(Path(20, "p1.part"));
  damaged[damaged.size() / 2] ^= 1;
  Flip(Path(20, "p1.part"));
  ASSERT_TRUE(Passes());
  ASSERT_EQ(Damaged().size(), 1u);
  EXPECT_TRUE(absl::StartsWith(Damaged()[0],
                               absl::StrCat("20: ", Path(20, "p1.part"), " is damaged at offset ")))
      << Damaged()[0];
  EXPECT_EQ(env_.Contents(Path(20, "p1.part")), damaged);

  Flip(Path(20, "p2.part"));
  ASSERT_TRUE(env_.Delete(Path(10, "p0.part")).ok());
  ASSERT_TRUE(Passes());
  const std::vector<std::string> all = Damaged();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(absl::StartsWith(all[1], absl::StrCat("20: ", Path(20, "p2.part")))) << all[1];
  EXPECT_TRUE(absl::StartsWith(
      all[2], absl::StrCat("10: ", Path(10, "p0.part"), " is damaged at offset 0: the file is")))
      << all[2];
}

TEST_F(CheckpointScrubberTest, FileThatRecoveredIsReportedAgain) {
  Write(10);
  Flip(Path(10, "p1.part"));
  Begin();
  ASSERT_TRUE(Passes());
  Flip(Path(10, "p1.part"));
  ASSERT_TRUE(Passes());
  EXPECT_EQ(Damaged().size(), 1u);
  Flip(Path(10, "p1.part"));
  ASSERT_TRUE(Passes());
  EXPECT_EQ(Damaged().size(), 2u);
}

TEST_F(CheckpointScrubberTest, UnreadableFileIsNotReportedAgain) {
  Write(10);
  Flip(Path(10, "p1.part"));
  std::atomic<bool> fails = false;
  hooked_.list = [&] {
    ++passes_begun_;
    return fails ? absl::UnavailableError("the share is away") : absl::OkStatus();
  };
  Begin();
  ASSERT_TRUE(Passes());
  fails = true;
  ASSERT_TRUE(Passes());
  fails = false;
  ASSERT_TRUE(Passes());
  scrubber_ = nullptr;
  EXPECT_EQ(Damaged().size(), 1u);
}

TEST_F(CheckpointScrubberTest, DamagedManifestIsReported) {
  Write(10);
  Write(20);
  Flip(Path(10, "MANIFEST"));
  Begin();
  ASSERT_TRUE(Passes());
  ASSERT_EQ(Damaged().size(), 1u);
  EXPECT_TRUE(absl::StartsWith(
      Damaged()[0], absl::StrCat("10: ", Path(10, "MANIFEST"), " is damaged at offset ")))
      << Damaged()[0];
}

TEST_F(CheckpointScrubberTest, OtherJobsAndIncompleteCheckpointsAreNotRead) {
  Write(10);
  ASSERT_TRUE(env_.Delete(Path(10, "MANIFEST")).ok());
  Flip(Path(10, "p0.part"));
  Write(20);
  Flip(Path(20, "p0.part"));
  options_.job_name = "another";
  Begin();
  ASSERT_TRUE(Passes());
  EXPECT_TRUE(Damaged().empty()) << Damaged().front();
  scrubber_ = nullptr;
  options_.job_name = "job";
  Begin();
  ASSERT_TRUE(Passes());
  ASSERT_EQ(Damaged().size(), 1u);
  EXPECT_TRUE(absl::StartsWith(Damaged()[0], "20: "));
}

TEST_F(CheckpointScrubberTest, TransientReadErrorIsNotReported) {
  Write(10);
  for (const std::string file : {"p1.part", "MANIFEST"}) {
    SCOPED_TRACE(file);
    // Every second read finds damage.
    std::atomic<int> looks = 0;
    hooked_.open = [&](const std::string& path) {
      if (path != Path(10, file)) return;
      ++looks;
      Flip(path);
      env_.DropCached(path);
    };
    Begin();
    ASSERT_TRUE(Passes());
    scrubber_ = nullptr;
    EXPECT_GE(looks, 6);
    EXPECT_EQ(looks % 2, 0);
    EXPECT_TRUE(Damaged().empty()) << Damaged().front();
  }
}

TEST_F(CheckpointScrubberTest, CheckpointDeletedWhileItIsReadIsNotDamaged) {
  for (const std::string file : {"MANIFEST", "p0.part", "p2.part"}) {
    SCOPED_TRACE(file);
    Write(10);
    Write(20);
    bool deleted = false;
    hooked_.open = [&](const std::string& path) {
      if (path != Path(10, file) || deleted) return;
      deleted = true;
      EXPECT_TRUE(store_.DeleteOld("job", 1).ok());
    };
    Begin();
    ASSERT_TRUE(Passes());
    scrubber_ = nullptr;
    EXPECT_TRUE(deleted);
    EXPECT_TRUE(Damaged().empty()) << Damaged().front();
    // For the next iteration.
    ASSERT_TRUE(env_.Delete(Path(20, "MANIFEST")).ok());
  }
}

TEST_F(CheckpointScrubberTest, RevokedCheckpointIsNotDamaged) {
  Write(10);
  Flip(Path(10, "p1.part"));
  std::atomic<int> looks = 0;
  hooked_.open = [&](const std::string& path) {
    if (path == Path(10, "p1.part") && ++looks == 1) may_read_ = false;
  };
  Begin();
  ASSERT_TRUE(Eventually([&] { return looks == 1; }));
  ASSERT_TRUE(env_.Delete(Path(10, "MANIFEST")).ok());
  may_read_ = true;
  ASSERT_TRUE(Passes());
  scrubber_ = nullptr;
  EXPECT_TRUE(Damaged().empty()) << Damaged().front();
}

TEST_F(CheckpointScrubberTest, PassPausesWithoutPermission) {
  Write(10);
  std::atomic<int> manifests = 0;
  std::atomic<int> parts = 0;
  hooked_.open = [&](const std::string& path) {
    if (absl::EndsWith(path, "MANIFEST")) ++manifests;
    if (absl::EndsWith(path, ".part") && ++parts == 2) may_read_ = false;
  };
  std::atomic<int> asked = 0;
  may_read_ = false;
  scrubber_ = std::make_unique<CheckpointScrubber>(
      hooked_, options_,
      CheckpointScrubber::Events{.may_read =
                                     [&] {
                                       ++asked;
                                       return may_read_.load();
                                     },
                                 .damaged = [](const CheckpointId&, const absl::Status&) {}});
  ASSERT_TRUE(Eventually([&] { return asked >= 3; }));
  EXPECT_EQ(passes_begun_, 0);
  EXPECT_EQ(manifests + parts, 0);
  may_read_ = true;
  ASSERT_TRUE(Eventually([&] { return parts == 2 && !may_read_; }));
  const int before = asked;
  ASSERT_TRUE(Eventually([&] { return asked >= before + 3; }));
  EXPECT_EQ(parts, 2);
  may_read_ = true;
  ASSERT_TRUE(Eventually([&] { return parts >= 3; }));
  scrubber_ = nullptr;
}

TEST_F(CheckpointScrubberTest, ReadingKeepsToTheRate) {
  Write(10);
  Write(20);
  uint64_t bytes = 0;
  uint64_t largest = 0;
  for (const uint64_t step : {10, 20}) {
    for (const char* file : {"MANIFEST", "p0.part", "p1.part", "p2.part"}) {
      const uint64_t size = env_.FileSize(Path(step, file)).value();
      bytes += size;
      largest = std::max(largest, size);
    }
  }
  constexpr uint64_t kRate = 1000;
  options_.bytes_per_s = kRate;
  MonotonicDuration paused{};
  MonotonicDuration longest{};
  options_.throttle = [&](MonotonicDuration pause) {
    paused += pause;
    longest = std::max(longest, pause);
  };
  std::vector<MonotonicDuration> paused_before_pass;
  hooked_.list = [&] {
    paused_before_pass.push_back(paused);
    ++passes_begun_;
    return absl::OkStatus();
  };
  Begin();
  ASSERT_TRUE(Passes());
  scrubber_ = nullptr;
  EXPECT_EQ(paused_before_pass[0], MonotonicDuration::zero());
  for (size_t pass = 1; pass < paused_before_pass.size(); ++pass) {
    EXPECT_NEAR(Seconds(paused_before_pass[pass] - paused_before_pass[pass - 1]),
                static_cast<double>(bytes) / kRate, 1e-6);
  }
  EXPECT_NEAR(Seconds(longest), static_cast<double>(largest) / kRate, 1e-6);
}

TEST_F(CheckpointScrubberTest, StopInterruptsTheWait) {
  Write(10);
  options_.bytes_per_s = 1;
  options_.throttle = nullptr;
  std::atomic<bool> manifest = false;
  std::atomic<bool> part = false;
  hooked_.open = [&](const std::string& path) {
    (absl::EndsWith(path, "MANIFEST") ? manifest : part) = true;
  };
  Begin();
  ASSERT_TRUE(Eventually([&] { return manifest.load(); }));
  // It waits for minutes.
  EXPECT_FALSE(Eventually([&] { return part.load(); }, std::chrono::milliseconds(50)));
  EXPECT_TRUE(scrubber_->Stop(Clock::Real().Now() + kTestPatience));
  EXPECT_FALSE(part);
}

TEST_F(CheckpointScrubberTest, StopDoesNotWaitForAHungShare) {
  Write(10);
  Flip(Path(10, "p1.part"));
  std::atomic<bool> hangs = false;
  std::atomic<bool> let_go = false;
  hooked_.open = [&](const std::string& path) {
    if (path != Path(10, "p1.part")) return;
    hangs = true;
    EXPECT_TRUE(Eventually([&] { return let_go.load(); }));
  };
  Begin();
  ASSERT_TRUE(Eventually([&] { return hangs.load(); }));
  EXPECT_FALSE(scrubber_->Stop(Clock::Real().Now()));
  let_go = true;
  EXPECT_TRUE(scrubber_->Stop(Clock::Real().Now() + kTestPatience));
  EXPECT_TRUE(Damaged().empty()) << "the part was read to its end, twice";
}

}  // namespace
}  // namespace pawl
