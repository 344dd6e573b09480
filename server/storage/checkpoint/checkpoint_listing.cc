#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/storage/checkpoint/checkpoint_layout.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

absl::StatusOr<CheckpointListing> CheckpointStore::List(absl::string_view job_name) const {
  const absl::StatusOr<std::vector<std::string>> names = env_.List(folder_);
  CheckpointListing listing;
  if (absl::IsNotFound(names.status())) return listing;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const auto parsed = ParseCheckpointName(name);
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
                     return TimeOf(right.manifest) < TimeOf(left.manifest);
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
    const auto parsed = ParseCheckpointName(name);
    if (!parsed.has_value() || parsed->job_name != job_name) continue;
    ids.push_back({0, parsed->job_name, parsed->time.step, parsed->time.is_final});
  }
  std::sort(ids.begin(), ids.end(), [](const CheckpointId& left, const CheckpointId& right) {
    return CheckpointTime{right.step, right.is_final} < CheckpointTime{left.step, left.is_final};
  });
  return ids;
}

absl::StatusOr<std::string> CheckpointStore::Newest(absl::string_view job_name) const {
  const absl::StatusOr<std::vector<std::string>> names = env_.List(folder_);
  if (absl::IsNotFound(names.status())) return std::string();
  if (!names.ok()) return names.status();
  std::string newest;
  for (const std::string& name : *names) {
    const auto parsed = ParseCheckpointName(name);
    if (!parsed.has_value() || parsed->job_name != job_name) continue;
    PAWL_ASSIGN_OR_RETURN(const bool is_complete, FileExists(env_, PathOf(name, kManifestFile)));
    if (!is_complete) continue;
    // Steps have leading zeros, and the mark of the end comes after them.
    newest = std::max(newest, name);
  }
  return newest;
}

absl::StatusOr<bool> CheckpointStore::BelongsToAnotherRun(const std::string& name,
                                                          uint64_t job_id) const {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(name);
  if (manifest.ok()) return manifest->job_id() != job_id;
  // A damaged manifest hides the parts' run.
  bool is = absl::IsDataLoss(manifest.status());
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files, env_.List(JoinPath(folder_, name)));
  for (const std::string& file : files) {
    if (!absl::EndsWith(file, kPartSuffix)) continue;
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
    const auto parsed = ParseCheckpointName(name);
    if (!parsed.has_value() || parsed->job_name != last.job_name) continue;
    if (!(CheckpointTime{last.step, last.is_final} < parsed->time)) continue;
    PAWL_ASSIGN_OR_RETURN(const bool is_other_run, BelongsToAnotherRun(name, last.job_id));
    if (!is_other_run) continue;
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

absl::Status CheckpointStore::DeleteOld(absl::string_view job_name, uint32_t keep) {
  PAWL_ASSIGN_OR_RETURN(const CheckpointListing listing, List(job_name));
  if (job_name.empty() || listing.complete.empty()) return absl::OkStatus();
  keep = std::max(keep, 1u);
  const CheckpointTime newest = TimeOf(listing.complete.front().manifest);
  std::vector<std::string> kept;
  for (size_t i = 0; i < listing.complete.size() && i < keep; ++i)
    kept.push_back(listing.complete[i].name);
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.List(folder_));
  for (const std::string& name : names) {
    const auto parsed = ParseCheckpointName(name);
    if (!parsed.has_value() || parsed->job_name != job_name || !(parsed->time < newest)) continue;
    if (std::find(kept.begin(), kept.end(), name) != kept.end()) continue;
    PAWL_RETURN_IF_ERROR(DeleteCheckpoint(name));
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::DeleteCheckpoint(const std::string& name) {
  const std::string folder = JoinPath(folder_, name);
  // The manifest first, so that a crash leaves an unfinished checkpoint, not a damaged one.
  PAWL_RETURN_IF_ERROR(DeleteIfExists(env_, JoinPath(folder, kManifestFile)));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(folder));
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files, env_.List(folder));
  for (const std::string& file : files)
    PAWL_RETURN_IF_ERROR(DeleteIfExists(env_, JoinPath(folder, file)));
  PAWL_RETURN_IF_ERROR(env_.DeleteFolder(folder));
  return env_.SyncFolder(folder_);
}

}  // namespace pawl
