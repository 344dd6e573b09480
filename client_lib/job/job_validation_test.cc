#include "client_lib/job/job_validation.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/job/group_field.h"
#include "client_lib/job/job_file.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::HasSubstr;

constexpr char kFlights[] = R"(
name: "flights"
data { train: "train.csv" eval: "eval.csv" format: CSV csv {
  columns { name: "late" label { greater_than: 15 } }
  columns { name: "distance" numeric { scale: 100 } }
  columns { name: "origin" categorical {} }
  columns { name: "hour" bucketized { width: 1 } }
  columns { name: "origin_hour" crossed { columns: ["origin", "hour"] buckets: 1000 } }
} }
model { deepfm { dim: 16 hidden: [128, 64] } }
optimizer { adagrad { learning_rate: 0.05 } }
batch_size: 4096
epochs: 2
logical_workers: 4
)";

Job Changed(const std::vector<std::string>& overrides) {
  Job job = *ParseJob(kFlights, "flights.job");
  for (const std::string& text : overrides) {
    const absl::Status status = ApplyOverride(job, text);
    EXPECT_TRUE(status.ok()) << status;
  }
  return job;
}

absl::Status Validate(const Job& job, uint32_t workers = 0) {
  JobValidationOptions options;
  options.check_files = false;
  options.workers = workers;
  return ValidateJob(job, options);
}

void ExpectRefused(const std::vector<std::string>& overrides, const std::string& text,
                   absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = Validate(Changed(overrides));
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
}

TEST(JobValidationTest, InvalidPrecisionIsRefused) {
  for (const char* field : {"precision.compute", "precision.gradients"}) {
    for (const char* type : {"FLOAT32", "BFLOAT16", "FLOAT16"}) {
      EXPECT_EQ(Validate(Changed({absl::StrCat(field, "=", type)})), absl::OkStatus())
          << field << type;
    }
    Job job = Changed({});
    const auto unknown = static_cast<ElementType>(4);
    absl::EndsWith(field, "compute") ? job.mutable_precision()->set_compute(unknown)
                                     : job.mutable_precision()->set_gradients(unknown);
    const absl::Status status = Validate(job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(
                  absl::StrCat(field, " is 4; it must be FLOAT32, BFLOAT16 or FLOAT16")),
              absl::string_view::npos)
        << status;
  }
  for (const char* scale : {"0", "1", "2", "32768", "16777216"}) {
    EXPECT_EQ(Validate(Changed(
                  {"precision.compute=FLOAT16", absl::StrCat("precision.loss_scale=", scale)})),
              absl::OkStatus())
        << scale;
  }
  for (const char* scale : {"0.5", "-2", "3", "32767", "33554432", "nan", "inf"}) {
    ExpectRefused({"precision.compute=FLOAT16", absl::StrCat("precision.loss_scale=", scale)},
                  "it must be a power of two");
  }
  for (const char* compute : {"FLOAT32", "BFLOAT16"}) {
    ExpectRefused({absl::StrCat("precision.compute=", compute), "precision.gradients=FLOAT16",
                   "precision.loss_scale=2"},
                  "precision.loss_scale is 2, but it requires precision.compute FLOAT16");
  }
  ExpectRefused({"precision.loss_scale=2"}, "leave it out");
}

TEST(JobValidationTest, RecomputedLayersMustExist) {
  const auto model = [](const std::string& text) {
    Job job = Changed({});
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, job.mutable_model()));
    return job;
  };
  const std::string dlrm = "dlrm { dim: 8 bottom: [16, 8] top: [32] }";
  for (const char* names : {"'all'", "'top/0'", "'bottom/1', 'top/1', 'all'"}) {
    EXPECT_EQ(Validate(model(absl::StrCat(dlrm, " recompute: [", names, "]"))), absl::OkStatus());
  }
  EXPECT_EQ(Validate(model("deepfm { dim: 8 hidden: [4, 4] } recompute: 'mlp/2'")),
            absl::OkStatus());
  const auto refused = [&](const std::string& text, const std::string& words) {
    const absl::Status status = Validate(model(text));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  };
  refused(absl::StrCat(dlrm, " recompute: ['top/0', 'top/2']"),
          "model.recompute[1] is 'top/2', which is not a layer; the layers are bottom/0, bottom/1, "
          "top/0, "
          "top/1; \"all\" names all of them");
  refused("deepfm { dim: 8 } recompute: 'mlp/0/weight'", "model.recompute[0]");
  refused("deepfm { dim: 8 } recompute: ''", "model.recompute[0] is ''");
  refused("fm { dim: 8 } recompute: 'mlp/0'", "the model has no fully connected layers");
}

