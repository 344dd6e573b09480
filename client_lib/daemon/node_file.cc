#include "client_lib/daemon/node_file.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"
#include "google/protobuf/text_format.h"

namespace pawl {
namespace {

constexpr char kNodeFile[] = "node";
// A file of a scheduler whose --store is a folder.
constexpr char kStoreFile[] = "state.log";
// A job has at most a few hundred lines.
constexpr uint64_t kMaxNodeFileBytes = 1u << 20;

std::string HeadOf(absl::string_view text, absl::string_view daemon) {
  return absl::StrFormat("# crc32c %08x of the lines below; written by %s\n",
                         Crc32c(0, text.data(), text.size()), daemon);
}

// FAILED_PRECONDITION if the folder contains one of the files or folders `names`.
absl::Status CheckContainsNone(Env& env, const std::string& data_folder,
                               absl::Span<const absl::string_view> names, absl::string_view owner) {
  const absl::StatusOr<std::vector<std::string>> entries = env.List(data_folder);
  if (absl::IsNotFound(entries.status())) return absl::OkStatus();
  PAWL_RETURN_IF_ERROR(entries.status());
  for (const absl::string_view name : names) {
    if (!absl::c_linear_search(*entries, name)) continue;
    return absl::FailedPreconditionError(absl::StrCat(data_folder, " contains '", name,
                                                      "', so it belongs to ", owner,
                                                      ": give each process its own --data_dir"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckIsNotSchedulerFolder(Env& env, const std::string& data_folder) {
  return CheckContainsNone(env, data_folder, {"state", kStoreFile, "address", "metrics.json"},
                           "a pawl-scheduler");
}

absl::Status CheckIsNotNodeFolder(Env& env, const std::string& data_folder, bool holds_store) {
  const absl::string_view names[] = {kNodeFile, kFolderLockFile};
  return CheckContainsNone(env, data_folder, absl::MakeSpan(names, holds_store ? 1 : 2),
                           "a pawl-server or pawl-worker");
}

absl::StatusOr<NodeIdentity> ReadNodeFile(Env& env, const std::string& data_folder,
                                          absl::string_view daemon) {
  const std::string path = JoinPath(data_folder, kNodeFile);
  PAWL_ASSIGN_OR_RETURN(const std::string contents, ReadWholeFile(env, path, kMaxNodeFileBytes));
  const size_t end_of_head = absl::string_view(contents).find('\n');
  const size_t begin = end_of_head == absl::string_view::npos ? contents.size() : end_of_head + 1;
  const std::string text = contents.substr(begin);
  const absl::string_view head = absl::string_view(contents).substr(0, begin);
  for (const absl::string_view other : {kServerDaemon, kWorkerDaemon}) {
    if (other == daemon || head != HeadOf(text, other)) continue;
    return absl::FailedPreconditionError(absl::StrCat(path, " belongs to a ", other,
                                                      ", and this is a ", daemon,
                                                      ": give each its own --data_dir"));
  }
  if (head != HeadOf(text, daemon)) {
    return absl::DataLossError(
        absl::StrCat(path,
                     " is damaged at offset 0, or of an older version: the checksum in its first "
                     "line does not match the lines below"));
  }
  NodeIdentity identity;
  if (!google::protobuf::TextFormat::ParseFromString(text, &identity)) {
    return absl::DataLossError(absl::StrCat(path, " is damaged at offset ", begin,
                                            ": it is not a NodeIdentity of this version"));
  }
  return identity;
}

absl::Status WriteNodeFile(Env& env, const std::string& data_folder, const NodeIdentity& identity,
                           absl::string_view daemon) {
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(identity, &text)) {
    return absl::InternalError("a NodeIdentity cannot be printed");
  }
  const std::string head = HeadOf(text, daemon);
  const WritableFile::Fragment fragments[] = {{head.data(), head.size()},
                                              {text.data(), text.size()}};
  return WriteFileDurably(env, JoinPath(data_folder, kNodeFile), fragments);
}

}  // namespace pawl
