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

// A manifest has some 50 bytes a partition, the job and the scheduler's state.
inline constexpr uint64_t kMaxManifestBytes = 64u << 20;

// Which checkpoint of which job.
struct CheckpointId {
  uint64_t job_id = 0;
  std::string job_name;
  uint64_t step = 0;
  // The job's end, which has a checkpoint of its own beside one that was made when that step was
  // reached: the best parameters may have been restored since.
  bool of_end = false;
};

// A part while it is written. Not thread-safe. Leaves nothing behind unless Commit succeeds.
class CheckpointPartWriter {
 public:
  ~CheckpointPartWriter();

  absl::Status Append(absl::string_view bytes) { return file_->Append(bytes); }
  // Makes the part durable. What it returns goes into the manifest.
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

// What a folder holds.
struct CheckpointListing {
  struct Entry {
    // The folder's name.
    std::string name;
    CheckpointManifest manifest;
  };
  // Those with a good manifest, newest step first, and of one step that of the job's end first.
  std::vector<Entry> complete;
  // Folders whose manifest is damaged: why.
  std::vector<absl::Status> damaged;
};

// Parts that Verify reads at the same time. One thread checks some 2 GB/s, more than a disk reads
// and less than a shared storage can give to several.
inline constexpr int kVerifyThreads = 4;

// How far Verify is, for others to look at meanwhile. Of the present checkpoint, if it goes on to
// an earlier one.
struct VerifyProgress {
  std::atomic<uint64_t> parts{0};
  std::atomic<uint64_t> parts_done{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> bytes_done{0};
};

struct CheckpointPlace {
  // The folder of checkpoints; absolute, without a slash at its end.
  std::string dir;
  // The checkpoint's own in it.
  std::string name;
};

// Without a slash at its end.
std::string AbsolutePath(const std::string& path);

// Thread-safe: has no state but the files. All errors of contents are DATA_LOSS and name the file
// and the offset.
class CheckpointStore {
 public:
  // `folder` holds the checkpoints, one folder each; it is made when the first part is written.
  CheckpointStore(Env& env, std::string folder) : env_(env), folder_(std::move(folder)) {}

  static std::string NameOf(absl::string_view job_name, uint64_t step, bool of_end = false);
  static std::string NameOf(const CheckpointManifest& manifest);
  // Whether that is the name of a checkpoint of a job's end.
  static bool IsOfEnd(absl::string_view name);
  // The checkpoint at `path`: its own folder, or a folder of checkpoints, of which it is the newest
  // one, good or not, of the job called `job_name`; if that is empty, of the one job that has any
  // there. NOT_FOUND. FAILED_PRECONDITION: it has not its own name. INVALID_ARGUMENT: there are
  // checkpoints of several jobs. DATA_LOSS: the job is not known.
  static absl::StatusOr<CheckpointPlace> Locate(Env& env, const std::string& path,
                                                absl::string_view job_name = "");
  const std::string& folder() const { return folder_; }

  // Begins the part of one partition. ALREADY_EXISTS if the checkpoint has its manifest: it is
  // complete and stays as it is.
  absl::StatusOr<std::unique_ptr<CheckpointPartWriter>> BeginPart(const CheckpointId& id,
                                                                  uint32_t partition,
                                                                  uint64_t log_index);

  // Completes a checkpoint: from now on it is there, before it was not. INVALID_ARGUMENT if the
  // manifest does not name every partition once; FAILED_PRECONDITION if a part is not there;
  // ABORTED if it is not the file that it says, which a server that has lost the partition
  // meanwhile may have put in its place; ALREADY_EXISTS. Of parts that this process may not read
  // (another user's) the size alone is compared, with a line in the log; PERMISSION_DENIED: nor can
  // that be seen.
  //
  // Ends with CheckComplete. Nothing older may be deleted before that has returned OK, by this
  // process or, if this one dies in between, by another one: until then the checkpoint may be there
  // with a wrong part, which Verify finds.
  absl::Status WriteManifest(const CheckpointManifest& manifest);

