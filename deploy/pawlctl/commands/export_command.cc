#include "deploy/pawlctl/commands/export_command.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "nlohmann/json.hpp"
#include "server/export/model_export.h"

namespace pawl {

namespace {

struct ExportOptions {
  std::string checkpoint;
  std::string out;
  std::string format = "npy";
  bool json = false;
};

// kExitUsage: one of the two folders is the wrong one. kExitFailed: reading or writing failed.
int Export(const ExportOptions& options) {
  const auto& [checkpoint, out, format, json] = options;
  Console console;
  if (format != "npy" && format != "safetensors") {
    console.Error(absl::StrCat("--format is '", format, "'; choose from npy, safetensors"));
    return kExitUsage;
  }
  const absl::StatusOr<ExportSummary> written =
      ExportModel(Env::Real(), checkpoint, out,
                  format == "npy" ? ExportFormat::kNpy : ExportFormat::kSafetensors);
  if (!written.ok()) {
    const absl::Status& status = written.status();
    console.Error(absl::StrCat("export: ", status.message()));
    const bool is_wrong_folder = absl::IsNotFound(status) || absl::IsAlreadyExists(status) ||
                                 absl::IsInvalidArgument(status);
    return is_wrong_folder ? kExitUsage : kExitFailed;
  }
  if (json) {
    console.Line(JsonText({{"job", written->job},
                           {"checkpoint", written->checkpoint},
                           {"step", written->step},
                           {"of_end", written->is_final},
                           {"tables", written->tables},
                           {"rows", written->rows},
                           {"elements", written->elements},
                           {"bytes", written->bytes},
                           {"out", out}}));
  } else {
    console.Line(absl::StrCat("model of job ", written->job, " at step ",
                              FormatCount(written->step), written->is_final ? ", its end" : "",
                              " (", written->checkpoint, "), in ", out, ": ",
                              FormatCount(written->tables), " tables, ", FormatCount(written->rows),
                              " rows, ", FormatCount(written->elements), " dense elements, ",
                              FormatCount(written->bytes), " bytes"));
  }
  return kExitDone;
}

}  // namespace

void AddExportCommand(CommandLine& line) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App& command = line.AddCommand(
      "export", "write the trained model of a checkpoint as files",
      "Reads a checkpoint, without any server, and writes its parameters for programs without\n"
      "Pawl: a file of arrays, or two, for each table, and model.json, which names them\n"
      "(server/export/model_format.md). The keys of sparse tables ascend. The optimizer's state\n"
      "is left out. The whole checkpoint is checked first, and --out is created whole or not at\n"
      "all. The export needs a few times the memory of the largest partition, and disk space\n"
      "for two copies of the model. It exits with 1 if the checkpoint is damaged, or is deleted\n"
      "during the export.\n\n"
      "  pawlctl export --checkpoint=/shared/checkpoints --out=model",
      [options] { return Export(*options); });
  AddFlag(command, "--checkpoint", "FOLDER", options->checkpoint,
          "A checkpoint's own folder, or a folder with checkpoints of one job; then the newest is\n"
          "exported.",
          {.required = true});
  AddFlag(command, "--out", "FOLDER", options->out, "The model's folder, which must not exist yet.",
          {.required = true});
  AddFlag(
      command, "--format", "FORMAT", options->format,
      "npy: NumPy files, TABLE.npy for each dense table, TABLE.keys.npy and TABLE.rows.npy for\n"
      "each sparse one. safetensors: TABLE.safetensors for each table.");
  AddJsonFlag(command, options->json);
}

}  // namespace pawl
