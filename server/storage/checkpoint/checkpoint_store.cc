#include "server/storage/checkpoint/checkpoint_store.h"

#include <atomic>
#include <filesystem>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "server/storage/checkpoint/checkpoint_layout.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr absl::string_view kMagic = "PAWLCKP\n";
constexpr uint32_t kManifestVersion = 1;
// Magic, version, length.
constexpr size_t kManifestHeaderBytes = 16;
constexpr size_t kManifestCrcBytes = 4;

// Why the manifest is invalid; OK if it is valid.
absl::Status CheckManifest(const CheckpointManifest& manifest) {
  if (manifest.job_name().empty() || absl::StrContains(manifest.job_name(), '/')) {
    return absl::InvalidArgumentError(absl::StrCat("job_name is '", manifest.job_name(),
                                                   "'; it must be a job's name, without '/'"));
  }
  if (manifest.parts().empty())
    return absl::InvalidArgumentError("parts is empty; name the part of every partition");
  for (int i = 0; i < manifest.parts_size(); ++i) {
    const CheckpointPart& part = manifest.parts(i);
    if (part.partition() != static_cast<uint32_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat("parts[", i, "].partition is ",
                                                     part.partition(),
                                                     "; name every partition once, in order"));
    }
    if (part.file() != PartFileName(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat("parts[", i, "].file is '", part.file(), "'; it must be ", PartFileName(i)));
    }
  }
  return absl::OkStatus();
}

// Keeps two writers of one part, even on two machines, apart: the last to commit provides the part.
std::string TemporaryName(const std::string& path) {
  static const uint32_t process = std::random_device()();
  static std::atomic<uint64_t> count{0};
  return absl::StrCat(path, ".", process, "-", count.fetch_add(1, std::memory_order_relaxed),
                      ".tmp");
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path made = std::filesystem::absolute(path, error);
  std::string absolute = (error ? std::filesystem::path(path) : made).lexically_normal().string();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

CheckpointPartWriter::~CheckpointPartWriter() {
  // If it cannot be deleted now, it is deleted with its folder.
  if (!committed_) env_.Delete(temporary_).IgnoreError();
}

absl::StatusOr<CheckpointPart> CheckpointPartWriter::Commit() {
  PAWL_ASSIGN_OR_RETURN(const BlockFileInfo info, file_->Finish());
  PAWL_ASSIGN_OR_RETURN(const bool is_complete, FileExists(env_, JoinPath(folder_, kManifestFile)));
  if (is_complete) {
    return absl::AlreadyExistsError(
        absl::StrCat("the checkpoint ", folder_, " was completed with another ", part_.file()));
  }
  if (PAWL_FAILPOINT("checkpoint.part")) return absl::DataLossError("failpoint checkpoint.part");
  PAWL_RETURN_IF_ERROR(env_.Rename(temporary_, JoinPath(folder_, part_.file())));
  committed_ = true;
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(folder_));
  part_.set_bytes(info.file_bytes);
  part_.set_crc32c(info.crc32c);
  return part_;
}

std::string CheckpointStore::NameOf(absl::string_view job_name, uint64_t step, bool is_final) {
  return FormatCheckpointName(job_name, {step, is_final});
}

std::string CheckpointStore::NameOf(const CheckpointManifest& manifest) {
  return NameOf(manifest.job_name(), manifest.step(), manifest.is_final());
}

bool CheckpointStore::IsEndCheckpoint(absl::string_view name) {
  const std::optional<CheckpointName> parsed = ParseCheckpointName(name);
  return parsed.has_value() && parsed->time.is_final;
}