TEST(JobValidationTest, InitialParametersMustBeFinite) {
  Job job = Changed({});
  job.mutable_model()->mutable_fm()->set_dim(8);
  job.mutable_model()->mutable_fm()->set_init_stddev(4e37f);
  EXPECT_EQ(Validate(job), absl::OkStatus());
  for (const float impossible : {5e37f, -1.0f, std::numeric_limits<float>::infinity()}) {
    job.mutable_model()->mutable_fm()->set_init_stddev(impossible);
    const absl::Status status = Validate(job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(absl::StrCat("model.fm.init_stddev is ", impossible)),
              absl::string_view::npos)
        << status;
  }
}

TEST(JobValidationTest, ValidJobPassesWithAndWithoutDefaults) {
  Job job = Changed({});
  EXPECT_EQ(Validate(job), absl::OkStatus());
  FillDefaults(job, 2);
  EXPECT_EQ(Validate(job, 2), absl::OkStatus());
}

TEST(JobValidationTest, ServeOnlyJobNeedsOnlyAName) {
  Job job;
  job.set_name("tables");
  EXPECT_TRUE(IsServeOnly(job));
  EXPECT_EQ(Validate(job), absl::OkStatus());
  job.clear_name();
  EXPECT_FALSE(Validate(job).ok());
}

