// A record of what operators do to a job, and of calls that were refused.
#ifndef PAWL_CLIENT_LIB_SECURITY_AUDIT_LOG_H_
#define PAWL_CLIENT_LIB_SECURITY_AUDIT_LOG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace spdlog {
class logger;
}  // namespace spdlog

namespace pawl {

// The file is replaced when it has this size; kAuditFiles earlier ones are kept as FILE.1 and so
// on.
inline constexpr size_t kMaxAuditFileBytes = size_t{16} << 20;
inline constexpr size_t kAuditFiles = 10;
// Longer texts of a record are cut.
inline constexpr size_t kMaxAuditTextBytes = 2048;

struct AuditRecord {
  // The caller's identity: the URI of its certificate; empty without TLS.
  absl::string_view who;
  // Its address; empty if it is not known.
  absl::string_view from;
  // The rpc's path or name.
  absl::string_view method;
  // The request as JSON, or empty.
  absl::string_view request;
  absl::Status result;
};

// One JSON object per line and record: time, who, from and request unless empty, method, code,
// message. Records are written at once and not synced. Thread-safe.
class AuditLog {
 public:
  // Appends to `path`. An error names the file.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path);
  ~AuditLog();

  void Write(const AuditRecord& record);

 private:
  explicit AuditLog(std::shared_ptr<spdlog::logger> logger);

  const std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_AUDIT_LOG_H_
