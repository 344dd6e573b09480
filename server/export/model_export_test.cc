#include "server/export/model_export.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"
#include "server/shard/partition_options.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 3;
constexpr uint32_t kRowsTable = 1;
constexpr uint32_t kDenseTable = 2;
constexpr uint32_t kSlotsTable = 3;
constexpr uint64_t kColumns = 7;
// Rows of a tensor with three blocks.
constexpr uint64_t kDenseRows = (2 * kBlockElements + 100) / kColumns;

// Rows with the keys 3, 6, 9, ..., each holding its key and half of it; and a dense tensor in which
// only the second block was pushed to.
class ModelExportTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    job_.mutable_model()->mutable_mlp();
    AddTable(kRowsTable, "embedding/rows", 0);
    AddTable(kDenseTable, "hidden/weights", kDenseRows);
    AddTable(kSlotsTable, "hidden/weights/slots", 5);
  }

  void AddTable(uint32_t id, const std::string& name, uint64_t dense_rows) {
    TableSpec& spec = *specs_.emplace_back(std::make_unique<TableSpec>(
        dense_rows > 0 ? DenseTableSpec(name, {dense_rows, kColumns}, id)
                       : SparseTableSpec(name, 2, id)));
    if (dense_rows > 0) spec.mutable_initializer()->mutable_constant()->set_value(0.5f);
    spec.mutable_optimizer()->mutable_assign();
  }

  Partition Make(uint32_t index, uint64_t rows) {
    Partition partition(index, PartitionOptionsOf(job_, 1000000));
    for (const auto& spec : specs_)
      EXPECT_TRUE(partition.CreateTable(TableSchema::Create(*spec, 3).value()).ok());
    if (!pushed_) return partition;
    Sender client;
    uint64_t ordinal = 0;
    const auto push = [&](uint32_t table, uint64_t key, std::vector<float> values) {
      auto data = std::make_shared<std::pair<uint64_t, std::vector<float>>>(key, std::move(values));
      const auto pushed = partition.Push(
          client, ordinal++, table,
          {ByteView(&data->first, sizeof(uint64_t)),
           ByteView(data->second.data(), data->second.size() * sizeof(float)), data});
      EXPECT_TRUE(pushed.ok()) << pushed.status();
    };
    for (uint64_t key = 3; key <= 3 * rows; key += 3) {
      if (PartitionOf(kRowsTable, key, kPartitions) != index) continue;
      push(kRowsTable, key, {static_cast<float>(key), static_cast<float>(key) / 2});
    }
    if (PartitionOf(kDenseTable, 1, kPartitions) == index) {
      std::vector<float> block(kBlockElements);
      for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<float>(i % 1000);
      push(kDenseTable, 1, std::move(block));
    }
    return partition;
  }

  // `change` makes the manifest differ from the parts.
  void Write(Env& env, const std::string& dir, uint64_t step, bool is_final = false,
             uint64_t rows = 1000,
             const std::function<void(CheckpointManifest&)>& change = nullptr) {
    CheckpointStore store(env, dir);
    CheckpointManifest manifest;
    manifest.set_job_id(77);
    manifest.set_job_name(job_.name());
    manifest.set_step(step);
    manifest.set_is_final(is_final);
    manifest.set_job(job_.SerializeAsString());
    for (const auto& spec : specs_) *manifest.add_tables() = *spec;
    for (uint32_t p = 0; p < kPartitions; ++p) {
      const Partition partition = Make(p, rows);
      auto writer =
          store.BeginPart({77, job_.name(), step, is_final}, p, partition.log_index()).value();
      SavePartition(partition, [&](const void* data, size_t size) {
        EXPECT_TRUE(writer->Append(absl::string_view(static_cast<const char*>(data), size)).ok());
      });
      *manifest.add_parts() = writer->Commit().value();
    }
    if (change != nullptr) change(manifest);
    const absl::Status written = store.WriteManifest(manifest);
    ASSERT_TRUE(written.ok()) << written;
  }

  std::string Read(const std::string& file) const {
    std::ifstream in(out() + "/" + file, std::ios::binary);
    EXPECT_TRUE(in.good()) << file;
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // The content of a file whose header contains `header`.
  template <typename T>
  std::vector<T> Elements(const std::string& file, const std::string& header) const {
    const std::string bytes = Read(file);
    const size_t begin = bytes.find('\n') + 1;
    EXPECT_TRUE(absl::StrContains(bytes.substr(0, begin), header)) << bytes.substr(0, begin);
    std::vector<T> elements((bytes.size() - begin) / sizeof(T));
    std::memcpy(elements.data(), bytes.data() + begin, elements.size() * sizeof(T));
    return elements;
  }
  std::string dir() const { return folder_ + "/checkpoints"; }
  std::string out() const { return folder_ + "/model"; }

  std::string folder_;
  Job job_ = ServerJob(ASYNC, kPartitions, /*logical_workers=*/1);
  std::vector<std::unique_ptr<TableSpec>> specs_;
  // Whether the tables have rows.
  bool pushed_ = true;
};

