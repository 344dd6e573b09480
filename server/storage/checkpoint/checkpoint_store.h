// Checkpoints in a folder that servers and scheduler share. checkpoint_format.md has the layout.
#ifndef PAWL_SERVER_STORAGE_CHECKPOINT_CHECKPOINT_STORE_H_
#define PAWL_SERVER_STORAGE_CHECKPOINT_CHECKPOINT_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "proto/checkpoint.pb.h"
#include "server/storage/block_file.h"

namespace pawl {

// A manifest has about 50 bytes per partition, the job, and the scheduler's state.
inline constexpr uint64_t kMaxManifestBytes = 64u << 20;

// Identifies a checkpoint of a job.
struct CheckpointId {
  uint64_t job_id = 0;
  std::string job_name;
  uint64_t step = 0;
  // The checkpoint of the job's end. It exists beside one made when that step was reached, because
  // the best parameters may have been restored since.
  bool is_final = false;
};

// Writes a part. Not thread-safe. Leaves nothing behind unless Commit succeeds.
class CheckpointPartWriter {
 public:
  ~CheckpointPartWriter();

  absl::Status Append(absl::string_view bytes) { return file_->Append(bytes); }
  // Makes the part durable. The result goes into the manifest.
  absl::StatusOr<CheckpointPart> Commit();

 private:
  friend class CheckpointStore;
  CheckpointPartWriter(Env& env, std::string folder, std::string temporary,
                       std::unique_ptr<BlockFileWriter> file, CheckpointPart part)
      : env_(env),
        folder_(std::move(folder)),
        temporary_(std::move(temporary)),
        file_(std::move(file)),
        part_(std::move(part)) {}

  Env& env_;
  const std::string folder_;
  const std::string temporary_;
  const std::unique_ptr<BlockFileWriter> file_;
  CheckpointPart part_;
  bool committed_ = false;
};

// The contents of a folder of checkpoints.
struct CheckpointListing {
  struct Entry {
    // The name of the checkpoint's folder.
    std::string name;
    CheckpointManifest manifest;
  };
  // Checkpoints with a good manifest, newest step first; at one step the end's checkpoint first.
  std::vector<Entry> complete;
  // One error for each folder with a damaged manifest.
  std::vector<absl::Status> damaged;
};

// Parts that Verify reads at the same time. One thread checks about 2 GB/s, more than a disk
// delivers and less than shared storage can deliver to several.
inline constexpr int kVerifyThreads = 4;

// The progress of Verify, which other threads may read. It covers the present checkpoint if Verify
// continues with an earlier one.
struct VerifyProgress {
  std::atomic<uint64_t> parts{0};
  std::atomic<uint64_t> parts_done{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> bytes_done{0};
};

struct CheckpointPlace {
  // The folder of checkpoints; absolute, without a trailing slash.
  std::string dir;
  // The name of the checkpoint's own folder in it.
  std::string name;
};

// Without a trailing slash. Returns the path itself if it is empty, or relative to a current folder
// that was deleted: nothing exists there.
std::string AbsolutePath(const std::string& path);

// Thread-safe: it has no state but the files. Errors in contents are DATA_LOSS and name the file
// and the offset.
class CheckpointStore {
 public:
  // `folder` holds the checkpoints, one folder each. It is created for the first part.
  CheckpointStore(Env& env, std::string folder) : env_(env), folder_(std::move(folder)) {}

  static std::string NameOf(absl::string_view job_name, uint64_t step, bool is_final = false);
  static std::string NameOf(const CheckpointManifest& manifest);
  // Whether this is the name of a checkpoint of a job's end.
  static bool IsEndCheckpoint(absl::string_view name);
  // Finds the checkpoint at `path`, which is its own folder or a folder of checkpoints. In the
  // latter, the newest one, good or not, of the job `job_name`, or, if that is empty, of the only
  // job with checkpoints there. NOT_FOUND. FAILED_PRECONDITION: its folder was renamed.
  // INVALID_ARGUMENT: several jobs have checkpoints there. DATA_LOSS: the job cannot be determined.
  static absl::StatusOr<CheckpointPlace> Locate(Env& env, const std::string& path,
                                                absl::string_view job_name = "");
  const std::string& folder() const { return folder_; }

  // Starts the part of one partition. ALREADY_EXISTS: the checkpoint has its manifest, so it is
  // complete and does not change.
  absl::StatusOr<std::unique_ptr<CheckpointPartWriter>> BeginPart(const CheckpointId& id,
                                                                  uint32_t partition,
                                                                  uint64_t log_index);

