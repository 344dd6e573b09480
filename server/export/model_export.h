// The trained model of a checkpoint as files that everybody reads: model_format.md.
#ifndef PAWL_SERVER_EXPORT_MODEL_EXPORT_H_
#define PAWL_SERVER_EXPORT_MODEL_EXPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/base/env.h"

namespace pawl {

// What was written.
struct ExportSummary {
  std::string job;
  std::string checkpoint;
  uint64_t step = 0;
  // The checkpoint is of the job's end.
  bool of_end = false;
  uint64_t tables = 0;
  // Of sparse tables, and elements of dense ones.
  uint64_t rows = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

// Writes the model of the checkpoint at `path` (its own folder, or a folder with checkpoints of one
// job, of which the newest is taken) to the folder `out`, which is made: it is there whole and
// durable, or not at all; only if the very last sync fails it is there, whole, and an error is
// told. All of the checkpoint is read and checked before. Holds some times the largest of the
// partitions in memory, and needs room on the disk for the model twice.
//
// NOT_FOUND: there is no checkpoint, or no folder for `out` to be in. ALREADY_EXISTS: `out` is
// there. INVALID_ARGUMENT: checkpoints of several jobs. FAILED_PRECONDITION: the checkpoint has not
// its own name. DATA_LOSS: the checkpoint is damaged, naming the file, the offset and the newest
// whole one before it; or its parts and its manifest are not of one job. ABORTED: it was deleted
// meanwhile. Others: the files cannot be written.
absl::StatusOr<ExportSummary> ExportModel(Env& env, const std::string& path,
                                          const std::string& out);

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_MODEL_EXPORT_H_