  // Looks at the parts of a checkpoint that has this manifest: a server that had looked for a
  // manifest before there was one may have put its part in the place of another one's; whoever
  // comes now finds it. If a part is another file, the manifest is deleted again: ABORTED.
  absl::Status CheckComplete(const CheckpointManifest& manifest);

  // Whether the part that a server has told of is the one that is there, by its beginning and its
  // end: its blocks are not read. NOT_FOUND; ABORTED: another one is.
  absl::Status CheckPart(const CheckpointId& id, const CheckpointPart& part) const;

  // Of one job, or of all jobs if the name is empty. A folder that is not there holds nothing.
  absl::StatusOr<CheckpointListing> List(absl::string_view job_name) const;

  // The job's checkpoints by the names of their folders, newest first, with or without a manifest;
  // job_id is 0. Reads no file. A folder that does not exist holds none.
  absl::StatusOr<std::vector<CheckpointId>> ListIds(absl::string_view job_name) const;

  // The job's checkpoint with the highest step that has a manifest, good or not; empty if there is
  // none.
  absl::StatusOr<std::string> Newest(absl::string_view job_name) const;

  // Renames what is after `last`, and of another run than last.job_id, to NAME.aside[-n], which
  // nothing here looks at: a job that was restored from it makes others in their place. What no
  // file says the run of, is not complete and stays. To be done again after any interruption, also
  // by a job that has made some itself. Returns the names.
  absl::StatusOr<std::vector<std::string>> SetAsideAfter(const CheckpointId& last);

  // NOT_FOUND; DATA_LOSS.
  absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& name) const;

  // Reads all of a checkpoint, by kVerifyThreads. DATA_LOSS names the file and the offset, and the
  // newest checkpoint before it that is whole. `progress` may be null.
  absl::Status Verify(const std::string& name, VerifyProgress* progress = nullptr) const;

  // Reads all of one part. DATA_LOSS, also for a part that is missing. CANCELLED: `may_go_on`,
  // which is asked before each block, has returned false.
  absl::Status VerifyPart(const CheckpointManifest& manifest, const CheckpointPart& part,
                          absl::FunctionRef<bool()> may_go_on) const;

  // The reader checks the part's blocks as they are read, and knows only at the end that all of it
  // is well: Verify first.
  absl::StatusOr<std::unique_ptr<BlockFileReader>> OpenPart(const CheckpointManifest& manifest,
                                                            uint32_t partition) const;

  std::string ManifestPath(absl::string_view name) const;
  std::string PartPath(const CheckpointManifest& manifest, uint32_t partition) const;
  // All of a part: a snapshot of the partition (server/shard/snapshot/partition_snapshot.h).
  absl::StatusOr<std::string> ReadPart(const CheckpointManifest& manifest,
                                       uint32_t partition) const;

  // Deletes the job's complete checkpoints but the newest `keep` (at least 1), and folders without
  // a good manifest of steps before the newest complete one.
  absl::Status DeleteOld(absl::string_view job_name, uint32_t keep);

 private:
  absl::StatusOr<std::string> OnlyJob() const;
  absl::Status VerifyOne(const std::string& name, VerifyProgress* progress) const;
  // For WriteManifest: all parts, of which `unread` are of another user. NOT_FOUND.
  absl::Status CheckParts(const CheckpointManifest& manifest, size_t& unread) const;
  // The checkpoint is not there any more, because of `why`, which it returns in more words.
  absl::Status TakeBack(const std::string& name, const absl::Status& why);
  // For CheckParts, where CheckPart is `denied`.
  absl::Status CheckSize(const std::string& path, const CheckpointPart& part,
                         const absl::Status& denied) const;
  absl::StatusOr<bool> IsOfAnotherRun(const std::string& name, uint64_t job_id) const;
  absl::Status DeleteCheckpoint(const std::string& name);
  std::string PathOf(absl::string_view name, absl::string_view file) const;

  Env& env_;
  const std::string folder_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_CHECKPOINT_CHECKPOINT_STORE_H_
