#include "server/storage/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr absl::string_view kMagic = "PAWLCKP\n";
constexpr uint32_t kManifestVersion = 1;
// Magic, version, length.
constexpr size_t kManifestHeaderBytes = 16;
constexpr size_t kManifestCrcBytes = 4;
constexpr char kManifestFile[] = "MANIFEST";
constexpr absl::string_view kStepMark = "-step-";
constexpr size_t kStepDigits = 20;
constexpr absl::string_view kEndMark = "-end";
constexpr absl::string_view kPartEnd = ".part";

std::string PartFile(uint32_t partition) { return absl::StrCat("p", partition, kPartEnd); }

// Where in the course of a job a checkpoint was made: the end comes after the last step.
struct Place {
  uint64_t step = 0;
  bool of_end = false;
};
bool operator<(const Place& left, const Place& right) {
  return std::tie(left.step, left.of_end) < std::tie(right.step, right.of_end);
}

Place PlaceOf(const CheckpointManifest& manifest) { return {manifest.step(), manifest.of_end()}; }

struct ParsedName {
  std::string job_name;
  Place place;
};

// The parts of a folder's name; nothing if it is no checkpoint's.
std::optional<ParsedName> ParseName(absl::string_view name) {
  absl::string_view before = name;
  ParsedName parsed;
  parsed.place.of_end = absl::ConsumeSuffix(&before, kEndMark);
  const size_t tail = kStepMark.size() + kStepDigits;
  if (before.size() <= tail) return std::nullopt;
  parsed.job_name = std::string(before.substr(0, before.size() - tail));
  if (!absl::SimpleAtoi(before.substr(before.size() - kStepDigits), &parsed.place.step) ||
      name != CheckpointStore::NameOf(parsed.job_name, parsed.place.step, parsed.place.of_end)) {
    return std::nullopt;
  }
  return parsed;
}

absl::Status Damaged(absl::string_view path, uint64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged at offset ", offset, ": ", what));
}

// Why a manifest cannot be one; OK if it can.
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
    if (part.file() != PartFile(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat("parts[", i, "].file is '", part.file(), "'; it must be ", PartFile(i)));
    }
  }
  return absl::OkStatus();
}

absl::Status DeleteIfThere(Env& env, const std::string& path) {
  const absl::Status status = env.Delete(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// So that two writers of one part, also on two machines, are not in each other's way: whoever
// commits last is the part.
std::string TemporaryName(const std::string& path) {
  static const uint32_t process = std::random_device()();
  static std::atomic<uint64_t> count{0};
  return absl::StrCat(path, ".", process, "-", count.fetch_add(1, std::memory_order_relaxed),
                      ".tmp");
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

CheckpointPartWriter::~CheckpointPartWriter() {
  // What cannot be deleted now goes with its folder.
  if (!committed_) env_.Delete(temporary_).IgnoreError();
}

absl::StatusOr<CheckpointPart> CheckpointPartWriter::Commit() {
  PAWL_ASSIGN_OR_RETURN(const BlockFileInfo info, file_->Finish());
  if (env_.FileSize(JoinPath(folder_, kManifestFile)).ok()) {
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

std::string CheckpointStore::NameOf(absl::string_view job_name, uint64_t step, bool of_end) {
  return absl::StrFormat("%s%s%020d%s", job_name, kStepMark, step, of_end ? kEndMark : "");
}

std::string CheckpointStore::NameOf(const CheckpointManifest& manifest) {
  return NameOf(manifest.job_name(), manifest.step(), manifest.of_end());
}

bool CheckpointStore::IsOfEnd(absl::string_view name) {
  const std::optional<ParsedName> parsed = ParseName(name);
  return parsed.has_value() && parsed->place.of_end;
}

absl::StatusOr<CheckpointPlace> CheckpointStore::Locate(Env& env, const std::string& path,
                                                        absl::string_view job_name) {
  const std::string absolute = AbsolutePath(path);
  if (env.FileSize(JoinPath(absolute, kManifestFile)).ok()) {
    CheckpointPlace place{FolderOf(absolute), std::filesystem::path(absolute).filename().string()};
    if (ParseName(place.name).has_value()) return place;
    return absl::FailedPreconditionError(
        absl::StrCat(absolute,
                     " is a checkpoint under another name than its own, as one that was set aside "
                     "is; give it its name back"));
  }
  const CheckpointStore store(env, absolute);
  std::string job(job_name);
  if (job.empty()) {
    PAWL_ASSIGN_OR_RETURN(job, store.OnlyJob());
  }
  // Good or not: what was trained last is not passed over without a word.
  PAWL_ASSIGN_OR_RETURN(std::string newest, store.Newest(job));
  if (!newest.empty()) return CheckpointPlace{absolute, std::move(newest)};
  return absl::NotFoundError(absl::StrCat(
      absolute, " is no complete checkpoint, and holds none of a job called '", job, "'"));
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
  return absl::NotFoundError(absl::StrCat(folder_, " is no complete checkpoint, and holds none"));
}

std::string CheckpointStore::PathOf(absl::string_view name, absl::string_view file) const {
  return JoinPath(JoinPath(folder_, name), file);
}

absl::StatusOr<std::unique_ptr<CheckpointPartWriter>> CheckpointStore::BeginPart(
    const CheckpointId& id, uint32_t partition, uint64_t log_index) {
  const std::string name = NameOf(id.job_name, id.step, id.of_end);
  if (env_.FileSize(PathOf(name, kManifestFile)).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("the checkpoint ", name, " is complete already"));
  }
  const std::string folder = JoinPath(folder_, name);
  PAWL_RETURN_IF_ERROR(env_.MakeFolder(folder_));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(FolderOf(folder_)));
  PAWL_RETURN_IF_ERROR(env_.MakeFolder(folder));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(folder_));
  CheckpointPart part;
  part.set_partition(partition);
  part.set_file(PartFile(partition));
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
  if (env_.FileSize(path).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("the checkpoint ", name, " is complete already"));
  }
  size_t unread = 0;
  const absl::Status parts = CheckParts(manifest, unread);
  if (absl::IsNotFound(parts)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a part of ", name, " cannot go into the manifest: ", parts.ToString(),
                     "; do all servers and the scheduler see the same folder under this path?"));
  }
  PAWL_RETURN_IF_ERROR(parts);
  if (unread > 0) {
    spdlog::warn("of {} parts of {} the sizes alone were compared: this process may not read them",
                 unread, name);
  }
  // The parts and their names are durable before the manifest says that they are there; whoever
  // wrote them synced their names too, on a machine of its own.
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
  const absl::Status parts = CheckParts(manifest, unread);
  return parts.ok() ? parts : TakeBack(NameOf(manifest), parts);
}