absl::StatusOr<CheckpointPlace> CheckpointStore::Locate(Env& env, const std::string& path,
                                                        absl::string_view job_name) {
  const std::string absolute = AbsolutePath(path);
  PAWL_ASSIGN_OR_RETURN(const bool is_checkpoint,
                        FileExists(env, JoinPath(absolute, kManifestFile)));
  if (is_checkpoint) {
    CheckpointPlace place{FolderOf(absolute), std::filesystem::path(absolute).filename().string()};
    if (ParseCheckpointName(place.name).has_value()) return place;
    return absl::FailedPreconditionError(
        absl::StrCat(absolute,
                     " is a checkpoint whose folder was renamed, for example when it was set "
                     "aside; restore its name"));
  }
  const CheckpointStore store(env, absolute);
  std::string job(job_name);
  if (job.empty()) {
    PAWL_ASSIGN_OR_RETURN(job, store.OnlyJob());
  }
  // Good or not: the latest training result is not skipped silently.
  PAWL_ASSIGN_OR_RETURN(std::string newest, store.Newest(job));
  if (!newest.empty()) return CheckpointPlace{absolute, std::move(newest)};
  return absl::NotFoundError(
      absl::StrCat(absolute, " is no complete checkpoint, and contains none of job '", job, "'"));
}

absl::StatusOr<std::string> CheckpointStore::OnlyJob() const {
  PAWL_ASSIGN_OR_RETURN(const CheckpointListing listing, List(""));
  std::set<std::string> jobs;
  for (const CheckpointListing::Entry& entry : listing.complete)
    jobs.insert(entry.manifest.job_name());
  if (jobs.size() == 1) return *jobs.begin();
  if (jobs.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(folder_, " holds checkpoints of several jobs (",
                                                   absl::StrJoin(jobs, ", "),
                                                   "); name the folder of one checkpoint"));
  }
  if (!listing.damaged.empty()) return listing.damaged.front();
  return absl::NotFoundError(
      absl::StrCat(folder_, " is no complete checkpoint, and contains none"));
}

std::string CheckpointStore::PathOf(absl::string_view name, absl::string_view file) const {
  return JoinPath(JoinPath(folder_, name), file);
}

absl::StatusOr<std::unique_ptr<CheckpointPartWriter>> CheckpointStore::BeginPart(
    const CheckpointId& id, uint32_t partition, uint64_t log_index) {
  const std::string name = NameOf(id.job_name, id.step, id.is_final);
  PAWL_ASSIGN_OR_RETURN(const bool is_complete, FileExists(env_, PathOf(name, kManifestFile)));
  if (is_complete)
    return absl::AlreadyExistsError(absl::StrCat("the checkpoint ", name, " is complete already"));
  const std::string folder = JoinPath(folder_, name);
  PAWL_RETURN_IF_ERROR(env_.MakeFolder(folder_));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(FolderOf(folder_)));
  PAWL_RETURN_IF_ERROR(env_.MakeFolder(folder));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(folder_));
  CheckpointPart part;
  part.set_partition(partition);
  part.set_file(PartFileName(partition));
  part.set_log_index(log_index);
  std::string temporary = TemporaryName(JoinPath(folder, part.file()));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<BlockFileWriter> file,
                        BlockFileWriter::Create(env_, temporary,
                                                {BlockFileKind::kCheckpointPart, id.job_id,
                                                 partition, log_index, id.step}));
  return std::unique_ptr<CheckpointPartWriter>(new CheckpointPartWriter(
      env_, folder, std::move(temporary), std::move(file), std::move(part)));
}

absl::Status CheckpointStore::WriteManifest(const CheckpointManifest& manifest) {
  PAWL_RETURN_IF_ERROR(CheckManifest(manifest));
  const std::string name = NameOf(manifest);
  const std::string path = PathOf(name, kManifestFile);
  PAWL_ASSIGN_OR_RETURN(const bool is_complete, FileExists(env_, path));
  if (is_complete)
    return absl::AlreadyExistsError(absl::StrCat("the checkpoint ", name, " is complete already"));
  size_t unread = 0;
  const absl::Status parts = CheckParts(manifest, unread);
  if (absl::IsNotFound(parts)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a part of ", name, " cannot be put into the manifest: ", parts.ToString(),
                     "; do all servers and the scheduler see the same folder under this path?"));
  }
  PAWL_RETURN_IF_ERROR(parts);
  if (unread > 0) {
    spdlog::warn("only the sizes of {} parts of {} were compared: this process may not read them",
                 unread, name);
  }
  // The parts and their names must be durable before the manifest refers to them. Their writers
  // have also synced the names, on their own machines.
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(JoinPath(folder_, name)));
  std::string bytes(kManifestHeaderBytes, '\0');
  const std::string body = manifest.SerializeAsString();
  if (kManifestHeaderBytes + body.size() + kManifestCrcBytes > kMaxManifestBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the manifest of ", name, " would have ",
                                                     body.size(), " bytes, more than the limit of ",
                                                     kMaxManifestBytes));
  }
  kMagic.copy(bytes.data(), kMagic.size());
  PutNumber(PutNumber(bytes.data() + kMagic.size(), kManifestVersion),
            static_cast<uint32_t>(body.size()));
  bytes += body;
  char crc[kManifestCrcBytes];
  PutNumber(crc, Crc32c(0, bytes.data(), bytes.size()));
  bytes.append(crc, sizeof(crc));
  if (PAWL_FAILPOINT("checkpoint.manifest"))
    return absl::DataLossError("failpoint checkpoint.manifest");
  const WritableFile::Fragment fragment(bytes.data(), bytes.size());
  PAWL_RETURN_IF_ERROR(WriteFileDurably(env_, path, absl::MakeConstSpan(&fragment, 1)));
  PAWL_FAILPOINT("checkpoint.renamed");
  return CheckComplete(manifest);
}

