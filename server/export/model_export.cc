#include "server/export/model_export.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"
#include "server/export/row_spool.h"
#include "server/export/tensor_writer.h"
#include "server/shard/partition_options.h"
#include "server/shard/table_part.h"
#include "server/shard/table_schema.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "server/storage/snapshot/partition_file.h"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSpoolFile[] = "spool.tmp";
constexpr char kModelFile[] = "model.json";
constexpr int kFormatVersion = 1;
// Follows the stem of a sparse table's files.
constexpr char kKeys[] = ".keys";
constexpr char kRows[] = ".rows";
constexpr char kSafetensorsSuffix[] = ".safetensors";
// The tensor in a dense table's safetensors file.
constexpr char kValues[] = "values";

bool IsThere(Env& env, const std::string& path) {
  return env.FileSize(path).ok() || env.List(path).ok();
}

// A temporary name beside `path`. It is random, so that it does not clash with exports on other
// machines, with the remains of a killed export, or with other users' folders.
std::string TemporaryName(const std::string& path) {
  std::random_device random;
  return absl::StrCat(path, ".", absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), ".tmp");
}

// A folder that is deleted with its content unless it is kept.
class TemporaryFolder {
 public:
  // REQUIRES: the path comes from TemporaryName.
  TemporaryFolder(Env& env, std::string path) : env_(env), path_(std::move(path)) {}
  ~TemporaryFolder() {
    if (!made_ || kept_) return;
    const absl::StatusOr<std::vector<std::string>> files = env_.List(path_);
    if (!files.ok()) return;
    for (const std::string& file : *files) env_.Delete(File(file)).IgnoreError();
    env_.DeleteFolder(path_).IgnoreError();
  }

  std::string File(const std::string& name) const { return JoinPath(path_, name); }
  absl::Status Make() {
    PAWL_RETURN_IF_ERROR(env_.MakeFolder(path_));
    made_ = true;
    return absl::OkStatus();
  }
  // Renames the folder durably to `path`.
  absl::Status RenameTo(const std::string& path) {
    PAWL_RETURN_IF_ERROR(env_.SyncFolder(path_));
    PAWL_RETURN_IF_ERROR(env_.Rename(path_, path));
    kept_ = true;
    return env_.SyncFolder(FolderOf(path));
  }

 private:
  Env& env_;
  const std::string path_;
  bool made_ = false;
  bool kept_ = false;
};

