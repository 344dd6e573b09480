#include "scheduler/checkpoint/restore.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/job/job_file.h"
#include "gtest/gtest.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

constexpr char kJob[] = R"(
name: "flights" seed: 3
data { train: "train.libsvm" format: LIBSVM }
model { fm { dim: 4 } }
optimizer { sgd { learning_rate: 0.1 } }
batch_size: 64 logical_workers: 4 partitions: 2
)";

class RestoreTest : public testing::Test {
 protected:
  void SetUp() override {
    job_ = *ParseJob(kJob, "test.job");
    FillDefaults(job_, 1);
    dir_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                        testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  void Write(uint64_t step, bool with_manifest = true, bool is_final = false) {
    CheckpointManifest manifest;
    manifest.set_job_id(77);
    manifest.set_job_name("flights");
    manifest.set_step(step);
    manifest.set_is_final(is_final);
    manifest.set_job(job_.SerializeAsString());
    SchedulerState state;
    state.mutable_membership()->set_last_incarnation(step);
    manifest.set_scheduler_state(state.SerializeAsString());
    for (uint32_t p = 0; p < 2; ++p) {
      const auto writer = store().BeginPart({77, "flights", step, is_final}, p, step).value();
      ASSERT_TRUE(writer->Append("a partition").ok());
      *manifest.add_parts() = writer->Commit().value();
    }
    if (!with_manifest) return;
    const absl::Status status = store().WriteManifest(manifest);
    ASSERT_TRUE(status.ok()) << status;
  }
  static std::string Name(uint64_t step) { return CheckpointStore::NameOf("flights", step); }
  CheckpointStore store() const { return CheckpointStore(Env::Real(), dir_); }
  void FlipByte(const std::string& path, uint64_t offset) {
    std::FILE* const file = std::fopen(path.c_str(), "r+b");
    ASSERT_NE(file, nullptr) << path;
    std::fseek(file, static_cast<long>(offset), SEEK_SET);
    const int byte = std::fgetc(file);
    std::fseek(file, static_cast<long>(offset), SEEK_SET);
    std::fputc(byte ^ 1, file);
    std::fclose(file);
  }
  absl::Status Fits(const std::function<void(Job&)>& change) {
    CheckpointManifest manifest;
    manifest.set_job(job_.SerializeAsString());
    Job job = job_;
    change(job);
    return CheckFits(job, manifest);
  }

  Job job_;
  std::string dir_;
};

TEST_F(RestoreTest, NewestCompleteCheckpointIsUsed) {
  EXPECT_EQ(FindCheckpoint(Env::Real(), dir_, "flights").status().code(),
            absl::StatusCode::kNotFound);
  Write(9);
  Write(100);
  Write(200, /*with_manifest=*/false);
  const auto newest = FindCheckpoint(Env::Real(), dir_ + "/", "flights");
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->dir, dir_);
  EXPECT_EQ(newest->name, Name(100));
  EXPECT_EQ(newest->state.membership().last_incarnation(), 100u);
  const auto named = FindCheckpoint(Env::Real(), absl::StrCat(dir_, "/", Name(9)), "whatever");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->dir, dir_);
  EXPECT_EQ(named->manifest.step(), 9u);
  EXPECT_EQ(FindCheckpoint(Env::Real(), dir_, "another").status().code(),
            absl::StatusCode::kNotFound);
}

// The path may end with a slash, or contain a link.
TEST_F(RestoreTest, JobsOwnFolderKeepsItsConfiguredPath) {
  Write(9, /*with_manifest=*/true, /*is_final=*/true);
  const std::string link = dir_ + "-link";
  std::filesystem::create_directory_symlink(dir_, link);
  const auto found = FindCheckpoint(Env::Real(), link, "flights");
  ASSERT_TRUE(found.ok()) << found.status();
  job_.mutable_checkpoint()->set_dir(dir_);
  const StoredRestore restore = MakeStoredRestore(*found, job_);
  EXPECT_EQ(restore.dir(), dir_);
  EXPECT_EQ(restore.name(), found->name);
  EXPECT_EQ(restore.step(), 9u);
  for (const std::string& path : {dir_, link, link + "/", link + "/" + found->name})
    EXPECT_TRUE(IsSource(path, restore)) << path;
  EXPECT_FALSE(IsSource(dir_ + "-other", restore));
  std::filesystem::remove_all(JoinPath(dir_, found->name));
  EXPECT_TRUE(IsSource(JoinPath(link, found->name), restore)) << "old checkpoints are deleted";
  EXPECT_FALSE(IsSource(JoinPath(link, "other"), restore));
  job_.mutable_checkpoint()->set_dir(dir_ + "-other");
  EXPECT_EQ(MakeStoredRestore(*found, job_).dir(), link);
}

