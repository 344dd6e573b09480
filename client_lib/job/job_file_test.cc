#include "client_lib/job/job_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr char kFlights[] = R"(
name: "flights"
seed: 7
data { train: "train.libsvm" eval: "/data/eval.libsvm" format: LIBSVM }
model { deepfm { dim: 16 hidden: [128, 64] } }
optimizer { adagrad { learning_rate: 0.05 } }
consistency { mode: SYNC }
batch_size: 4096
epochs: 2
logical_workers: 4
)";

Job Flights() { return *ParseJob(kFlights, "flights.job"); }

TEST(JobFileTest, JsonIsTheSameJob) {
  const auto job = ParseJsonJob(
      R"({"name": "j", "batch_size": 64, "consistency": {"mode": "BOUNDED", "staleness": 2},
          "model": {"deepfm": {"dim": 8, "hidden": [4, 2]}}})",
      "j.json");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto text = ParseJob(
      "name: 'j' batch_size: 64 consistency { mode: BOUNDED staleness: 2 } "
      "model { deepfm { dim: 8 hidden: [4, 2] } }",
      "j.pbtxt");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(job->DebugString(), text->DebugString());
  for (const char* wrong : {R"({"bath_size": 1})", R"({"consistency": {"mode": "FAST"}})", "{"}) {
    const auto refused = ParseJsonJob(wrong, "j.json");
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_EQ(std::string(refused.status().message()).rfind("j.json: ", 0), 0u) << refused.status();
  }
}

TEST(JobFileTest, EveryFieldIsRead) {
  const Job job = Flights();
  EXPECT_EQ(job.name(), "flights");
  EXPECT_EQ(job.model().deepfm().hidden(1), 64u);
  EXPECT_FLOAT_EQ(job.optimizer().adagrad().learning_rate(), 0.05f);
  EXPECT_EQ(job.logical_workers(), 4u);
}

TEST(JobFileTest, UnknownFieldIsRefusedWithItsPosition) {
  const auto job = ParseJob("name: \"x\"\n  bach_size: 3\n", "x.job");
  ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(job.status().message().find("x.job:2:12: "), absl::string_view::npos) << job.status();
  EXPECT_NE(job.status().message().find("bach_size"), absl::string_view::npos) << job.status();
}

TEST(JobFileTest, UnknownEnumValueIsRefusedWithItsPosition) {
  const auto job = ParseJob("data { format: LIBSVN }", "x.job");
  ASSERT_FALSE(job.ok());
  EXPECT_NE(job.status().message().find("x.job:1:"), absl::string_view::npos) << job.status();
  EXPECT_NE(job.status().message().find("LIBSVN"), absl::string_view::npos) << job.status();
}

TEST(JobFileTest, OverlongFileIsRefused) {
  EXPECT_EQ(ParseJob(std::string(kMaxJobFileBytes + 1, ' '), "x.job").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JobFileTest, MissingFileIsNamed) {
  const auto job = ReadJobFile("/nowhere/flights.job");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(job.status().message().find("/nowhere/flights.job"), absl::string_view::npos);
}

TEST(JobFileTest, RelativePathsStartAtTheJobFilesFolder) {
  const std::filesystem::path folder = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "jobs";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "flights.job") << kFlights;
  const auto job = ReadJobFile((folder / "flights.job").string());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data().train(0), (folder / "train.libsvm").string());
  EXPECT_EQ(job->data().eval(0), "/data/eval.libsvm");
}

TEST(JobFileTest, JsonFileMayNameOneFileWithoutAList) {
  const auto one = ParseJsonJob(R"({"data": {"train": "a.csv"}})", "j.json");
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->data().train_size(), 1);
  EXPECT_EQ(one->data().train(0), "a.csv");
  const auto two = ParseJsonJob(R"({"data": {"train": ["a.csv", "b.csv"]}})", "j.json");
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->data().train_size(), 2);
}

TEST(JobFileTest, OverrideSetsANestedField) {
  Job job = Flights();
  ASSERT_TRUE(ApplyOverride(job, "optimizer.adagrad.learning_rate=0.1").ok());
  EXPECT_FLOAT_EQ(job.optimizer().adagrad().learning_rate(), 0.1f);
  ASSERT_TRUE(ApplyOverride(job, "consistency.mode=ASYNC").ok());
  EXPECT_EQ(job.consistency().mode(), ASYNC);
  ASSERT_TRUE(ApplyOverride(job, "data.train=other file.libsvm").ok());
  ASSERT_EQ(job.data().train_size(), 1);
  EXPECT_EQ(job.data().train(0), "other file.libsvm");
  ASSERT_TRUE(ApplyOverride(job, "data.train=['a', 'b*.gz']").ok());
  ASSERT_EQ(job.data().train_size(), 2);
  EXPECT_EQ(job.data().train(1), "b*.gz");
  ASSERT_TRUE(ApplyOverride(job, "data.eval=").ok());
  EXPECT_TRUE(job.data().eval().empty());
  ASSERT_TRUE(ApplyOverride(job, "name=\"quoted\"").ok());
  EXPECT_EQ(job.name(), "quoted");
  ASSERT_TRUE(ApplyOverride(job, "batch_size=8192").ok());
  EXPECT_EQ(job.batch_size(), 8192u);
}

TEST(JobFileTest, OverrideReplacesAWholeList) {
  Job job = Flights();
  ASSERT_TRUE(ApplyOverride(job, "model.deepfm.hidden=[32, 16, 8]").ok());
  ASSERT_EQ(job.model().deepfm().hidden_size(), 3);
  EXPECT_EQ(job.model().deepfm().hidden(0), 32u);
  EXPECT_EQ(job.model().deepfm().dim(), 16u);
}