// The message on one line.
std::string OneLine(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(message, &text);
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

// A table that is being exported.
struct Outgoing {
  std::shared_ptr<const TableSchema> schema;
  // The stem of its file names.
  std::string stem;
  // Sparse.
  std::vector<RowSpool::Run> runs;
  uint64_t rows = 0;
  // Dense: the offset of each block in the spool.
  std::vector<uint64_t> blocks;

  const TableSpec& spec() const { return schema->spec(); }
  size_t row_bytes() const { return schema->MaxRowWidth() * sizeof(float); }
};

// With dense_path: ALLREDUCE the servers also store the workers' slots and steps in tables, which
// are not part of the model (worker/dense/dense_store.h).
bool IsOptimizerState(const TableSpec& table, const Job& job, const std::set<std::string>& names) {
  if (job.dense_path() != ALLREDUCE || table.kind() != DENSE || !table.optimizer().has_assign())
    return false;
  absl::string_view of = table.name();
  return of == "dense/steps" ||
         (absl::ConsumeSuffix(&of, "/slots") && names.contains(std::string(of)));
}

// The stem of the table's file names. Characters other than letters, digits and "_-" become '.'. It
// gets a number if it, or a name that a sparse table makes from it, is taken.
std::string StemOf(const std::string& table, std::set<std::string>& taken) {
  std::string stem;
  for (const char c : table) stem += absl::ascii_isalnum(c) || c == '_' || c == '-' ? c : '.';
  if (stem.empty() || stem[0] == '.') stem.insert(0, "table");
  std::string unique = stem;
  for (int i = 2;; ++i) {
    const std::string keys = unique + kKeys;
    const std::string rows = unique + kRows;
    if (!taken.contains(unique) && !taken.contains(keys) && !taken.contains(rows)) {
      taken.insert({unique, keys, rows});
      return unique;
    }
    unique = absl::StrCat(stem, "-", i);
  }
}

class Exporter {
 public:
  Exporter(Env& env, const CheckpointStore& store, const CheckpointManifest& manifest,
           TemporaryFolder& folder, ExportFormat format)
      : env_(env), store_(store), manifest_(manifest), folder_(folder), format_(format) {}

  absl::Status Run() {
    PAWL_RETURN_IF_ERROR(ReadJob());
    PAWL_ASSIGN_OR_RETURN(spool_, RowSpool::Create(env_, folder_.File(kSpoolFile)));
    for (uint32_t p = 0; p < job_.partitions(); ++p) PAWL_RETURN_IF_ERROR(TakePartition(p));
    PAWL_RETURN_IF_ERROR(spool_->EndAdding());
    for (const Outgoing& table : tables_)
      PAWL_RETURN_IF_ERROR(table.schema->is_dense() ? PutDense(table) : PutSparse(table));
    spool_ = nullptr;
    PAWL_RETURN_IF_ERROR(env_.Delete(folder_.File(kSpoolFile)));
    return PutModel();
  }

  ExportSummary& summary() { return summary_; }

 private:
  absl::Status ReadJob() {
    if (!job_.ParseFromString(manifest_.job()) ||
        job_.partitions() != static_cast<uint32_t>(manifest_.parts_size()) ||
        job_.partitions() > kMaxPartitions || job_.logical_workers() > kMaxLogicalWorkers) {
      return Wrong(absl::StrCat("its job cannot have its ", manifest_.parts_size(), " partitions"));
    }
    std::set<std::string> names;
    std::set<uint32_t> ids;
    for (const TableSpec& spec : manifest_.tables()) {
      if (!names.insert(spec.name()).second || !ids.insert(spec.id()).second) {
        return Wrong(
            absl::StrCat("has two tables with the name '", spec.name(), "' or the id ", spec.id()));
      }
    }
    std::set<std::string> stems;
    for (const TableSpec& spec : manifest_.tables()) {
      if (IsOptimizerState(spec, job_, names)) continue;
      Outgoing& table = tables_.emplace_back();
      absl::StatusOr<std::shared_ptr<const TableSchema>> schema =
          TableSchema::Create(spec, job_.seed());
      if (!schema.ok()) return Wrong(schema.status().message());
      table.schema = *std::move(schema);
      table.stem = StemOf(spec.name(), stems);
      if (table.schema->is_dense()) table.blocks.resize(table.schema->BlockCount());
    }
    return absl::OkStatus();
  }

  absl::Status Wrong(absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat(store_.ManifestPath(CheckpointStore::NameOf(manifest_)), ": ", what));
  }

  absl::Status TakePartition(uint32_t index) {
    // The limit on rows belongs to a server, not to the model.
    const PartitionOptions options = PartitionOptionsOf(job_, std::numeric_limits<uint64_t>::max());
    PAWL_ASSIGN_OR_RETURN(const Partition partition, ReadPartition(index, options));
    for (Outgoing& table : tables_) {
      const TablePart* part = partition.FindTable(table.spec().id());
      std::unique_ptr<const TablePart> none;
      // Its rows are parsed by the manifest's table and fit only that one.
      if (part != nullptr &&
          part->table().spec().SerializeAsString() != table.spec().SerializeAsString()) {
        return absl::DataLossError(absl::StrCat(store_.PartPath(manifest_, index), ": its table ",
                                                table.spec().id(),
                                                " differs from the one in the manifest"));
      }
      if (part == nullptr) {
        // The table was not created here yet, and reads as if nothing had been pushed.
        none = std::make_unique<TablePart>(table.schema);
        part = none.get();
      }
      PAWL_RETURN_IF_ERROR(table.schema->is_dense() ? TakeBlocks(*part, index, table)
                                                    : TakeRows(*part, table));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Partition> ReadPartition(uint32_t index, const PartitionOptions& options) {
    PAWL_ASSIGN_OR_RETURN(const auto file, store_.OpenPart(manifest_, index));
    absl::StatusOr<Partition> partition = LoadPartitionFile(*file, PartitionLoader(index, options));
    // The request itself is valid: an unexpected partition or job means that the file is wrong.
    if (!partition.ok()) {
      return absl::DataLossError(
          absl::StrCat(store_.PartPath(manifest_, index), ": ", partition.status().message()));
    }
    return partition;
  }

  absl::Status TakeRows(const TablePart& part, Outgoing& table) {
    std::vector<uint64_t> keys;
    part.Hold().rows.ForEach([&](uint64_t key, const float*) { keys.push_back(key); });
    std::sort(keys.begin(), keys.end());
    if (keys.empty()) return absl::OkStatus();
    PAWL_ASSIGN_OR_RETURN(
        const RowSpool::Run run,
        spool_->AddRun(keys, table.row_bytes(), [&](absl::Span<const uint64_t> some, char* out) {
          part.Read(ByteView(some.data(), some.size() * sizeof(uint64_t)), out);
        }));
    table.runs.push_back(run);
    table.rows += run.count;
    return absl::OkStatus();
  }

  absl::Status TakeBlocks(const TablePart& part, uint32_t index, Outgoing& table) {
    for (uint64_t block = 0; block < table.blocks.size(); ++block) {
      if (PartitionOf(table.spec().id(), block, job_.partitions()) != index) continue;
      std::vector<BlockLoan> loans;
      part.Lend(ByteView(&block, sizeof(block)), loans);
      PAWL_ASSIGN_OR_RETURN(table.blocks[block], spool_->Add(absl::string_view(
                                                     reinterpret_cast<const char*>(loans[0].data()),
                                                     loans[0].size() * sizeof(float))));
    }
    return absl::OkStatus();
  }

  absl::Status CopyBlocks(const Outgoing& table, TensorWriter& out) {
    for (uint64_t block = 0; block < table.blocks.size(); ++block) {
      const uint64_t width = table.schema->RowWidth(block);
      summary_.elements += width;
      PAWL_RETURN_IF_ERROR(
          spool_->Copy(table.blocks[block], width * sizeof(float),
                       [&](absl::string_view bytes) { return out.Append(bytes); }));
    }
    PAWL_RETURN_IF_ERROR(out.Finish());
    summary_.bytes += out.file_bytes();
    return absl::OkStatus();
  }

  absl::Status PutDense(const Outgoing& table) {
    const std::vector<uint64_t> shape(table.spec().shape().begin(), table.spec().shape().end());
    const std::string file =
        table.stem + (format_ == ExportFormat::kNpy ? ".npy" : kSafetensorsSuffix);
    const TensorSpec values = {kValues, TensorType::kFloat32, shape};
    PAWL_ASSIGN_OR_RETURN(
        const auto out,
        format_ == ExportFormat::kNpy
            ? TensorWriter::CreateNpy(env_, folder_.File(file), values)
            : TensorWriter::CreateSafetensors(env_, folder_.File(file), table.spec().name(),
                                              absl::MakeConstSpan(&values, 1)));
    PAWL_RETURN_IF_ERROR(CopyBlocks(table, *out));
    entries_.push_back({{"name", table.spec().name()},
                        {"id", table.spec().id()},
                        {"kind", "dense"},
                        {"dtype", "float32"},
                        {"shape", shape},
                        {"file", file}});
    return absl::OkStatus();
  }

  absl::Status PutSparse(const Outgoing& table) {
    Json entry = {{"name", table.spec().name()},
                  {"id", table.spec().id()},
                  {"kind", "sparse"},
                  {"dtype", "float32"},
                  {"rows", table.rows},
                  {"row_width", table.schema->MaxRowWidth()},
                  {"initializer", OneLine(table.spec().initializer())}};
    PAWL_RETURN_IF_ERROR(format_ == ExportFormat::kNpy ? PutNpyRows(table, entry)
                                                       : PutSafetensorsRows(table, entry));
    summary_.rows += table.rows;
    entries_.push_back(std::move(entry));
    return absl::OkStatus();
  }

  // One file for keys and rows. They come together from the spool, which is therefore read twice.
  absl::Status PutSafetensorsRows(const Outgoing& table, Json& entry) {
    const std::string file = table.stem + kSafetensorsSuffix;
    const TensorSpec tensors[] = {
        {"keys", TensorType::kUint64, {table.rows}},
        {"rows", TensorType::kFloat32, {table.rows, table.schema->MaxRowWidth()}}};
    PAWL_ASSIGN_OR_RETURN(const auto out, TensorWriter::CreateSafetensors(
                                              env_, folder_.File(file), table.spec().name(),
                                              absl::MakeConstSpan(tensors)));
    const auto append = [&](absl::string_view bytes) { return out->Append(bytes); };
    const auto skip = [](absl::string_view) { return absl::OkStatus(); };
    PAWL_RETURN_IF_ERROR(spool_->Merge(table.runs, table.row_bytes(), append, skip));
    PAWL_RETURN_IF_ERROR(spool_->Merge(table.runs, table.row_bytes(), skip, append));
    PAWL_RETURN_IF_ERROR(out->Finish());
    summary_.bytes += out->file_bytes();
    entry["file"] = file;
    return absl::OkStatus();
  }

  absl::Status PutNpyRows(const Outgoing& table, Json& entry) {
    const uint64_t width = table.schema->MaxRowWidth();
    const std::string keys_file = absl::StrCat(table.stem, kKeys, ".npy");
    const std::string rows_file = absl::StrCat(table.stem, kRows, ".npy");
    PAWL_ASSIGN_OR_RETURN(const auto keys,
                          TensorWriter::CreateNpy(env_, folder_.File(keys_file),
                                                  {"keys", TensorType::kUint64, {table.rows}}));
    PAWL_ASSIGN_OR_RETURN(
        const auto rows,
        TensorWriter::CreateNpy(env_, folder_.File(rows_file),
                                {"rows", TensorType::kFloat32, {table.rows, width}}));
    PAWL_RETURN_IF_ERROR(spool_->Merge(
        table.runs, table.row_bytes(), [&](absl::string_view bytes) { return keys->Append(bytes); },
        [&](absl::string_view bytes) { return rows->Append(bytes); }));
    PAWL_RETURN_IF_ERROR(keys->Finish());
    PAWL_RETURN_IF_ERROR(rows->Finish());
    summary_.bytes += keys->file_bytes() + rows->file_bytes();
    entry["keys_file"] = keys_file;
    entry["rows_file"] = rows_file;
    return absl::OkStatus();
  }

  absl::Status PutModel() {
    const google::protobuf::FieldDescriptor* const kind =
        job_.model().GetReflection()->GetOneofFieldDescriptor(
            job_.model(), Model::descriptor()->FindOneofByName("kind"));
    summary_.job = manifest_.job_name();
    summary_.checkpoint = CheckpointStore::NameOf(manifest_);
    summary_.step = manifest_.step();
    summary_.is_final = manifest_.is_final();
    summary_.tables = tables_.size();
    std::string job_file;
    google::protobuf::TextFormat::PrintToString(job_, &job_file);
    const Json json = {{"format", "pawl-model"},
                       {"version", kFormatVersion},
                       {"job", summary_.job},
                       {"checkpoint", summary_.checkpoint},
                       {"step", summary_.step},
                       {"of_end", summary_.is_final},
                       {"model", kind == nullptr ? Json(nullptr) : Json(kind->name())},
                       {"seed", job_.seed()},
                       {"partitions", job_.partitions()},
                       {"arrays", format_ == ExportFormat::kNpy ? "npy" : "safetensors"},
                       {"tables", entries_},
                       {"left_out", "the optimizer's state"},
                       {"job_file", job_file}};
    const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    summary_.bytes += text.size();
    const WritableFile::Fragment fragment(text.data(), text.size());
    return WriteFileDurably(env_, folder_.File(kModelFile), absl::MakeConstSpan(&fragment, 1));
  }

  Env& env_;
  const CheckpointStore& store_;
  const CheckpointManifest& manifest_;
  TemporaryFolder& folder_;
  const ExportFormat format_;
  Job job_;
  std::vector<Outgoing> tables_;
  std::unique_ptr<RowSpool> spool_;
  Json entries_ = Json::array();
  ExportSummary summary_;
};

absl::StatusOr<ExportSummary> WriteModel(Env& env, const CheckpointPlace& found,
                                         TemporaryFolder& folder, ExportFormat format) {
  const CheckpointStore store(env, found.dir);
  PAWL_RETURN_IF_ERROR(store.Verify(found.name));
  PAWL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, store.ReadManifest(found.name));
  Exporter exporter(env, store, manifest, folder, format);
  PAWL_RETURN_IF_ERROR(exporter.Run());
  return std::move(exporter.summary());
}

}  // namespace