TEST(JobValidationTest, ServeOnlyJobHasNoFieldThatOnlyPawlWorkerReads) {
  for (const std::string setting :
       {"evaluation.every_steps=5", "epochs=2", "max_steps=1000", "micro_batches=2",
        "precision.gradients=BFLOAT16", "matmul=FAST", "batch_size_changes=[{epoch:1}]",
        "delay_compensation=0.5"}) {
    Job job;
    job.set_name("tables");
    ASSERT_EQ(ApplyOverride(job, setting), absl::OkStatus());
    const absl::Status status = Validate(job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << setting;
    const std::string field = setting.substr(0, setting.find_first_of(".="));
    EXPECT_EQ(status.message().find(field + " is set, but the job has neither data nor model"), 0u)
        << status;
  }
}

// The number of partitions depends on it.
TEST(JobValidationTest, ServeOnlyJobMayHaveABatchSize) {
  Job job;
  job.set_name("tables");
  job.set_batch_size(512);
  EXPECT_EQ(Validate(job), absl::OkStatus());
}

TEST(JobValidationTest, InvalidValuesAreNamed) {
  ExpectRefused({"name=two words"}, "name is 'two words'");
  ExpectRefused({"logical_workers=16385"}, "logical_workers is 16385");
  ExpectRefused({"partitions=65537"}, "partitions is 65537");
  ExpectRefused({"min_in_sync=2"}, "min_in_sync is 2, but replicas is 1");
  ExpectRefused({"replicas=2", "min_in_sync=3"}, "lower it to at most that, or raise replicas");
  ExpectRefused({"batch_size=0"}, "batch_size is 0");
  ExpectRefused({"batch_size=3"}, "batch_size is 3");
  ExpectRefused({"epochs=1000001"}, "epochs is 1000001");
  ExpectRefused({"micro_batches=65537"}, "micro_batches is 65537");
  ExpectRefused({"optimizer.adagrad.learning_rate=-1"}, "optimizer.adagrad.learning_rate is -1");
}

TEST(JobValidationTest, InvalidAllReduceSettingsAreRefused) {
  EXPECT_EQ(Validate(Changed({"dense_path=ALLREDUCE"})), absl::OkStatus());
  EXPECT_EQ(Validate(Changed(
                {"dense_path=ALLREDUCE", "all_reduce.bucket_bytes=1024", "micro_batches=4"})),
            absl::OkStatus());
  ExpectRefused({"all_reduce.bucket_bytes=2048"}, "dense_path is not ALLREDUCE");
  ExpectRefused({"dense_path=ALLREDUCE", "all_reduce.bucket_bytes=1023"},
                "all_reduce.bucket_bytes is 1023");
  ExpectRefused({"dense_path=ALLREDUCE", "all_reduce.bucket_bytes=1073741825"},
                "all_reduce.bucket_bytes is 1073741825");
  ExpectRefused({"dense_path=ALLREDUCE", "all_reduce.write_back_steps=1000001"},
                "all_reduce.write_back_steps is 1000001");
  ExpectRefused({"dense_path=ALLREDUCE", "consistency.backup_workers=1"},
                "consistency.backup_workers is 1");
  const std::vector<std::string> sharded = {"dense_path=ALLREDUCE",
                                            "all_reduce.sharded_optimizer=true"};
  EXPECT_EQ(Validate(Changed(sharded)), absl::OkStatus());
  for (const auto& [setting, field] :
       {std::pair("optimizer.rowwise_adagrad.learning_rate=1", "optimizer.rowwise_adagrad"),
        std::pair("optimizer.clip_norm=0.5", "optimizer.clip_norm is 0.5")}) {
    std::vector<std::string> settings = sharded;
    settings.emplace_back(setting);
    ExpectRefused(settings, "all_reduce.sharded_optimizer is set");
    ExpectRefused(settings, field);
  }
  Job job;
  job.set_name("tables");
  job.set_dense_path(ALLREDUCE);
  EXPECT_NE(Validate(job).message().find("no model"), absl::string_view::npos);
}

TEST(JobValidationTest, OptimizerModelAndDataMustFit) {
  Job job = Changed({});
  job.clear_optimizer();
  EXPECT_NE(Validate(job).message().find("optimizer is missing"), absl::string_view::npos);
  job = Changed({});
  job.clear_model();
  EXPECT_NE(Validate(job).message().find("model is missing"), absl::string_view::npos);
  job = Changed({});
  job.clear_data();
  EXPECT_NE(Validate(job).message().find("data is missing"), absl::string_view::npos);
}

TEST(JobValidationTest, ClipGlobalNormMustFitTheJob) {
  EXPECT_EQ(Validate(Changed({"clip_global_norm=0.5"})), absl::OkStatus());
  EXPECT_EQ(Validate(Changed({"clip_global_norm=0", "consistency.mode=ASYNC"})), absl::OkStatus());
  for (const char* value : {"-1", "inf", "nan"}) {
    ExpectRefused({absl::StrCat("clip_global_norm=", value)},
                  absl::StrCat("clip_global_norm is ", value));
  }
  for (const char* other : {"consistency.mode=ASYNC", "consistency.mode=BOUNDED",
                            "consistency.backup_workers=1", "dense_path=ALLREDUCE"}) {
    ExpectRefused({"clip_global_norm=0.5", other}, "clip_global_norm is 0.5, but");
    ExpectRefused({"clip_global_norm=0.5", other},
                  std::string(other, std::string(other).find('=')));
  }
}

TEST(JobValidationTest, ConsistencyFieldsMustFitTheMode) {
  ExpectRefused({"consistency.staleness=3"}, "use mode: BOUNDED");
  ExpectRefused({"consistency.mode=ASYNC", "consistency.backup_workers=1"}, "only SYNC");
  ExpectRefused({"consistency.backup_workers=4"}, "backup_workers is 4 of 4");
  EXPECT_EQ(Validate(Changed({"consistency.mode=BOUNDED", "consistency.staleness=3"})),
            absl::OkStatus());
  EXPECT_EQ(Validate(Changed({"consistency.backup_workers=3"})), absl::OkStatus());
  for (const char* const field : {"consistency.read_my_writes", "consistency.staleness_aware"}) {
    const std::string setting = absl::StrCat(field, "=true");
    ExpectRefused({setting}, field);
    EXPECT_EQ(Validate(Changed({"consistency.mode=ASYNC", setting})), absl::OkStatus());
    EXPECT_EQ(Validate(Changed({"consistency.mode=BOUNDED", setting})), absl::OkStatus());
  }
  ExpectRefused(
      {"consistency.mode=ASYNC", "consistency.staleness_aware=true", "dense_path=ALLREDUCE"},
      "consistency.staleness_aware is set");
}

TEST(JobValidationTest, MoreWorkersThanRanksAreRefused) {
  EXPECT_EQ(Validate(Changed({}), 4), absl::OkStatus());
  EXPECT_NE(Validate(Changed({}), 5).message().find("fewer than the 5 workers"),
            absl::string_view::npos);
}

TEST(JobValidationTest, DataMustFitTheModel) {
  ExpectRefused({"model.mlp={ hidden: 8 classes: 2 }", "data.format=LIBSVM", "data.csv={}"},
                "data.csv is set");
  ExpectRefused({"model.dlrm={ dim: 8 top: 4 }"}, "bottom must end with");
  ExpectRefused({"model.dlrm={ dim: 8 bottom: [16, 4] top: 4 }"}, "bottom must end with");
  EXPECT_EQ(Validate(Changed({"model.dlrm={ dim: 8 bottom: [16, 8] top: 4 }"})), absl::OkStatus());
  ExpectRefused({"model.deepfm.dim=0"}, "model.deepfm.dim is 0");
  ExpectRefused({"model.deepfm.hidden=[8, 0]"}, "hidden[1] is 0");
  ExpectRefused({"model.mlp={ hidden: 8 classes: 0 }"}, "classes is 0");
  ExpectRefused({"model.loss=SOFTMAX_CROSS_ENTROPY"}, "model.loss is SOFTMAX_CROSS_ENTROPY");
  ExpectRefused({"data.format=DATA_FORMAT_UNSPECIFIED", "data.csv={}"}, "data.csv is set");
  ExpectRefused({"data.libsvm_fields=3"}, "libsvm_fields is 3");
  Job libsvm = Changed({"data.format=LIBSVM", "model.mlp={ hidden: 8 classes: 2 }"});
  libsvm.mutable_data()->clear_csv();
  EXPECT_NE(Validate(libsvm).message().find("needs numeric inputs"), absl::string_view::npos);
}

// Mistakes that a worker could report only after all nodes are present and the data has been read.
TEST(JobValidationTest, UntrainableJobIsRefused) {
  ExpectRefused({"model.mlp={ hidden: 8 classes: 2 }"}, "model.mlp takes only numeric inputs");
  ExpectRefused({"model.deepfm.hidden=16385"}, "model.deepfm.hidden[0] is 16385");
  ExpectRefused({"model.mlp={ hidden: 8 classes: 16385 }"}, "model.mlp.classes is 16385");
  ExpectRefused({"model.logistic_regression={}", "data.csv={ columns { name: 'y' label {} } }"},
                "a label and no feature");
  Job libsvm = Changed({"data.format=LIBSVM", "data.libsvm_fields=4096"});
  libsvm.mutable_data()->clear_csv();
  EXPECT_EQ(Validate(libsvm), absl::OkStatus());
  libsvm.mutable_data()->set_libsvm_fields(4097);
  EXPECT_NE(Validate(libsvm).message().find("data.libsvm_fields is 4097; at most 4096"),
            absl::string_view::npos);
}

TEST(JobValidationTest, CsvColumnsAreChecked) {
  const auto refused = [](auto change, const std::string& text) {
    Job job = Changed({});
    change(*job.mutable_data()->mutable_csv());
    const absl::Status status = Validate(job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  };
  refused([](CsvSpec& csv) { csv.clear_columns(); }, "columns is empty");
  refused([](CsvSpec& csv) { csv.mutable_columns(0)->mutable_categorical(); }, "0 label columns");
  refused([](CsvSpec& csv) { csv.mutable_columns(2)->clear_kind(); }, "(origin) has no kind");
  refused([](CsvSpec& csv) { csv.mutable_columns(2)->set_name("hour"); }, "used twice");
  refused([](CsvSpec& csv) { csv.mutable_columns(2)->mutable_hashed(); }, "buckets is 0");
  refused([](CsvSpec& csv) { csv.mutable_columns(3)->mutable_bucketized()->add_boundaries(1); },
          "either width or");
  refused(
      [](CsvSpec& csv) { csv.mutable_columns(4)->mutable_crossed()->set_columns(0, "nowhere"); },
      "'nowhere'");
  refused(
      [](CsvSpec& csv) { csv.mutable_columns(4)->mutable_crossed()->set_columns(0, "distance"); },
      "is not bucketized");
  refused([](CsvSpec& csv) { csv.mutable_columns(4)->mutable_crossed()->set_columns(0, "hour"); },
          "twice");
}

TEST(JobValidationTest, ListsWeightsAndDomainsAreChecked) {
  const auto refused = [](const std::string& column, const std::string& text) {
    Job job = Changed({});
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        column, job.mutable_data()->mutable_csv()->add_columns()))
        << column;
    const absl::Status status = Validate(job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << column;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  };
  refused("name: 'x' list { separator: '|' } numeric {}", "only categorical and hashed columns");
  refused("name: 'x' list {} categorical {}", "columns[5] (x).list.separator has 0 bytes");
  refused("name: 'x' list { separator: '|' max_length: 1025 } categorical {}",
          "max_length is 1025; at most 1024");
  refused("name: 'x' list { separator: '|' } categorical { missing: 'a' }",
          "both list and missing");
  refused("name: 'x' domain: 'd' numeric {}", "(x).domain is set; only bucketized, categorical");
  refused("name: 'x' domain: 'origin' hashed { buckets: 3 }",
          "(x) has the domain 'origin' of data.csv.columns[2] (origin), but another kind");
  Job job = Changed({});
  CsvSpec& csv = *job.mutable_data()->mutable_csv();
  for (const char* name : {"w1", "w2"}) {
    csv.add_columns()->set_name(name);
    csv.mutable_columns(csv.columns_size() - 1)->mutable_weight();
  }
  EXPECT_NE(Validate(job).message().find("2 weight columns; at most one"), absl::string_view::npos);
  csv.mutable_columns()->RemoveLast();
  EXPECT_EQ(Validate(job), absl::OkStatus());
  Column& list = *csv.add_columns();
  list.set_name("tags");
  list.mutable_categorical();
  list.mutable_list()->set_separator("|");
  EXPECT_EQ(Validate(job), absl::OkStatus());
  job.mutable_evaluation()->set_group_by("tags");
  EXPECT_NE(Validate(job).message().find("group_by is \"tags\", a list"), absl::string_view::npos);
  job.clear_evaluation();
  csv.mutable_columns(4)->mutable_crossed()->add_columns("tags");
  EXPECT_NE(Validate(job).message().find("lists cannot be crossed"), absl::string_view::npos);
}

TEST(JobValidationTest, RecordColumnsAreChecked) {
  Job job = Changed({});
  Data& data = *job.mutable_data();
  *data.mutable_records()->mutable_columns() = data.csv().columns();
  EXPECT_NE(Validate(job).message().find("data.records is set, but data.format is CSV"),
            absl::string_view::npos);
  data.clear_csv();
  for (const DataFormat format : {TFRECORD, RECORDS}) {
    data.set_format(format);
    EXPECT_EQ(Validate(job), absl::OkStatus());
  }
  Column& column = *data.mutable_records()->mutable_columns(2);
  column.set_position(3);
  EXPECT_NE(Validate(job).message().find(
                "data.records.columns[2] (origin).position is 3; columns of records are found by"),
            absl::string_view::npos);
  column.clear_position();
  column.mutable_list()->set_separator("|");
  EXPECT_NE(Validate(job).message().find("(origin).list.separator is set"),
            absl::string_view::npos);
}

TEST(JobValidationTest, EarlyStoppingNeedsEvaluationAndMetric) {
  ExpectRefused({"evaluation.early_stopping.metric=RMSE"}, "does not apply");
  ExpectRefused({"data.eval=\"\"", "evaluation.early_stopping.patience=2"}, "data.eval is empty");
  ExpectRefused({"data.eval=\"\"", "evaluation.every_steps=2"}, "data.eval is empty");
  ExpectRefused({"evaluation.early_stopping.min_delta=-1"}, "min_delta is -1");
  EXPECT_EQ(Validate(Changed({"evaluation.early_stopping.metric=LOGLOSS"})), absl::OkStatus());
}

TEST(JobValidationTest, GroupsAreThoseOfACategoricalFeature) {
  for (const char* feature : {"origin", "hour", "origin_hour"}) {
    EXPECT_EQ(Validate(Changed({absl::StrCat("evaluation.group_by=", feature)})), absl::OkStatus());
  }
  ExpectRefused({"evaluation.group_by=distance"}, "not categorical");
  ExpectRefused({"evaluation.group_by=late"}, "not categorical");
  ExpectRefused({"evaluation.group_by=user"}, "data.csv.columns does not have");
  ExpectRefused({"evaluation.group_by=origin", "data.eval=\"\""}, "data.eval is empty");
  EXPECT_EQ(Validate(Changed({"evaluation.group_by=origin", "model.loss=SQUARED"})),
            absl::OkStatus());
  ExpectRefused({"evaluation.ndcg_at=5"}, "evaluation.group_by is empty");
  EXPECT_EQ(Validate(Changed({"evaluation.only=true"})), absl::OkStatus());
  ExpectRefused({"evaluation.only=true", "data.eval=[]"}, "data.eval is empty");
  ExpectRefused({"evaluation.only=true", "evaluation.early_stopping={}"}, "early_stopping");
  ExpectRefused({"evaluation.only=true", "checkpoint.dir=a"}, "checkpoint.dir");
  ExpectRefused({"evaluation.early_stopping.metric=NDCG"}, "evaluation.group_by is empty");
  EXPECT_EQ(Validate(Changed({"evaluation.early_stopping.metric=NDCG", "evaluation.ndcg_at=5",
                              "evaluation.group_by=origin"})),
            absl::OkStatus());
  ExpectRefused({"evaluation.early_stopping.metric=GAUC"}, "evaluation.group_by is empty");
  EXPECT_EQ(
      Validate(Changed({"evaluation.early_stopping.metric=GAUC", "evaluation.group_by=origin"})),
      absl::OkStatus());
  ExpectRefused({"evaluation.early_stopping.metric=MAE"}, "does not apply");
  EXPECT_EQ(Validate(Changed({"evaluation.early_stopping.metric=NORMALIZED_ENTROPY"})),
            absl::OkStatus());
}

TEST(JobValidationTest, DelayIsCompensatedOnlyWhereThereIsOne) {
  EXPECT_EQ(Validate(Changed({"consistency.mode=ASYNC", "delay_compensation=0.04"})),
            absl::OkStatus());
  ExpectRefused({"delay_compensation=0.04"}, "SYNC gradients have no delay");
  ExpectRefused({"consistency.mode=ASYNC", "delay_compensation=-1"}, "delay_compensation is -1");
  ExpectRefused({"consistency.mode=ASYNC", "delay_compensation=nan"}, "delay_compensation is nan");
}

TEST(JobValidationTest, BatchSizesChangeInLaterEpochs) {
  const auto with = [](uint32_t epochs, const std::vector<std::pair<uint32_t, uint32_t>>& changes) {
    Job job = Changed({});
    job.set_epochs(epochs);
    for (const auto& [epoch, batch_size] : changes) {
      BatchSizeChange* const change = job.add_batch_size_changes();
      change->set_epoch(epoch);
      change->set_batch_size(batch_size);
    }
    return std::string(Validate(job).message());
  };
  EXPECT_EQ(with(2, {{1, 200}}), "");
  EXPECT_EQ(with(9, {{2, 200}, {4, 100}}), "");
  EXPECT_THAT(with(1, {{1, 200}}), HasSubstr("[0].epoch is 1, but the job has 1 epochs"));
  EXPECT_THAT(with(3, {{0, 200}}), HasSubstr("[0].epoch is 0"));
  EXPECT_THAT(with(9, {{2, 200}, {2, 300}}), HasSubstr("[1].epoch is 2"));
  EXPECT_THAT(with(2, {{1, 0}}), HasSubstr("batch_size_changes[0].batch_size is 0"));
}

TEST(JobValidationTest, StreamedEvaluationDataNeedsWindows) {
  EXPECT_EQ(Validate(Changed({"data.window_samples=100", "data.stream_eval=true"})),
            absl::OkStatus());
  ExpectRefused({"data.stream_eval=true"}, "data.stream_eval is set, but data.window_samples");
  ExpectRefused({"data.window_samples=100", "data.stream_eval=true", "data.eval=[]"},
                "data.eval is empty");
  ExpectRefused({"data.window_samples=100", "data.stream_eval=true", "evaluation.group_by=origin"},
                "evaluation.group_by and data.stream_eval");
}

TEST(JobValidationTest, FeaturesAndLabelsMustFitTheModel) {
  const auto refused = [](const std::string& model, const std::string& message) {
    Job job = Changed({});
    job.clear_model();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(model, job.mutable_model()));
    const absl::Status status = Validate(job);
    EXPECT_NE(status.message().find(message), absl::string_view::npos) << status;
  };
  refused("deepfm { dim: 4 } features { table: 'a' columns: 'origin' dim: 2 }",
          "the table embedding/a has dim 2");
  refused("logistic_regression {} features { table: 'a' columns: 'origin' dim: 2 }",
          "weights only");
  refused("fm { dim: 4 } features { table: 'a' columns: 'origin' optimizer { assign {} } }",
          "model.features[0].optimizer.assign");
  refused("fm { dim: 4 } features { table: 'a' columns: 'origin' init_stddev: 3e38 }",
          "model.features[0].init_stddev");
  refused("fm { dim: 4 } features { table: 'a' columns: 'airport' }",
          "model.features[0].columns[0] is \"airport\"");
  refused("matrix_factorization { dim: 4 }", "takes a user and an item");
  refused("dcn { dim: 4 }", "model.dcn.cross_layers is 0");
  refused("mmoe { dim: 4 experts: 2 }", "model.mmoe.expert is empty");
  refused("mmoe { dim: 4 experts: 64 expert: [1, 1, 1, 1, 1, 1, 1, 1] }", "at most 400");
  refused("mmoe { dim: 4 experts: 2 expert: 8 label_weights: [1, 1] }", "data has 1 labels");

  // The number of fields is in the file.
  Job libsvm = Changed({"data.format=LIBSVM"});
  libsvm.mutable_data()->clear_csv();
  libsvm.clear_model();
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "wide_deep { dim: 4 } features { table: 'a' columns: '30' }", libsvm.mutable_model()));
  EXPECT_EQ(Validate(libsvm), absl::OkStatus());

  Job two_labels = Changed({});
  Column* const label = two_labels.mutable_data()->mutable_csv()->add_columns();
  label->set_name("second");
  label->mutable_label();
  EXPECT_NE(Validate(two_labels).message().find("data has 2 labels, but only model.mmoe"),
            absl::string_view::npos);
  for (const auto& [weights, mistake] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[0, 0]", "model.mmoe.label_weights is [0, 0]"},
           {"[1, -0.5]", "model.mmoe.label_weights[1] is -0.5"},
           {"[inf, 1]", "model.mmoe.label_weights[0] is inf"},
           {"[1, nan]", "model.mmoe.label_weights[1] is nan"},
           {"[1, 2e6]", "model.mmoe.label_weights[1] is 2e+06"}}) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("mmoe { dim: 4 experts: 2 expert: 8 label_weights: ", weights, " }"),
        two_labels.mutable_model()));
    const absl::Status status = Validate(two_labels);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << weights;
    EXPECT_TRUE(absl::StrContains(status.message(), mistake)) << status;
  }
  two_labels.mutable_model()->mutable_mmoe()->mutable_label_weights()->Set(1, 0);
  EXPECT_EQ(Validate(two_labels), absl::OkStatus());
}

