#include "worker/worker_identity.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr char kFile[] = "node";
constexpr uint64_t kMaxBytes = 1024;

}  // namespace

WorkerIdentity::WorkerIdentity(Env& env, std::string path, std::unique_ptr<FolderLock> lock)
    : env_(env), path_(std::move(path)), lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<WorkerIdentity>> WorkerIdentity::Open(Env& env, const std::string& data_dir) {
  PAWL_RETURN_IF_ERROR(env.MakeFolder(data_dir));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, env.LockFolder(data_dir));
  std::unique_ptr<WorkerIdentity> identity(new WorkerIdentity(env, JoinPath(data_dir, kFile), std::move(lock)));
  const absl::StatusOr<std::string> text = ReadWholeFile(env, identity->path_, kMaxBytes);
  if (absl::IsNotFound(text.status())) return identity;
  std::vector<std::string> words;
  if (text.ok()) words = absl::StrSplit(absl::StripSuffix(*text, "\n"), ' ');
  uint64_t job_id = 0;
  uint32_t life = 0;
  if (words.size() != 3 || words[0].empty() || !absl::SimpleHexAtoi(words[1], &job_id) ||
      !absl::SimpleAtoi(words[2], &life) || life == std::numeric_limits<uint32_t>::max()) {
    spdlog::warn("{} does not say who this worker was, so it is a new one: {}", identity->path_,
                 text.ok() ? "it is damaged" : text.status().ToString());
    return identity;
  }
  // A life that is not written down would be taken for the one before.
  if (const absl::Status written = identity->Write(words[0], job_id, life + 1); !written.ok()) {
    spdlog::warn("this worker is a new one, since --data_dir cannot be written: {}", written.ToString());
  }
  return identity;
}

absl::Status WorkerIdentity::Become(const std::string& node, uint64_t job_id) {
  if (node == node_ && job_id == job_id_) return absl::OkStatus();
  return Write(node, job_id, std::max(life_, 1u));
}

absl::Status WorkerIdentity::Write(const std::string& node, uint64_t job_id, uint32_t life) {
  const std::string line = absl::StrFormat("%s %016x %d\n", node, job_id, life);
  const WritableFile::Fragment fragment(line.data(), line.size());
  PAWL_RETURN_IF_ERROR(WriteFileDurably(env_, path_, {fragment}));
  node_ = node;
  job_id_ = job_id;
  life_ = life;
  return absl::OkStatus();
}

}  // namespace pawl
