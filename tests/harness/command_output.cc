#include "tests/harness/command_output.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/process/child_process.h"
#include "tests/harness/runfile.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kCommandTimeout{10};

}  // namespace

absl::StatusOr<std::string> CommandOutput(const std::string& program,
                                          const std::vector<std::string>& arguments) {
  const std::string name = std::filesystem::path(program).filename().string();
  PAWL_ASSIGN_OR_RETURN(const std::string folder, MakeOutputFolder(name));
  const std::string log = absl::StrCat(folder, "/", name, ".log");
  PAWL_ASSIGN_OR_RETURN(const auto child, ChildProcess::Start({name, program, arguments, log}));
  const std::string command = absl::StrCat(program, " ", absl::StrJoin(arguments, " "));
  if (!child->WaitUntil(Clock::Real().Now() + kCommandTimeout))
    return absl::DeadlineExceededError(command);
  std::ifstream file(log);
  std::string output(std::istreambuf_iterator<char>(file), {});
  if (!child->Succeeded()) return absl::UnavailableError(absl::StrCat(command, ": ", output));
  return output;
}

}  // namespace pawl
