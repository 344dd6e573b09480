// Exports the trained model of a checkpoint as files in a public format: model_format.md.
#ifndef PAWL_SERVER_EXPORT_MODEL_EXPORT_H_
#define PAWL_SERVER_EXPORT_MODEL_EXPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/base/env.h"

namespace pawl {

// The format of the arrays.
enum class ExportFormat {
  kNpy,
  kSafetensors,
};

// A summary of the exported model.
struct ExportSummary {
  std::string job;
  std::string checkpoint;
  uint64_t step = 0;
  // Whether the checkpoint is that of the job's end.
  bool is_final = false;
  uint64_t tables = 0;
  // The rows of sparse tables, and the elements of dense ones.
  uint64_t rows = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

// Writes the model of the checkpoint at `path` to the new folder `out`. `path` is the folder of a
// checkpoint, or a folder with checkpoints of one job; then the newest is exported. The whole
// checkpoint is read and checked first. `out` appears complete and durable, or not at all; except
// if the last sync fails: then it is complete although an error is returned. Needs memory of a few
// times the size of the largest partition, and disk space for twice the model.
//
// NOT_FOUND: no checkpoint, or no parent folder for `out`. ALREADY_EXISTS: `out` exists.
// INVALID_ARGUMENT: checkpoints of several jobs. FAILED_PRECONDITION: the checkpoint was renamed.
// DATA_LOSS: the checkpoint is damaged (the message names the file, the offset and the newest
// intact one before it), or its parts and manifest belong to different jobs. ABORTED: it was
// deleted meanwhile. Others: the files cannot be written.
absl::StatusOr<ExportSummary> ExportModel(Env& env, const std::string& path, const std::string& out,
                                          ExportFormat format = ExportFormat::kNpy);

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_MODEL_EXPORT_H_