absl::Status CheckpointStore::CheckParts(const CheckpointManifest& manifest, size_t& unread) const {
  const CheckpointId id{manifest.job_id(), manifest.job_name(), manifest.step(), manifest.of_end()};
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

absl::Status CheckpointStore::TakeBack(const std::string& name, const absl::Status& why) {
  absl::Status deleted = DeleteIfThere(env_, PathOf(name, kManifestFile));
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
  const std::string path = PathOf(NameOf(id.job_name, id.step, id.of_end), part.file());
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
  const std::string path = PathOf(name, kManifestFile);
  const absl::StatusOr<std::string> contents = ReadWholeFile(env_, path, kMaxManifestBytes);
  if (absl::IsResourceExhausted(contents.status()))
    return Damaged(path, kMaxManifestBytes, "it is too long");
  if (!contents.ok()) return contents.status();
  const absl::string_view bytes = *contents;
  if (bytes.size() < kManifestHeaderBytes + kManifestCrcBytes)
    return Damaged(path, bytes.size(), "the file ends here");
  if (!absl::StartsWith(bytes, kMagic))
    return Damaged(path, 0, "this is no manifest: its magic is wrong");
  const char* in = bytes.data() + kMagic.size();
  const auto version = TakeNumber<uint32_t>(in);
  if (version != kManifestVersion) {
    return Damaged(path, kMagic.size(),
                   absl::StrCat("the format's version is ", version, "; this program reads ",
                                kManifestVersion));
  }
  const uint64_t body = TakeNumber<uint32_t>(in);
  if (kManifestHeaderBytes + body + kManifestCrcBytes != bytes.size()) {
    return Damaged(
        path, kMagic.size() + 4,
        absl::StrCat("a length of ", body, " does not fit a file of ", bytes.size(), " bytes"));
  }
  const char* crc = bytes.data() + kManifestHeaderBytes + body;
  if (TakeNumber<uint32_t>(crc) != Crc32c(0, bytes.data(), kManifestHeaderBytes + body)) {
    return Damaged(path, kManifestHeaderBytes + body, "the checksum is wrong");
  }
  CheckpointManifest manifest;
  if (!manifest.ParseFromArray(bytes.data() + kManifestHeaderBytes, static_cast<int>(body))) {
    return Damaged(path, kManifestHeaderBytes, "it does not hold a CheckpointManifest");
  }
  if (const absl::Status status = CheckManifest(manifest); !status.ok()) {
    return Damaged(path, kManifestHeaderBytes, status.message());
  }
  if (NameOf(manifest) != name) {
    return Damaged(path, kManifestHeaderBytes,
                   absl::StrCat("it is the manifest of ", NameOf(manifest)));
  }
  return manifest;
}

absl::StatusOr<CheckpointListing> CheckpointStore::List(absl::string_view job_name) const {
  const absl::StatusOr<std::vector<std::string>> names = env_.List(folder_);
  CheckpointListing listing;
  if (absl::IsNotFound(names.status())) return listing;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const auto parsed = ParseName(name);
    if (!parsed.has_value() || (!job_name.empty() && parsed->job_name != job_name)) continue;
    absl::StatusOr<CheckpointManifest> manifest = ReadManifest(name);
    if (manifest.ok()) {
      listing.complete.push_back({name, *std::move(manifest)});
    } else if (absl::IsDataLoss(manifest.status())) {
      listing.damaged.push_back(manifest.status());
    } else if (!absl::IsNotFound(manifest.status())) {
      return manifest.status();
    }
  }
  std::stable_sort(listing.complete.begin(), listing.complete.end(),
                   [](const auto& left, const auto& right) {
                     return PlaceOf(right.manifest) < PlaceOf(left.manifest);
                   });
  return listing;
}