TEST_F(ModelExportTest, ExportsEveryParameter) {
  Write(Env::Real(), dir(), 5);
  const auto summary = ExportModel(Env::Real(), dir(), out());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->step, 5u);
  EXPECT_EQ(summary->rows, 1000u);
  const auto keys = Elements<uint64_t>("embedding.rows.keys.npy",
                                       "'<u8', 'fortran_order': False, 'shape': (1000,), }");
  const auto rows = Elements<float>("embedding.rows.rows.npy",
                                    "'<f4', 'fortran_order': False, 'shape': (1000, 2), }");
  ASSERT_EQ(keys.size(), 1000u);
  ASSERT_EQ(rows.size(), 2000u);
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(keys[i], 3 * (i + 1));
    ASSERT_EQ(rows[2 * i], static_cast<float>(keys[i]));
    ASSERT_EQ(rows[2 * i + 1], static_cast<float>(keys[i]) / 2);
  }
  const auto dense = Elements<float>(
      "hidden.weights.npy", absl::StrCat("'shape': (", kDenseRows, ", ", kColumns, "), }"));
  ASSERT_EQ(dense.size(), kDenseRows * kColumns);
  for (size_t i = 0; i < dense.size(); ++i) {
    const bool pushed = i / kBlockElements == 1;
    ASSERT_EQ(dense[i], pushed ? static_cast<float>((i - kBlockElements) % 1000) : 0.5f) << i;
  }
  const auto model = nlohmann::json::parse(Read("model.json"));
  EXPECT_EQ(model["format"], "pawl-model");
  EXPECT_EQ(model["job"], "job");
  EXPECT_EQ(model["model"], "mlp");
  EXPECT_EQ(model["step"], 5);
  EXPECT_EQ(model["of_end"], false);
  ASSERT_EQ(model["tables"].size(), 3u);
  EXPECT_EQ(model["tables"][0]["name"], "embedding/rows");
  EXPECT_EQ(model["tables"][0]["rows_file"], "embedding.rows.rows.npy");
  EXPECT_EQ(model["tables"][0]["row_width"], 2);
  EXPECT_EQ(model["tables"][1]["shape"], nlohmann::json({kDenseRows, kColumns}));
  // No other files, in the folder or beside it.
  EXPECT_EQ(Env::Real().List(out())->size(), 5u);
  EXPECT_EQ(Env::Real().List(folder_)->size(), 2u);
}

TEST_F(ModelExportTest, OptimizerStateOfWorkersIsNotExported) {
  job_.set_dense_path(ALLREDUCE);
  Write(Env::Real(), dir(), 5);
  ASSERT_TRUE(ExportModel(Env::Real(), dir(), out()).ok());
  EXPECT_EQ(nlohmann::json::parse(Read("model.json"))["tables"].size(), 2u);
}

TEST_F(ModelExportTest, NewestCheckpointOfAFolderIsExported) {
  Write(Env::Real(), dir(), 5, /*is_final=*/true, 7);
  Write(Env::Real(), dir(), 5, /*is_final=*/false, 6);
  Write(Env::Real(), dir(), 4, /*is_final=*/false, 5);
  const auto summary = ExportModel(Env::Real(), dir(), out());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->rows, 7u);
  EXPECT_TRUE(summary->is_final);
  const auto one = ExportModel(
      Env::Real(), absl::StrCat(dir(), "/", CheckpointStore::NameOf("job", 4), "/"), out() + "-2");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->rows, 5u);
}

TEST_F(ModelExportTest, InvalidFoldersAreRefusedByName) {
  absl::Status status = ExportModel(Env::Real(), dir(), out()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), dir())) << status;
  Write(Env::Real(), dir(), 5);
  status = ExportModel(Env::Real(), dir(), folder_ + "/not/there").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/not/there")) << status;
  std::filesystem::create_directories(out());
  status = ExportModel(Env::Real(), dir(), out() + "/").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), out() + " already exists")) << status;
  std::filesystem::remove(out());
  job_.set_name("other");
  Write(Env::Real(), dir(), 5);
  status = ExportModel(Env::Real(), dir(), out()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "job, other")) << status;
  EXPECT_EQ(Env::Real().List(folder_)->size(), 1u) << "no files are left";
}