TEST(JobFileTest, OverrideClearsOrReplacesAListOfAnyType) {
  for (const char* const nothing : {"", "[]", " [ ] "}) {
    Job job = Flights();
    for (const char* const path : {"model.deepfm.hidden=", "data.eval=", "data.csv.columns="}) {
      EXPECT_EQ(ApplyOverride(job, absl::StrCat(path, nothing)), absl::OkStatus()) << path;
    }
    EXPECT_EQ(job.model().deepfm().hidden_size(), 0) << nothing;
    EXPECT_EQ(job.data().eval_size(), 0) << nothing;
    EXPECT_EQ(job.data().csv().columns_size(), 0) << nothing;
    EXPECT_EQ(job.model().deepfm().dim(), 16u);
  }
  Job job = Flights();
  ASSERT_EQ(ApplyOverride(job, "data.csv.columns=[{name: 'a' label {}}, {name: 'b'}]"),
            absl::OkStatus());
  ASSERT_EQ(job.data().csv().columns_size(), 2);
  EXPECT_EQ(job.data().csv().columns(1).name(), "b");
}

TEST(JobFileTest, OverrideReplacesTheMemberOfAOneof) {
  Job job = Flights();
  ASSERT_TRUE(ApplyOverride(job, "optimizer.sgd.learning_rate=1").ok());
  EXPECT_TRUE(job.optimizer().has_sgd());
  ASSERT_TRUE(ApplyOverride(job, "model.fm={ dim: 8 }").ok());
  EXPECT_EQ(job.model().fm().dim(), 8u);
}

TEST(JobFileTest, InvalidOverrideNamesTheMistakeAndChangesNothing) {
  const Job before = Flights();
  for (const auto& [text, mistake] : std::initializer_list<std::pair<const char*, const char*>>{
           {"batch_size", "path=value"},
           {"=3", "path=value"},
           {"optimizer.adagrad.rate=0.1", "learning_rate"},
           {"bach_size=3", "batch_size"},
           {"batch_size.x=3", "no fields"},
           {"batch_size=-3", "-3"},
           {"batch_size=abc", "abc"},
           {"consistency.mode=FAST", "FAST"},
           {"batch_size=3 } epochs: 4 {", "override"},
           {"data.csv.columns=x", "list of messages"},
           {"data.csv.columns.name=x", "list of messages"}}) {
    Job job = before;
    const absl::Status status = ApplyOverride(job, text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(mistake), absl::string_view::npos) << status;
    EXPECT_EQ(job.SerializeAsString(), before.SerializeAsString()) << text;
  }
}

TEST(JobFileTest, DefaultsKeepFieldsThatAreSet) {
  Job job = Flights();
  job.clear_logical_workers();
  job.mutable_evaluation()->mutable_early_stopping();
  FillDefaults(job, 3);
  EXPECT_EQ(job.partitions(), 64u);
  EXPECT_EQ(job.logical_workers(), 3u);
  EXPECT_EQ(job.dense_path(), SERVER);
  EXPECT_EQ(job.model().loss(), LOGISTIC);
  EXPECT_EQ(job.evaluation().early_stopping().metric(), AUC);
  EXPECT_EQ(job.evaluation().early_stopping().patience(), 1u);
  EXPECT_EQ(job.epochs(), 2u);
  const std::string once = job.SerializeAsString();
  FillDefaults(job, 5);
  EXPECT_EQ(job.SerializeAsString(), once);
}

TEST(JobFileTest, NumberOfPartitionsFollowsTheShareOfABatch) {
  const auto partitions = [](uint32_t batch_size, uint32_t logical_workers) {
    Job job;
    job.set_batch_size(batch_size);
    job.set_logical_workers(logical_workers);
    FillDefaults(job, 1);
    return job.partitions();
  };
  EXPECT_EQ(partitions(0, 1), 256u) << "a job without training data";
  EXPECT_EQ(partitions(512, 4), 16u);
  EXPECT_EQ(partitions(512, 1), 32u);
  EXPECT_EQ(partitions(8192, 4), 128u);
  EXPECT_EQ(partitions(8191, 4), 64u);
  EXPECT_EQ(partitions(2047, 32), 16u);
  EXPECT_EQ(partitions(2048, 32), 64u) << "many servers may share the work";
  EXPECT_EQ(partitions(8192, 1), 256u);
  EXPECT_EQ(partitions(1u << 31, 1), 256u);
}

TEST(JobFileTest, LossAndMetricFollowTheModel) {
  Job mlp;
  mlp.mutable_model()->mutable_mlp()->set_classes(10);
  mlp.mutable_evaluation()->mutable_early_stopping();
  FillDefaults(mlp, 0);
  EXPECT_EQ(mlp.logical_workers(), 1u);
  EXPECT_EQ(mlp.model().loss(), SOFTMAX_CROSS_ENTROPY);
  EXPECT_EQ(mlp.evaluation().early_stopping().metric(), ACCURACY);
  Job factorization;
  factorization.mutable_model()->mutable_matrix_factorization();
  factorization.mutable_evaluation()->mutable_early_stopping();
  FillDefaults(factorization, 0);
  EXPECT_EQ(factorization.model().loss(), SQUARED);
  EXPECT_EQ(factorization.evaluation().early_stopping().metric(), RMSE);
}

TEST(JobFileTest, JobTextCanBeParsed) {
  const Job job = Flights();
  EXPECT_EQ(ParseJob(JobText(job), "again")->SerializeAsString(), job.SerializeAsString());
}

}  // namespace
}  // namespace pawl