absl::StatusOr<std::vector<CheckpointId>> CheckpointStore::ListIds(
    absl::string_view job_name) const {
  const absl::StatusOr<std::vector<std::string>> names = env_.List(folder_);
  std::vector<CheckpointId> ids;
  if (absl::IsNotFound(names.status())) return ids;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const auto parsed = ParseName(name);
    if (!parsed.has_value() || parsed->job_name != job_name) continue;
    ids.push_back({0, parsed->job_name, parsed->place.step, parsed->place.of_end});
  }
  std::sort(ids.begin(), ids.end(), [](const CheckpointId& left, const CheckpointId& right) {
    return Place{right.step, right.of_end} < Place{left.step, left.of_end};
  });
  return ids;
}

absl::StatusOr<std::string> CheckpointStore::Newest(absl::string_view job_name) const {
  const absl::StatusOr<std::vector<std::string>> names = env_.List(folder_);
  if (absl::IsNotFound(names.status())) return std::string();
  if (!names.ok()) return names.status();
  std::string newest;
  for (const std::string& name : *names) {
    const auto parsed = ParseName(name);
    if (!parsed.has_value() || parsed->job_name != job_name ||
        !env_.FileSize(PathOf(name, kManifestFile)).ok())
      continue;
    // Steps have leading zeros, and what marks the end comes after them.
    newest = std::max(newest, name);
  }
  return newest;
}

absl::StatusOr<bool> CheckpointStore::IsOfAnotherRun(const std::string& name,
                                                     uint64_t job_id) const {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(name);
  if (manifest.ok()) return manifest->job_id() != job_id;
  // A damaged one hides what is before it.
  bool is = absl::IsDataLoss(manifest.status());
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files, env_.List(JoinPath(folder_, name)));
  for (const std::string& file : files) {
    if (!absl::EndsWith(file, kPartEnd)) continue;
    const absl::StatusOr<BlockFileId> part = BlockFileReader::ReadId(env_, PathOf(name, file));
    if (!part.ok()) continue;
    if (part->job_id == job_id) return false;
    is = true;
  }
  return is;
}

absl::StatusOr<std::vector<std::string>> CheckpointStore::SetAsideAfter(const CheckpointId& last) {
  const absl::StatusOr<std::vector<std::string>> names = env_.List(folder_);
  std::vector<std::string> set_aside;
  if (absl::IsNotFound(names.status())) return set_aside;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const auto parsed = ParseName(name);
    if (!parsed.has_value() || parsed->job_name != last.job_name) continue;
    if (!(Place{last.step, last.of_end} < parsed->place)) continue;
    PAWL_ASSIGN_OR_RETURN(const bool of_another_run, IsOfAnotherRun(name, last.job_id));
    if (!of_another_run) continue;
    std::string to = absl::StrCat(name, ".aside");
    for (int i = 2; std::find(names->begin(), names->end(), to) != names->end(); ++i) {
      to = absl::StrCat(name, ".aside-", i);
    }
    PAWL_RETURN_IF_ERROR(env_.Rename(JoinPath(folder_, name), JoinPath(folder_, to)));
    set_aside.push_back(name);
  }
  if (!set_aside.empty()) PAWL_RETURN_IF_ERROR(env_.SyncFolder(folder_));
  return set_aside;
}

absl::Status CheckpointStore::Verify(const std::string& name, VerifyProgress* progress) const {
  absl::Status status = VerifyOne(name, progress);
  const auto parsed = ParseName(name);
  if (!absl::IsDataLoss(status) || !parsed.has_value()) return status;
  PAWL_ASSIGN_OR_RETURN(const CheckpointListing listing, List(parsed->job_name));
  for (const CheckpointListing::Entry& entry : listing.complete) {
    if (PlaceOf(entry.manifest) < parsed->place && VerifyOne(entry.name, progress).ok()) {
      return absl::DataLossError(absl::StrCat(status.message(), "; the checkpoint before it, ",
                                              entry.name, ", is whole: take that one"));
    }
  }
  return absl::DataLossError(
      absl::StrCat(status.message(), "; no checkpoint before it in ", folder_, " is whole"));
}