TEST_F(ModelExportTest, RelativePathsInDeletedFolderAreNotFound) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path deleted = folder_ + "/deleted";
  std::filesystem::create_directory(deleted);
  std::filesystem::current_path(deleted);
  std::filesystem::remove(deleted);
  const absl::Status status = ExportModel(Env::Real(), "checkpoints", "model").status();
  std::filesystem::current_path(before);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "checkpoints")) << status;
}

TEST_F(ModelExportTest, EmptyPathsAreNotFound) {
  Write(Env::Real(), dir(), 5);
  EXPECT_TRUE(absl::IsNotFound(ExportModel(Env::Real(), "", out()).status()));
  EXPECT_TRUE(absl::IsNotFound(ExportModel(Env::Real(), dir(), "").status()));
}

TEST_F(ModelExportTest, DamagedCheckpointIsRefusedNamingAnEarlierOne) {
  FaultEnv env(1);
  ASSERT_TRUE(env.MakeFolder("/c").ok());
  Write(env, "/c", 4);
  Write(env, "/c", 5);
  const std::string part = absl::StrCat("/c/", CheckpointStore::NameOf("job", 5), "/p1.part");
  std::string bytes = env.Contents(part);
  bytes[bytes.size() / 2] ^= 1;
  env.SetContents(part, bytes);
  absl::Status status = ExportModel(env, "/c", "/model").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), CheckpointStore::NameOf("job", 4))) << status;
  ASSERT_TRUE(env.Delete(part).ok());
  status = ExportModel(env, "/c", "/model").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  EXPECT_EQ(env.List("/")->size(), 1u);
}

// In the other order the failure could take hours.
TEST_F(ModelExportTest, OutputFolderIsCheckedFirst) {
  FaultEnv env(1);
  Write(env, "/c", 5);
  env.SetContents(absl::StrCat("/c/", CheckpointStore::NameOf("job", 5), "/p1.part"), "damaged");
  const absl::Status status = ExportModel(env, "/c", "/not/there").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/not/there")) << status;
}

TEST_F(ModelExportTest, EachTableHasItsOwnFiles) {
  const std::vector<std::pair<std::string, uint64_t>> tables = {
      {"x", 0}, {"x/keys", 2}, {"x.rows", 3}, {"model", 4}};
  pushed_ = false;
  for (const bool reversed : {false, true}) {
    SCOPED_TRACE(reversed);
    specs_.clear();
    for (size_t i = 0; i < tables.size(); ++i) {
      const auto& [name, dense_rows] = tables[reversed ? tables.size() - 1 - i : i];
      AddTable(static_cast<uint32_t>(i) + 10, name, dense_rows);
    }
    std::filesystem::remove_all(dir());
    std::filesystem::remove_all(out());
    Write(Env::Real(), dir(), 5);
    const auto summary = ExportModel(Env::Real(), dir(), out());
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(Env::Real().List(out())->size(), 6u)
        << "three dense tables, a sparse one, and model.json";
    const auto model = nlohmann::json::parse(Read("model.json"));
    for (const auto& table : model["tables"]) {
      if (table["kind"] == "sparse") continue;
      const std::string shape = absl::StrCat("'shape': (", table["shape"][0].get<int>(), ", ");
      EXPECT_TRUE(absl::StrContains(Read(table["file"].get<std::string>()), shape)) << table;
    }
    EXPECT_EQ(model["tables"][reversed ? 0 : 3]["file"], "model.npy");
  }
}