TEST_F(RestoreTest, LaterCheckpointsAndForeignEndsAreSetAside) {
  Write(8);
  Write(9);
  Write(9, /*with_manifest=*/true, /*is_final=*/true);
  Write(10);
  const std::string end = CheckpointStore::NameOf("flights", 9, /*is_final=*/true);
  StoredRestore restore;
  restore.set_dir(dir_);
  restore.set_name(end);
  restore.set_step(9);
  job_.mutable_checkpoint()->set_dir(dir_);
  EXPECT_EQ(SetAsideLaterCheckpoints(Env::Real(), job_, 78, restore).value(),
            std::vector<std::string>{Name(10)});
  restore.set_dir(dir_ + "-copy");
  EXPECT_EQ(SetAsideLaterCheckpoints(Env::Real(), job_, 78, restore).value(),
            std::vector<std::string>{end});
  job_.clear_checkpoint();
  EXPECT_TRUE(SetAsideLaterCheckpoints(Env::Real(), job_, 78, restore)->empty());
}

TEST_F(RestoreTest, RestoredBestParametersGiveAWarning) {
  job_.mutable_evaluation()->mutable_early_stopping()->set_patience(1);
  const auto warning = [&] {
    return RestoreWarning(Env::Real(), FindCheckpoint(Env::Real(), dir_, "flights").value());
  };
  Write(9, /*with_manifest=*/true, /*is_final=*/true);
  EXPECT_TRUE(absl::StrContains(warning(), "holds the best parameters")) << warning();
  EXPECT_FALSE(absl::StrContains(warning(), "name ")) << "no other checkpoint exists";
  Write(7);
  Write(8);
  EXPECT_TRUE(absl::StrContains(warning(), absl::StrCat("name ", dir_, "/", Name(8)))) << warning();
  Write(10);
  EXPECT_EQ(warning(), "") << "it is not a final checkpoint";
  job_.clear_evaluation();
  Write(11, /*with_manifest=*/true, /*is_final=*/true);
  EXPECT_EQ(warning(), "") << "nothing was restored";
}

TEST_F(RestoreTest, DamagedCheckpointIsRefusedAndTheFormerOffered) {
  for (const char* file : {"p1.part", "MANIFEST"}) {
    SCOPED_TRACE(file);
    dir_ += "x";
    Write(9);
    Write(100);
    const std::string path = absl::StrCat(dir_, "/", Name(100), "/", file);
    FlipByte(path, 30);
    const absl::Status status = FindCheckpoint(Env::Real(), dir_, "flights").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(path, " is damaged at offset ")))
        << status;
    EXPECT_TRUE(absl::StrContains(status.message(), Name(9))) << status;
  }
}

