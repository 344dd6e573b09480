#include "client_lib/security/grpc_log.h"

#include <string>

#include "absl/strings/match.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/clock.h"
#include "client_lib/security/rate_limiter.h"
#include "grpc/support/log.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr size_t kMaxLineBytes = 500;

void Log(gpr_log_func_args* line) {
  static RateLimiter* const limiter = new RateLimiter(kMaxRefusalsLoggedPerSecond);
  // The certificate has no name that could match, because peers are told apart by role.
  if (absl::StartsWith(line->message, "No match found for server name")) return;
  if (limiter->Allows(Clock::Real().Now()))
    spdlog::warn("gRPC: {}", BoundedText(line->message, kMaxLineBytes));
}

}  // namespace

void LogGrpcErrors() { gpr_set_log_function(Log); }

}  // namespace pawl