TEST(JobValidationTest, GroupKeyIsCountedAmongTheFields) {
  const Job job = Changed({});
  EXPECT_EQ(FindGroupKey(job.data(), "origin")->field, 0u);
  EXPECT_EQ(FindGroupKey(job.data(), "hour")->field, 1u);
  EXPECT_EQ(FindGroupKey(job.data(), "origin_hour")->field, 2u);
  Data libsvm;
  libsvm.set_format(LIBSVM);
  libsvm.set_libsvm_fields(4);
  EXPECT_EQ(FindGroupKey(libsvm, "3")->field, 3u);
  EXPECT_FALSE(FindGroupKey(libsvm, "3")->is_query_id);
  EXPECT_TRUE(FindGroupKey(libsvm, "qid")->is_query_id);
  EXPECT_FALSE(FindGroupKey(job.data(), "qid").ok()) << "CSV has columns only";
  EXPECT_FALSE(FindGroupKey(libsvm, "4").ok());
  EXPECT_FALSE(FindGroupKey(libsvm, "user").ok());
  libsvm.set_format(IDX);
  EXPECT_FALSE(FindGroupKey(libsvm, "0").ok());
}

TEST(JobValidationTest, CheckpointIntervalIsAtMostAYear) {
  EXPECT_EQ(Validate(Changed({"checkpoint.dir=/c", "checkpoint.every_seconds=31536000"})),
            absl::OkStatus());
  ExpectRefused({"checkpoint.dir=/c", "checkpoint.every_seconds=31536001"},
                "checkpoint.every_seconds is 31536001");
  ExpectRefused({"checkpoint.dir=/c", "checkpoint.every_seconds=18446744073709551615"},
                "at most 31536000");
}