absl::StatusOr<ExportSummary> ExportModel(Env& env, const std::string& path, const std::string& out,
                                          ExportFormat format) {
  const std::string to = AbsolutePath(out);
  const auto refuse_if_there = [&] {
    if (!IsThere(env, to)) return absl::OkStatus();
    return absl::AlreadyExistsError(
        absl::StrCat(to, " already exists; name another folder, or delete it"));
  };
  PAWL_RETURN_IF_ERROR(refuse_if_there());
  PAWL_ASSIGN_OR_RETURN(const CheckpointPlace found, CheckpointStore::Locate(env, path));
  // Checked before reading the whole checkpoint.
  TemporaryFolder folder(env, TemporaryName(to));
  PAWL_RETURN_IF_ERROR(folder.Make());
  absl::StatusOr<ExportSummary> summary = WriteModel(env, found, folder, format);
  if (!summary.ok()) {
    // A deletion removes the manifest first.
    const std::string manifest = CheckpointStore(env, found.dir).ManifestPath(found.name);
    if (!absl::IsNotFound(env.FileSize(manifest).status())) return summary;
    return absl::AbortedError(
        absl::StrCat(FolderOf(manifest), " was deleted while it was read; take a newer one"));
  }
  PAWL_RETURN_IF_ERROR(refuse_if_there());
  PAWL_RETURN_IF_ERROR(folder.RenameTo(to));
  return summary;
}

}  // namespace pawl
