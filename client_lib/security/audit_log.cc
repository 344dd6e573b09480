#include "client_lib/security/audit_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client_lib/base/bounded_text.h"
#include "nlohmann/json.hpp"
#include "spdlog/sinks/rotating_file_sink.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

std::string Text(absl::string_view text) { return BoundedText(text, kMaxAuditTextBytes); }

}  // namespace

AuditLog::AuditLog(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}
AuditLog::~AuditLog() = default;

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path) {
  try {
    auto logger = std::make_shared<spdlog::logger>(
        "audit", std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, kMaxAuditFileBytes,
                                                                        kAuditFiles));
    logger->set_pattern("%v");
    logger->flush_on(spdlog::level::info);
    return std::unique_ptr<AuditLog>(new AuditLog(std::move(logger)));
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", error.what()));
  }
}

void AuditLog::Write(const AuditRecord& record) {
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone())},
      {"who", Text(record.who)},
  };
  if (!record.from.empty()) line["from"] = Text(record.from);
  line["method"] = Text(record.method);
  if (!record.request.empty()) line["request"] = Text(record.request);
  line["code"] = absl::StatusCodeToString(record.result.code());
  line["message"] = Text(record.result.message());
  logger_->info(line.dump());
}

}  // namespace pawl