TEST(JobValidationTest, MissingDataFilesAreNamed) {
  const std::filesystem::path folder(std::getenv("TEST_TMPDIR"));
  Job job = Changed({});
  ResolvePaths(job, folder.string());
  absl::Status status = ValidateJob(job, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("data.train: cannot open " + (folder / "train.csv").string()),
            absl::string_view::npos)
      << status;
  std::ofstream(folder / "train.csv") << "late\n";
  status = ValidateJob(job, {});
  EXPECT_NE(status.message().find("data.eval: cannot open"), absl::string_view::npos) << status;
  std::ofstream(folder / "eval.csv") << "late\n";
  EXPECT_EQ(ValidateJob(job, {}), absl::OkStatus());
}

// It is compared with other numbers.
TEST(JobValidationTest, CheckpointDirLosesItsFinalSlash) {
  for (const auto& [written, path] :
       {std::pair("/shared/c//", "/shared/c"), {"c/", "/jobs/c"}, {"/", "/"}}) {
    Job job;
    job.mutable_checkpoint()->set_dir(written);
    ResolvePaths(job, "/jobs");
    EXPECT_EQ(job.checkpoint().dir(), path) << written;
  }
}

TEST(JobValidationTest, IdxImagesNeedTheirLabelFile) {
  const std::filesystem::path folder(std::getenv("TEST_TMPDIR"));
  Job job = Changed({"model.mlp={ hidden: 8 classes: 10 }", "data.format=IDX", "data.eval=\"\"",
                     "data.train=train-images-idx3-ubyte.gz"});
  job.mutable_data()->clear_csv();
  ResolvePaths(job, folder.string());
  std::ofstream(folder / "train-images-idx3-ubyte.gz") << "x";
  const absl::Status status = ValidateJob(job, {});
  EXPECT_NE(status.message().find("train-labels-idx1-ubyte.gz"), absl::string_view::npos) << status;
  std::ofstream(folder / "train-labels-idx1-ubyte.gz") << "x";
  EXPECT_EQ(ValidateJob(job, {}), absl::OkStatus());
}

}  // namespace
}  // namespace pawl
