// The names of checkpoints and of their files; internal to the checkpoint store.
#ifndef PAWL_SERVER_STORAGE_CHECKPOINT_CHECKPOINT_LAYOUT_H_
#define PAWL_SERVER_STORAGE_CHECKPOINT_CHECKPOINT_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "proto/checkpoint.pb.h"

namespace pawl {

inline constexpr char kManifestFile[] = "MANIFEST";
inline constexpr absl::string_view kPartSuffix = ".part";

inline std::string PartFileName(uint32_t partition) {
  return absl::StrCat("p", partition, kPartSuffix);
}

// When in the course of a job a checkpoint was made: the end comes after the last step.
struct CheckpointTime {
  uint64_t step = 0;
  bool is_final = false;
};
inline bool operator<(const CheckpointTime& left, const CheckpointTime& right) {
  return std::tie(left.step, left.is_final) < std::tie(right.step, right.is_final);
}
inline CheckpointTime TimeOf(const CheckpointManifest& manifest) {
  return {manifest.step(), manifest.is_final()};
}

struct CheckpointName {
  std::string job_name;
  CheckpointTime time;
};
std::string FormatCheckpointName(absl::string_view job_name, CheckpointTime time);
// Nullopt if that is not the name of a checkpoint's folder.
std::optional<CheckpointName> ParseCheckpointName(absl::string_view name);

inline absl::Status DamagedAt(absl::string_view path, uint64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged at offset ", offset, ": ", what));
}

inline absl::Status DeleteIfExists(Env& env, const std::string& path) {
  const absl::Status status = env.Delete(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_CHECKPOINT_CHECKPOINT_LAYOUT_H_