TEST_F(RestoreTest, IncompatibleJobIsRefused) {
  EXPECT_TRUE(Fits([](Job&) {}).ok());
  EXPECT_TRUE(Fits([](Job& job) {
                job.set_epochs(99);
                job.set_replicas(3);
                job.set_durability(FSYNC);
                job.mutable_data()->add_train("elsewhere/train.libsvm");
                job.mutable_checkpoint()->set_dir("/elsewhere");
                job.mutable_evaluation()->mutable_early_stopping()->set_patience(7);
              }).ok());
  const auto expect_refused = [&](const std::string& field,
                                  const std::function<void(Job&)>& change) {
    const absl::Status status = Fits(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_TRUE(absl::StartsWith(status.message(), field + " is ")) << status;
  };
  expect_refused("seed", [](Job& job) { job.set_seed(4); });
  expect_refused("partitions", [](Job& job) { job.set_partitions(4); });
  expect_refused("logical_workers", [](Job& job) { job.set_logical_workers(5); });
  expect_refused("batch_size", [](Job& job) { job.set_batch_size(65); });
  expect_refused("clip_global_norm", [](Job& job) { job.set_clip_global_norm(1); });
  expect_refused("consistency.mode", [](Job& job) { job.mutable_consistency()->set_mode(ASYNC); });
  expect_refused("dense_path", [](Job& job) { job.set_dense_path(ALLREDUCE); });
  EXPECT_TRUE(Fits([](Job& job) { job.set_dense_path(SERVER); }).ok()) << "SERVER is the default";
  job_.set_dense_path(ALLREDUCE);
  expect_refused("dense_path", [](Job& job) { job.set_dense_path(SERVER); });
  expect_refused("model", [](Job& job) { job.mutable_model()->mutable_fm()->set_dim(5); });
  expect_refused("optimizer",
                 [](Job& job) { job.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.2); });
  expect_refused("data.csv",
                 [](Job& job) { job.mutable_data()->mutable_csv()->set_no_header(true); });
  expect_refused("data.records.columns[0]", [](Job& job) {
    job.mutable_data()->mutable_records()->add_columns()->set_domain("item");
  });
  expect_refused("data.csv.columns[0]",
                 [](Job& job) { job.mutable_data()->mutable_csv()->add_columns(); });
  EXPECT_TRUE(Fits([](Job& job) {
                job.set_epochs(99);
                job.add_batch_size_changes()->set_epoch(90);
              }).ok())
      << "after the end of the former job";
  job_.set_epochs(50);
  expect_refused("batch_size", [](Job& job) { job.add_batch_size_changes()->set_epoch(49); });
  expect_refused("data.window_samples",
                 [](Job& job) { job.mutable_data()->set_window_samples(9); });
  expect_refused("data.max_bad_samples",
                 [](Job& job) { job.mutable_data()->set_max_bad_samples(9); });
  expect_refused("data.keep_order", [](Job& job) { job.mutable_data()->set_keep_order(true); });
}

TEST_F(RestoreTest, EvaluationNumbersMustMatch) {
  const absl::Status with = Fits([](Job& job) { job.mutable_data()->add_eval("eval.libsvm"); });
  EXPECT_EQ(with.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StartsWith(with.message(), "data.eval is set, but was not set when")) << with;
  job_.mutable_data()->add_eval("eval.libsvm");
  job_.mutable_evaluation()->set_every_steps(100);
  EXPECT_TRUE(Fits([](Job& job) { job.mutable_data()->add_eval("elsewhere/eval.libsvm"); }).ok());
  const absl::Status without = Fits([](Job& job) {
    job.mutable_data()->clear_eval();
    job.clear_evaluation();
  });
  EXPECT_TRUE(absl::StartsWith(without.message(), "data.eval is not set, but was set when"))
      << without;
  const absl::Status other = Fits([](Job& job) { job.mutable_evaluation()->set_every_steps(50); });
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StartsWith(other.message(), "evaluation.every_steps is 50, but was 100 when"))
      << other;
  EXPECT_TRUE(absl::StrContains(other.message(), "set it back, or start without")) << other;
}

TEST_F(RestoreTest, RefusedEvaluationIsNotAdvisedToStartWithoutACheckpoint) {
  const absl::Status refused = Fits([](Job& job) {
    job.mutable_evaluation()->set_only(true);
    job.set_seed(job.seed() + 1);
  });
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_TRUE(absl::EndsWith(refused.message(), "it must be the same to evaluate the checkpoint"))
      << refused;
}

