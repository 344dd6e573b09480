#include "deploy/pawlctl/commands/export_command.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "nlohmann/json.hpp"
#include "server/export/model_export.h"

namespace pawl {

int ExportCommand(const std::string& checkpoint, const std::string& out, bool json) {
  Console console;
  const absl::StatusOr<ExportSummary> written = ExportModel(Env::Real(), checkpoint, out);
  if (!written.ok()) {
    const absl::Status& status = written.status();
    console.Error(absl::StrCat("export: ", status.message()));
    const bool is_wrong_folder = absl::IsNotFound(status) || absl::IsAlreadyExists(status) ||
                                 absl::IsInvalidArgument(status);
    return is_wrong_folder ? kExitUsage : kExitFailed;
  }
  if (json) {
    console.Line(nlohmann::ordered_json({{"job", written->job},
                                         {"checkpoint", written->checkpoint},
                                         {"step", written->step},
                                         {"of_end", written->of_end},
                                         {"tables", written->tables},
                                         {"rows", written->rows},
                                         {"elements", written->elements},
                                         {"bytes", written->bytes},
                                         {"out", out}})
                     .dump(2));
  } else {
    console.Line(absl::StrCat("model of job ", written->job, " at step ",
                              FormatCount(written->step), written->of_end ? ", its end" : "", " (",
                              written->checkpoint, "), in ", out, ": ",
                              FormatCount(written->tables), " tables, ", FormatCount(written->rows),
                              " rows, ", FormatCount(written->elements), " dense elements, ",
                              FormatCount(written->bytes), " bytes"));
  }
  return kExitDone;
}

}  // namespace pawl