absl::Status CheckpointStore::CheckComplete(const CheckpointManifest& manifest) {
  size_t unread = 0;
  absl::Status parts = CheckParts(manifest, unread);
  // A second time, because a read error can be transient.
  if (absl::IsAborted(parts)) parts = CheckParts(manifest, unread);
  // Any other error says nothing about the parts.
  if (absl::IsAborted(parts) || absl::IsNotFound(parts))
    return WithdrawManifest(NameOf(manifest), parts);
  PAWL_RETURN_IF_ERROR(parts);
  // The process that wrote the manifest may have died before its name was durable.
  return env_.SyncFolder(JoinPath(folder_, NameOf(manifest)));
}

absl::Status CheckpointStore::CheckParts(const CheckpointManifest& manifest, size_t& unread) const {
  const CheckpointId id{manifest.job_id(), manifest.job_name(), manifest.step(),
                        manifest.is_final()};
  unread = 0;
  for (const CheckpointPart& part : manifest.parts()) {
    absl::Status status = CheckPart(id, part);
    if (absl::IsPermissionDenied(status)) {
      status = CheckSize(PathOf(NameOf(manifest), part.file()), part, status);
      ++unread;
    }
    PAWL_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::WithdrawManifest(const std::string& name, const absl::Status& why) {
  absl::Status deleted = DeleteIfExists(env_, PathOf(name, kManifestFile));
  if (deleted.ok()) deleted = env_.SyncFolder(JoinPath(folder_, name));
  return absl::Status(
      absl::IsNotFound(why) ? absl::StatusCode::kAborted : why.code(),
      absl::StrCat("the checkpoint ", name, " is not what its manifest says: ", why.message(),
                   deleted.ok() ? ""
                                : absl::StrCat("; and its manifest cannot be deleted: ",
                                               deleted.ToString())));
}

absl::Status CheckpointStore::CheckSize(const std::string& path, const CheckpointPart& part,
                                        const absl::Status& denied) const {
  const absl::StatusOr<uint64_t> size = env_.FileSize(path);
  if (absl::IsPermissionDenied(size.status())) {
    return absl::PermissionDeniedError(absl::StrCat(
        denied.message(), "; the scheduler must be able to read the parts that the servers write"));
  }
  if (!size.ok()) return size.status();
  if (*size == part.bytes()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the part ", path, " has ", *size, " bytes, not ",
                                         part.bytes(),
                                         "; the scheduler may not read it: ", denied.message()));
}

absl::Status CheckpointStore::CheckPart(const CheckpointId& id, const CheckpointPart& part) const {
  const std::string path = PathOf(NameOf(id.job_name, id.step, id.is_final), part.file());
  const auto reader = BlockFileReader::Open(
      env_, path,
      {BlockFileKind::kCheckpointPart, id.job_id, part.partition(), part.log_index(), id.step});
  const absl::StatusOr<BlockFileInfo> info = reader.ok() ? (*reader)->PeekInfo() : reader.status();
  absl::Status status = info.status();
  if (status.ok() && (info->file_bytes != part.bytes() || info->crc32c != part.crc32c())) {
    status = absl::DataLossError(absl::StrCat("it has ", info->file_bytes, " bytes and checksum ",
                                              info->crc32c, ", not ", part.bytes(), " and ",
                                              part.crc32c()));
  }
  if (!absl::IsDataLoss(status)) return status;
  return absl::AbortedError(
      absl::StrCat("the part ", path, " is not the one that was written: ", status.message()));
}

absl::StatusOr<CheckpointManifest> CheckpointStore::ReadManifest(const std::string& name) const {
  absl::StatusOr<CheckpointManifest> manifest = ReadManifestOnce(name);
  // A second time, because a read error can be transient, and damaged checkpoints are deleted as
  // unfinished ones.
  return absl::IsDataLoss(manifest.status()) ? ReadManifestOnce(name) : manifest;
}

absl::StatusOr<CheckpointManifest> CheckpointStore::ReadManifestOnce(
    const std::string& name) const {
  const std::string path = PathOf(name, kManifestFile);
  const absl::StatusOr<std::string> contents = ReadWholeFile(env_, path, kMaxManifestBytes);
  // The code may also stand for a lack of file descriptors.
  if (absl::IsResourceExhausted(contents.status()) &&
      env_.FileSize(path).value_or(0) > kMaxManifestBytes) {
    return DamagedAt(path, kMaxManifestBytes, "it is too long");
  }
  if (!contents.ok()) return contents.status();
  const absl::string_view bytes = *contents;
  if (bytes.size() < kManifestHeaderBytes + kManifestCrcBytes)
    return DamagedAt(path, bytes.size(), "the file ends here");
  if (!absl::StartsWith(bytes, kMagic))
    return DamagedAt(path, 0, "not a manifest: its magic is wrong");
  const char* in = bytes.data() + kMagic.size();
  const auto version = TakeNumber<uint32_t>(in);
  if (version != kManifestVersion) {
    return DamagedAt(path, kMagic.size(),
                     absl::StrCat("the format's version is ", version, "; this program reads ",
                                  kManifestVersion));
  }
  const uint64_t body = TakeNumber<uint32_t>(in);
  if (kManifestHeaderBytes + body + kManifestCrcBytes != bytes.size()) {
    return DamagedAt(
        path, kMagic.size() + 4,
        absl::StrCat("a length of ", body, " does not fit a file of ", bytes.size(), " bytes"));
  }
  const char* crc = bytes.data() + kManifestHeaderBytes + body;
  if (TakeNumber<uint32_t>(crc) != Crc32c(0, bytes.data(), kManifestHeaderBytes + body)) {
    return DamagedAt(path, kManifestHeaderBytes + body, "the checksum is wrong");
  }
  CheckpointManifest manifest;
  if (!manifest.ParseFromArray(bytes.data() + kManifestHeaderBytes, static_cast<int>(body))) {
    return DamagedAt(path, kManifestHeaderBytes, "it does not hold a CheckpointManifest");
  }
  if (const absl::Status status = CheckManifest(manifest); !status.ok()) {
    return DamagedAt(path, kManifestHeaderBytes, status.message());
  }
  if (NameOf(manifest) != name) {
    return DamagedAt(path, kManifestHeaderBytes,
                     absl::StrCat("it is the manifest of ", NameOf(manifest)));
  }
  return manifest;
}

absl::StatusOr<std::unique_ptr<BlockFileReader>> CheckpointStore::OpenPart(
    const CheckpointManifest& manifest, uint32_t partition) const {
  if (partition >= static_cast<uint32_t>(manifest.parts_size())) {
    return absl::OutOfRangeError(absl::StrCat("partition is ", partition, "; the checkpoint has ",
                                              manifest.parts_size(), " of them"));
  }
  const CheckpointPart& part = manifest.parts(partition);
  return BlockFileReader::Open(env_, PartPath(manifest, partition),
                               {BlockFileKind::kCheckpointPart, manifest.job_id(), partition,
                                part.log_index(), manifest.step()});
}

std::string CheckpointStore::ManifestPath(absl::string_view name) const {
  return PathOf(name, kManifestFile);
}

std::string CheckpointStore::PartPath(const CheckpointManifest& manifest,
                                      uint32_t partition) const {
  return PathOf(NameOf(manifest), PartFileName(partition));
}

}  // namespace pawl