// The checksums of these files are correct.
TEST_F(ModelExportTest, PartsThatDifferFromTheManifestAreRefused) {
  struct Case {
    std::string words;
    std::function<void(CheckpointManifest&)> change;
  };
  const auto job_with = [this](CheckpointManifest& manifest,
                               const std::function<void(Job&)>& change) {
    Job job = job_;
    change(job);
    manifest.set_job(job.SerializeAsString());
  };
  const std::vector<Case> cases = {
      {"p0.part: its table 1 differs from the one",
       [](CheckpointManifest& m) { m.mutable_tables(0)->set_row_width(1); }},
      {"p0.part: its table 2 differs from the one",
       [](CheckpointManifest& m) { m.mutable_tables(1)->set_shape(0, 1); }},
      {"p0.part: its table 2 differs from the one",
       [](CheckpointManifest& m) {
         m.mutable_tables(1)->clear_shape();
         m.mutable_tables(1)->set_kind(SPARSE);
         m.mutable_tables(1)->set_row_width(2);
       }},
      {"two tables", [](CheckpointManifest& m) { m.mutable_tables(1)->set_id(kRowsTable); }},
      {"two tables",
       [](CheckpointManifest& m) { m.mutable_tables(1)->set_name(m.tables(0).name()); }},
      {"table embedding/rows",
       [](CheckpointManifest& m) { m.mutable_tables(0)->set_row_width(1 << 30); }},
      {"p0.part: ", [&](CheckpointManifest& m) { job_with(m, [](Job& job) { job.set_seed(4); }); }},
      {"its job cannot have",
       [&](CheckpointManifest& m) { job_with(m, [](Job& job) { job.set_partitions(2); }); }},
      {"its job cannot have",
       [&](CheckpointManifest& m) {
         job_with(m, [](Job& job) { job.set_logical_workers(4000000000u); });
       }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    FaultEnv env(1);
    Write(env, "/c", 5, /*is_final=*/false, 100, cases[i].change);
    const absl::Status status = ExportModel(env, "/c", "/model").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), cases[i].words)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), CheckpointStore::NameOf("job", 5))) << status;
    EXPECT_EQ(env.List("/")->size(), 1u) << "no files are left";
  }
}

// Left by a killed export, or created by another user.
TEST_F(ModelExportTest, ExistingTemporaryFolderIsNotTouched) {
  Write(Env::Real(), dir(), 5);
  const std::string other = absl::StrCat(out(), ".", getpid(), ".tmp");
  std::filesystem::create_directories(other);
  ASSERT_TRUE(WriteFileDurably(Env::Real(), other + "/another.npy", "another model's").ok());
  ASSERT_TRUE(ExportModel(Env::Real(), dir(), out()).ok());
  EXPECT_EQ(Env::Real().List(out())->size(), 5u) << "only its own files";
  std::filesystem::remove(absl::StrCat(dir(), "/", CheckpointStore::NameOf("job", 5), "/p1.part"));
  EXPECT_EQ(ExportModel(Env::Real(), dir(), out() + "-2").status().code(),
            absl::StatusCode::kDataLoss);
  ASSERT_TRUE(Env::Real().List(other).ok()) << "it is still there";
  EXPECT_EQ(*Env::Real().List(other), std::vector<std::string>{"another.npy"});
}

// An Env that calls `before` before it opens a file for reading.
class WatchedEnv final : public ForwardingEnv {
 public:
  WatchedEnv(Env& env, std::function<void(const std::string& path)> before)
      : ForwardingEnv(env), before_(std::move(before)) {}
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    before_(path);
    return ForwardingEnv::OpenForRead(path);
  }

 private:
  const std::function<void(const std::string&)> before_;
};

TEST_F(ModelExportTest, CheckpointDeletedDuringExportIsNotDamage) {
  // Deleted during the check, and during the export.
  for (const int reading : {1, 2}) {
    SCOPED_TRACE(reading);
    FaultEnv files(1);
    Write(files, "/c", 5);
    int read = 0;
    WatchedEnv env(files, [&](const std::string& path) {
      if (!absl::StrContains(path, "p1.part") || ++read != reading) return;
      Write(files, "/c", 6);
      ASSERT_TRUE(CheckpointStore(files, "/c").DeleteOld("job", 1).ok());
    });
    const absl::Status status = ExportModel(env, "/c", "/model").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_TRUE(
        absl::StrContains(status.message(), CheckpointStore::NameOf("job", 5) + " was deleted"))
        << status;
    EXPECT_EQ(files.List("/")->size(), 1u);
  }
}

// Wherever the disk fills up, the error names the file and no files are left.
TEST_F(ModelExportTest, FullDiskLeavesNoFiles) {
  FaultEnv env(1);
  Write(env, "/c", 5);
  const uint64_t used = env.UsedBytes();
  for (const uint64_t room : {0, 1000, 300000, 540000, 800000, 1080000}) {
    SCOPED_TRACE(room);
    env.SetCapacity(used + room);
    const absl::Status status = ExportModel(env, "/c", "/model").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "/model.")) << status;
    EXPECT_EQ(env.List("/")->size(), 1u);
    EXPECT_EQ(env.UsedBytes(), used);
  }
}

}  // namespace
}  // namespace pawl
