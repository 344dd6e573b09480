// A process that leads: opens the store PLACE, waits until it leads and saves revision REVISION
// with the bytes STATE. Then it writes its pid into the file READY, waits for the file GO, saves
// REVISION + 1000 and exits with the code of that Save's status (0 is OK, 10 ABORTED).
//
//   store_holder PLACE REVISION STATE READY GO
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/numbers.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/testing/eventually.h"
#include "scheduler/store/open_store.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kCampaignTime{30};
constexpr std::chrono::seconds kWaitTime{60};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return static_cast<int>(status.code());
}

int Run(char** argv) {
  uint64_t revision = 0;
  if (!absl::SimpleAtoi(argv[2], &revision))
    return Fail(absl::InvalidArgumentError("REVISION is not a number"));
  const auto store = OpenStore(argv[1]);
  if (!store.ok()) return Fail(store.status());
  const auto now = [] { return Clock::Real().Now(); };
  if (const auto status = (*store)->Campaign(now() + kCampaignTime); !status.ok())
    return Fail(status);
  if (const auto loaded = (*store)->Load(); !loaded.ok()) return Fail(loaded.status());
  if (const auto status = (*store)->Save(revision, argv[3]); !status.ok()) return Fail(status);
  std::ofstream(argv[4]) << getpid() << std::endl;
  if (!Eventually([&] { return access(argv[5], F_OK) == 0; }, kWaitTime)) {
    return Fail(absl::DeadlineExceededError("no GO"));
  }
  return Fail((*store)->Save(revision + 1000, "after GO"));
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: store_holder PLACE REVISION STATE READY GO\n");
    return 64;
  }
  return pawl::Run(argv);
}