  // Completes a checkpoint: it exists once its manifest does. INVALID_ARGUMENT: the manifest does
  // not name every partition once. FAILED_PRECONDITION: a part does not exist. ABORTED: a part is
  // not the file in the manifest; a server that has lost the partition may have replaced it.
  // ALREADY_EXISTS. If this process may not read a part (another user's), only its size is
  // compared, and that is logged. PERMISSION_DENIED: not even the size can be read.
  //
  // Ends with CheckComplete. Delete nothing older before CheckComplete has returned OK, in this
  // process or, if it dies, in another one: until then the checkpoint may have a wrong part, which
  // Verify finds.
  absl::Status WriteManifest(const CheckpointManifest& manifest);

  // Checks the parts of a checkpoint that has this manifest. A server that checked for a manifest
  // before it existed may have replaced a part after that; this finds it. ABORTED: a part is
  // another file or missing, and the manifest was deleted again. OK: the checkpoint is durable.
  absl::Status CheckComplete(const CheckpointManifest& manifest);

  // Checks by header and footer, without reading the blocks, that the part is the one a server has
  // reported. NOT_FOUND. ABORTED: it is another one.
  absl::Status CheckPart(const CheckpointId& id, const CheckpointPart& part) const;

  // Lists the checkpoints of one job, or of all jobs if the name is empty. A missing folder is
  // empty.
  absl::StatusOr<CheckpointListing> List(absl::string_view job_name) const;

  // The job's checkpoints by folder name, newest first, with or without a manifest; job_id is 0.
  // Reads no file. A missing folder is empty.
  absl::StatusOr<std::vector<CheckpointId>> ListIds(absl::string_view job_name) const;

  // The job's checkpoint with the highest step that has a manifest, good or not; empty if there is
  // none.
  absl::StatusOr<std::string> Newest(absl::string_view job_name) const;

  // Renames the checkpoints after `last` that belong to another run than last.job_id to
  // NAME.aside[-n], a name that this class ignores: a job restored from `last` makes its own ones
  // in their place. A checkpoint none of whose files names its run is incomplete and is not
  // renamed. Repeat it after any interruption; it does not touch checkpoints that the job itself
  // has made since. Returns the names.
  absl::StatusOr<std::vector<std::string>> SetAsideAfter(const CheckpointId& last);

  // NOT_FOUND; DATA_LOSS.
  absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& name) const;

  // Reads the whole checkpoint with kVerifyThreads. DATA_LOSS names the file, the offset, and the
  // newest earlier checkpoint that is whole. `progress` may be null.
  absl::Status Verify(const std::string& name, VerifyProgress* progress = nullptr) const;

  // Reads one whole part. DATA_LOSS, also for a missing part. CANCELLED: `should_continue`, called
  // before each block, returned false.
  absl::Status VerifyPart(const CheckpointManifest& manifest, const CheckpointPart& part,
                          absl::FunctionRef<bool()> should_continue) const;

  // The reader checks the blocks as they are read, and the part is known to be whole only at its
  // end: call Verify first.
  absl::StatusOr<std::unique_ptr<BlockFileReader>> OpenPart(const CheckpointManifest& manifest,
                                                            uint32_t partition) const;

  std::string ManifestPath(absl::string_view name) const;
  std::string PartPath(const CheckpointManifest& manifest, uint32_t partition) const;

  // Deletes the job's complete checkpoints except the newest `keep` (at least 1), and folders
  // without a good manifest for steps before the newest complete one.
  absl::Status DeleteOld(absl::string_view job_name, uint32_t keep);

 private:
  absl::StatusOr<std::string> OnlyJob() const;
  absl::Status VerifyOne(const std::string& name, VerifyProgress* progress) const;
  // For WriteManifest: checks all parts; `unread` of them belong to another user. NOT_FOUND.
  absl::Status CheckParts(const CheckpointManifest& manifest, size_t& unread) const;
  absl::StatusOr<CheckpointManifest> ReadManifestOnce(const std::string& name) const;
  // Deletes the manifest because of `why`, and returns `why` with more context.
  absl::Status WithdrawManifest(const std::string& name, const absl::Status& why);
  // For CheckParts, where CheckPart is `denied`.
  absl::Status CheckSize(const std::string& path, const CheckpointPart& part,
                         const absl::Status& denied) const;
  absl::StatusOr<bool> BelongsToAnotherRun(const std::string& name, uint64_t job_id) const;
  absl::Status DeleteCheckpoint(const std::string& name);
  std::string PathOf(absl::string_view name, absl::string_view file) const;

  Env& env_;
  const std::string folder_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_CHECKPOINT_CHECKPOINT_STORE_H_
