#include "worker/collective/nccl_loader.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/collective/collective_interface.h"
#include "worker/device/loadable_library.h"

namespace pawl {
namespace {

constexpr size_t kMaxHostNameBytes = 256;

const LoadableLibrary& NcclLibrary() {
  static const LoadableLibrary* const library = new LoadableLibrary{
      .file = kNcclLibraryFile,
      .function = kNcclLibraryFunction,
      .folder = "worker/collective/nccl/",
      .needs = {"libnccl", "libcudart"},
      .remedy = "install NCCL for CUDA 13 (package libnccl2)",
      .instead = "use --collectives=gloo",
  };
  return *library;
}

}  // namespace

std::vector<std::string> NcclLibraryPaths() { return LibraryPaths(NcclLibrary()); }

absl::Status NcclLoadError(absl::string_view path, absl::string_view message) {
  return LibraryLoadError(NcclLibrary(), path, message);
}

absl::StatusOr<NcclBackEnd> OpenNccl(int gpu, absl::Span<const std::string> paths) {
  PAWL_ASSIGN_OR_RETURN(const LoadedLibrary loaded, Load(NcclLibrary(), paths));
  const auto open = reinterpret_cast<NcclLibraryFunction*>(loaded.function);
  absl::StatusOr<NcclBackEnd> opened = absl::InternalError("the library returned no result");
  if (const char* const other = open(kCollectiveInterface, gpu, &opened); other != nullptr) {
    return OtherBuildError(loaded.path, other, kCollectiveInterface);
  }
  return opened;
}

std::string ThisMachine() {
  // Two machines may have the same name, and one machine's containers different names.
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (!boot.empty()) return boot;
  char name[kMaxHostNameBytes] = {};
  static_cast<void>(gethostname(name, sizeof(name) - 1));
  return name;
}

std::string NcclMachine() {
  const char* const given = std::getenv("NCCL_HOSTID");
  return given != nullptr ? given : ThisMachine();
}

}  // namespace pawl