TEST_F(RestoreTest, EvaluationAloneNeedsOnlyTheSameModel) {
  const auto only = [](const std::function<void(Job&)>& change) {
    return [change](Job& job) {
      job.mutable_evaluation()->set_only(true);
      change(job);
    };
  };
  const absl::Status fits = Fits(only([](Job& job) {
    job.mutable_data()->add_eval("new.libsvm");
    job.mutable_data()->set_window_samples(9);
    job.mutable_data()->set_max_bad_samples(9);
    job.mutable_evaluation()->set_every_steps(50);
    job.set_batch_size(65);
  }));
  EXPECT_TRUE(fits.ok()) << fits;
  EXPECT_FALSE(Fits(only([](Job& job) { job.mutable_model()->mutable_fm()->set_dim(5); })).ok());
  EXPECT_FALSE(Fits(only([](Job& job) { job.set_seed(4); })).ok());
  EXPECT_FALSE(Fits(only([](Job& job) { job.mutable_data()->set_format(CSV); })).ok());

  // The same features may come from another format.
  job_.mutable_data()->set_format(CSV);
  Column* const column = job_.mutable_data()->mutable_csv()->add_columns();
  column->set_name("item");
  column->set_position(3);
  column->mutable_categorical();
  column->mutable_list()->set_separator("|");
  const auto from_records = [&](const std::string& domain) {
    return only([domain](Job& job) {
      Column read = job.data().csv().columns(0);
      read.clear_position();
      read.mutable_list()->clear_separator();
      read.set_domain(domain);
      job.mutable_data()->clear_csv();
      job.mutable_data()->set_format(RECORDS);
      *job.mutable_data()->mutable_records()->add_columns() = read;
    });
  };
  EXPECT_TRUE(Fits(from_records("")).ok()) << Fits(from_records(""));
  const absl::Status other = Fits(from_records("else"));
  EXPECT_TRUE(absl::StartsWith(other.message(), "data.records.columns[0] is {")) << other;
}

TEST_F(RestoreTest, LaterCheckpointsAreSetAside) {
  for (const uint64_t step : {9, 100, 200}) Write(step);
  EXPECT_EQ(store().SetAsideAfter({78, "flights", 9})->size(), 2u);
  EXPECT_EQ(store().Newest("flights").value(), Name(9));
  Write(100);
  EXPECT_EQ(store().SetAsideAfter({78, "flights", 9})->size(), 1u);
  EXPECT_EQ(Env::Real().List(dir_)->size(), 4u) << "nothing is lost";
}

// A restarted scheduler cannot know whether the former one has set checkpoints aside.
TEST_F(RestoreTest, OwnCheckpointsStay) {
  for (const uint64_t step : {9, 100}) Write(step);
  Write(200, /*with_manifest=*/false);
  Write(300, /*with_manifest=*/true, /*is_final=*/true);
  EXPECT_TRUE(store().SetAsideAfter({77, "flights", 9})->empty());
  // Its parts say so, without a manifest.
  FlipByte(absl::StrCat(dir_, "/", Name(100), "/MANIFEST"), 30);
  EXPECT_TRUE(store().SetAsideAfter({77, "flights", 9})->empty());
  // It may just have started.
  std::filesystem::create_directory(absl::StrCat(dir_, "/", Name(400)));
  EXPECT_EQ(store().SetAsideAfter({78, "flights", 9}).value(),
            (std::vector<std::string>{Name(100), Name(200), Name(300) + "-end"}));
}

TEST_F(RestoreTest, RenamedCheckpointIsNotDamaged) {
  Write(9);
  const std::string aside = absl::StrCat(dir_, "/", Name(9), ".aside");
  std::filesystem::rename(absl::StrCat(dir_, "/", Name(9)), aside);
  const absl::Status status = FindCheckpoint(Env::Real(), aside, "flights").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), aside)) << status;
}

TEST_F(RestoreTest, FinalCheckpointIsLaterThanItsStep) {
  Write(9);
  Write(9, /*with_manifest=*/true, /*is_final=*/true);
  const std::string end = Name(9) + "-end";
  EXPECT_EQ(FindCheckpoint(Env::Real(), dir_, "flights")->name, end);
  EXPECT_EQ(FindCheckpoint(Env::Real(), dir_ + "/" + Name(9), "flights")->name, Name(9));
  EXPECT_EQ(store().SetAsideAfter({78, "flights", 9, /*is_final=*/true})->size(), 0u);
  EXPECT_EQ(store().SetAsideAfter({78, "flights", 9}).value(), std::vector<std::string>{end});
  EXPECT_EQ(store().Newest("flights").value(), Name(9));
}

TEST_F(RestoreTest, SourceIsRecognizedByBothPaths) {
  StoredRestore restore;
  restore.set_dir("/c");
  restore.set_name("a");
  EXPECT_TRUE(IsSource("/c/", restore));
  EXPECT_TRUE(IsSource("/c/a", restore));
  EXPECT_FALSE(IsSource("/c/b", restore));
}

}  // namespace
}  // namespace pawl