absl::Status CheckpointStore::VerifyOne(const std::string& name, VerifyProgress* progress) const {
  PAWL_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(name));
  VerifyProgress own;
  if (progress == nullptr) progress = &own;
  progress->parts_done = 0;
  progress->bytes_done = 0;
  progress->parts = static_cast<uint64_t>(manifest.parts_size());
  uint64_t bytes = 0;
  for (const CheckpointPart& part : manifest.parts()) bytes += part.bytes();
  progress->bytes = bytes;
  // By part, so that the error is the same whichever thread comes first.
  std::vector<absl::Status> statuses(static_cast<size_t>(manifest.parts_size()));
  std::atomic<int> next = 0;
  std::atomic<bool> failed = false;
  const auto verify = [&] {
    for (int i = next++; i < manifest.parts_size() && !failed; i = next++) {
      statuses[static_cast<size_t>(i)] =
          VerifyPart(manifest, manifest.parts(i), [] { return true; });
      if (!statuses[static_cast<size_t>(i)].ok()) failed = true;
      ++progress->parts_done;
      progress->bytes_done += manifest.parts(i).bytes();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < std::min(kVerifyThreads, manifest.parts_size()); ++i)
    threads.emplace_back(verify);
  verify();
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& status : statuses) PAWL_RETURN_IF_ERROR(std::move(status));
  return absl::OkStatus();
}

absl::Status CheckpointStore::VerifyPart(const CheckpointManifest& manifest,
                                         const CheckpointPart& part,
                                         absl::FunctionRef<bool()> may_go_on) const {
  const std::string path = PathOf(NameOf(manifest), part.file());
  const auto reader = BlockFileReader::Open(env_, path,
                                            {BlockFileKind::kCheckpointPart, manifest.job_id(),
                                             part.partition(), part.log_index(), manifest.step()});
  if (absl::IsNotFound(reader.status())) return Damaged(path, 0, "the file is missing");
  PAWL_RETURN_IF_ERROR(reader.status());
  while (true) {
    if (!may_go_on())
      return absl::CancelledError(absl::StrCat("reading ", path, " was interrupted"));
    PAWL_ASSIGN_OR_RETURN(const absl::string_view block, (*reader)->NextBlock());
    if (block.empty()) break;
  }
  const BlockFileInfo& info = (*reader)->info();
  if (info.file_bytes == part.bytes() && info.crc32c == part.crc32c()) return absl::OkStatus();
  return Damaged(path, 0, "it is whole, but not the file that the manifest names");
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
  return PathOf(NameOf(manifest), PartFile(partition));
}

absl::StatusOr<std::string> CheckpointStore::ReadPart(const CheckpointManifest& manifest,
                                                      uint32_t partition) const {
  PAWL_ASSIGN_OR_RETURN(const auto reader, OpenPart(manifest, partition));
  std::string bytes;
  while (true) {
    PAWL_ASSIGN_OR_RETURN(const absl::string_view block, reader->NextBlock());
    if (block.empty()) return bytes;
    bytes.append(block.data(), block.size());
  }
}

absl::Status CheckpointStore::DeleteOld(absl::string_view job_name, uint32_t keep) {
  PAWL_ASSIGN_OR_RETURN(const CheckpointListing listing, List(job_name));
  if (job_name.empty() || listing.complete.empty()) return absl::OkStatus();
  keep = std::max(keep, 1u);
  const Place newest = PlaceOf(listing.complete.front().manifest);
  std::vector<std::string> kept;
  for (size_t i = 0; i < listing.complete.size() && i < keep; ++i)
    kept.push_back(listing.complete[i].name);
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.List(folder_));
  for (const std::string& name : names) {
    const auto parsed = ParseName(name);
    if (!parsed.has_value() || parsed->job_name != job_name || !(parsed->place < newest)) continue;
    if (std::find(kept.begin(), kept.end(), name) != kept.end()) continue;
    PAWL_RETURN_IF_ERROR(DeleteCheckpoint(name));
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::DeleteCheckpoint(const std::string& name) {
  const std::string folder = JoinPath(folder_, name);
  // The manifest first: what a crash leaves is an unfinished checkpoint, not a damaged one.
  PAWL_RETURN_IF_ERROR(DeleteIfThere(env_, JoinPath(folder, kManifestFile)));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(folder));
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files, env_.List(folder));
  for (const std::string& file : files)
    PAWL_RETURN_IF_ERROR(DeleteIfThere(env_, JoinPath(folder, file)));
  PAWL_RETURN_IF_ERROR(env_.DeleteFolder(folder));
  return env_.SyncFolder(folder_);
}

}  // namespace pawl
