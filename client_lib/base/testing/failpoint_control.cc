#include "client_lib/base/testing/failpoint_control.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/mutex.h"

namespace pawl {
namespace {

constexpr int kExitUsage = 2;

struct Armed {
  enum class Action { kCrash, kPause, kError };
  Action action = Action::kCrash;
  std::chrono::milliseconds pause = {};
  // 0: every hit.
  uint64_t only_hit = 0;
};

absl::StatusOr<Armed> Parse(absl::string_view text) {
  Armed armed;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  if (absl::StrContains(text, '@') &&
      (!absl::SimpleAtoi(parts.second, &armed.only_hit) || armed.only_hit == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': the number after '@' must be at least 1"));
  }
  absl::string_view action = parts.first;
  uint64_t pause_ms = 0;
  if (action == "crash") {
    armed.action = Armed::Action::kCrash;
  } else if (action == "error") {
    armed.action = Armed::Action::kError;
  } else if (absl::ConsumePrefix(&action, "pause:") && absl::SimpleAtoi(action, &pause_ms) &&
             pause_ms <= kMaxPauseMs) {
    armed.action = Armed::Action::kPause;
    armed.pause = std::chrono::milliseconds(pause_ms);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "': the actions are crash, error and pause:MS with MS up to ", kMaxPauseMs));
  }
  return armed;
}

// Thread-safe.
class Failpoints {
 public:
  // Never destroyed: threads may still pass failpoints while the process exits.
  static Failpoints& Get() {
    static Failpoints* const failpoints = new Failpoints;
    return *failpoints;
  }

  absl::Status Arm(absl::string_view spec) {
    std::map<std::string, Armed> armed;
    for (const absl::string_view entry : absl::StrSplit(spec, ';', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(entry, absl::MaxSplits('=', 1));
      if (parts.first.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("'", entry, "' is not NAME=ACTION[@N]"));
      }
      const absl::StatusOr<Armed> parsed = Parse(parts.second);
      if (!parsed.ok()) return parsed.status();
      if (!armed.emplace(std::string(parts.first), *parsed).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("failpoint '", parts.first, "' is armed twice"));
      }
    }
    MutexLock lock(mu_);
    armed_ = std::move(armed);
    hits_.clear();
    return absl::OkStatus();
  }

  bool Hit(const char* name) {
    Armed armed;
    {
      MutexLock lock(mu_);
      const uint64_t hit = ++hits_[name];
      const auto found = armed_.find(name);
      if (found == armed_.end() || (found->second.only_hit != 0 && found->second.only_hit != hit))
        return false;
      armed = found->second;
    }
    switch (armed.action) {
      case Armed::Action::kCrash: {
        const std::string line = absl::StrCat("failpoint ", name, ": crash\n");
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
        raise(SIGKILL);
        std::abort();
      }
      case Armed::Action::kPause:
        std::this_thread::sleep_for(armed.pause);
        return false;
      case Armed::Action::kError:
        return true;
    }
    return false;
  }

  std::map<std::string, uint64_t> hits() {
    MutexLock lock(mu_);
    return hits_;
  }

 private:
  Mutex mu_;
  std::map<std::string, Armed> armed_ PAWL_GUARDED_BY(mu_);
  // At most as many as there are failpoints in the code.
  std::map<std::string, uint64_t> hits_ PAWL_GUARDED_BY(mu_);
};

[[maybe_unused]] const bool environment_read = [] {
  const char* const spec = std::getenv("PAWL_FAILPOINTS");
  if (spec == nullptr) return false;
  if (const absl::Status status = ArmFailpoints(spec); !status.ok()) {
    const std::string line = absl::StrCat("PAWL_FAILPOINTS: ", status.message(), "\n");
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    _exit(kExitUsage);
  }
  return true;
}();

}  // namespace

bool FailpointHit(const char* name) { return Failpoints::Get().Hit(name); }

absl::Status ArmFailpoints(absl::string_view spec) { return Failpoints::Get().Arm(spec); }

std::map<std::string, uint64_t> FailpointHits() { return Failpoints::Get().hits(); }

}  // namespace pawl
