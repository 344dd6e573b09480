#include "worker/process/job_data.h"

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr uint64_t kMuch = uint64_t{1} << 40;

// 2,000 samples; every other one has the label `label`.
std::string Write(const std::string& name, const std::string& label) {
  std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream file(path);
  for (int i = 0; i < 2000; ++i) file << (i % 2 == 0 ? "1" : label) << " 1:" << i << "\n";
  return path;
}

Job JobWith(const std::string& train, const std::string& eval) {
  Job job;
  job.mutable_data()->set_format(LIBSVM);
  job.mutable_data()->add_train(train);
  if (!eval.empty()) job.mutable_data()->add_eval(eval);
  job.mutable_model()->mutable_logistic_regression();
  return job;
}

TEST(JobDataTest, EvaluationDataMayUseTheRemainingMemory) {
  const std::string train = Write("train", "0");
  // The memory that one file needs while it is read.
  uint64_t needed = 1000;
  while (absl::IsResourceExhausted(LoadJobData(JobWith(train, ""), {.max_bytes = needed}).status()))
    needed += needed / 10;
  const std::string eval = Write("eval", "0");
  const auto refused = LoadJobData(JobWith(train, eval), {.max_bytes = needed});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_TRUE(absl::StrContains(refused.status().message(), eval)) << refused.status();
  const auto data = LoadJobData(JobWith(train, eval), {.max_bytes = 2 * needed});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 2000u);
  EXPECT_EQ(data->eval->size(), 2000u);
}

TEST(JobDataTest, GlobsAndListsNameSeveralFiles) {
  Write("day_1", "0"), Write("day_2", "0");
  const auto data =
      LoadJobData(JobWith(absl::StrCat(testing::TempDir(), "/day_*"), Write("eval", "0")),
                  {.max_bytes = kMuch});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 4000u);
  EXPECT_EQ(data->eval->size(), 2000u);
}

TEST(JobDataTest, JobWithoutEvaluationFileHasNoEvaluationData) {
  const auto data = LoadJobData(JobWith(Write("train", "0"), ""), {.max_bytes = kMuch});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->eval, nullptr);
}

TEST(JobDataTest, LabelsThatTheLossRejectsAreRefused) {
  const std::string good = Write("good", "0"), bad = Write("bad", "7");
  for (const bool in_eval : {false, true}) {
    const auto data =
        LoadJobData(in_eval ? JobWith(good, bad) : JobWith(bad, good), {.max_bytes = kMuch});
    EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument) << data.status();
    const std::string words = absl::StrCat(in_eval ? "data.eval" : "data.train", ": the labels of ",
                                           bad, " go from 1 to 7");
    EXPECT_TRUE(absl::StrContains(data.status().message(), words)) << data.status();
  }
}

TEST(JobDataTest, GroupsThatTheEvaluationDataLacksAreRefused) {
  Job job = JobWith(Write("train", "0"), Write("eval", "0"));
  job.mutable_evaluation()->set_group_by("0");
  EXPECT_TRUE(LoadJobData(job, {.max_bytes = kMuch}).ok());
  job.mutable_evaluation()->set_group_by("1");
  EXPECT_EQ(LoadJobData(job, {.max_bytes = kMuch}).status(),
            absl::InvalidArgumentError("evaluation.group_by is \"1\", but data.eval has 1 fields"));
  job.mutable_evaluation()->set_group_by("qid");
  EXPECT_EQ(LoadJobData(job, {.max_bytes = kMuch}).status(),
            absl::InvalidArgumentError("evaluation.group_by is \"qid\", but no line of data.eval "
                                       "has a qid other than 0"));
}

TEST(JobDataTest, EvaluationDataCountsBesideWindows) {
  Job job = JobWith(Write("train-beside", "0"), Write("eval-beside", "0"));
  job.mutable_data()->set_window_samples(2000);
  const auto much = LoadJobData(job, {.max_bytes = kMuch});
  ASSERT_TRUE(much.ok()) << much.status();
  // Enough for the evaluation data or a window, but not for both.
  const auto data = LoadJobData(job, {.max_bytes = much->eval_in_memory->memory_bytes() * 3 / 2});
  ASSERT_TRUE(data.ok()) << data.status();
  const auto sampler =
      Sampler::Create({.samples = data->train->size(), .batch_size = 2000, .logical_workers = 1});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  Batch batch;
  EXPECT_EQ(data->train->OpenRank(*sampler, 0, 1, {FieldLayout::Single(2), {}})
                ->Assemble(0, &batch)
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(JobDataTest, WindowsMakeTheDataStreamed) {
  Job job = JobWith(Write("train", "0"), Write("eval", "0"));
  job.mutable_data()->set_window_samples(100);
  const auto data = LoadJobData(job, {.max_bytes = kMuch});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_NE(data->streamed, nullptr);
  EXPECT_EQ(data->train->size(), 2000u);
  EXPECT_EQ(MakeDataIndex(job, "").value(), data->streamed->id());
  job.mutable_data()->set_data_id("0123456789abcdef");
  EXPECT_EQ(LoadJobData(job, {.max_bytes = kMuch}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(JobDataTest, IndexOfReplacedEvaluationDataIsMadeAgain) {
  Job job = JobWith("/nonexistent", Write("replaced", "0"));
  job.mutable_data()->set_window_samples(100);
  job.mutable_data()->set_stream_eval(true);
  job.mutable_evaluation()->set_only(true);
  ASSERT_TRUE(LoadJobData(job, {.max_bytes = kMuch}).ok());
  std::ofstream(job.data().eval(0)) << "1 1:1\n";
  EXPECT_EQ(LoadJobData(job, {.max_bytes = kMuch}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(MakeDataIndex(job, "").ok());
  const auto data = LoadJobData(job, {.max_bytes = kMuch});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->eval->size(), 1u);
}

}  // namespace
}  // namespace pawl
