#include "client_lib/security/audit_log.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

std::string Path(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(AuditLogTest, EachRecordIsOneLineOfJson) {
  const std::string path = Path("audit.jsonl");
  for (int i = 0; i < 2; ++i) {
    // A restarted process appends.
    const auto log = AuditLog::Open(path);
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->Write({"spiffe://d/pawl/j/operator/alice", "ipv4:10.0.0.2:4711", "StopJob",
                   "{\"reason\":\"done\"}", absl::OkStatus()});
  }
  const auto lines = Lines(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["who"], "spiffe://d/pawl/j/operator/alice");
  EXPECT_EQ(lines[1]["from"], "ipv4:10.0.0.2:4711");
  EXPECT_EQ(lines[1]["method"], "StopJob");
  EXPECT_EQ(lines[1]["code"], "OK");
}

TEST(AuditLogTest, CallerCannotForgeLines) {
  const std::string path = Path("forged.jsonl");
  const auto log = AuditLog::Open(path);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write({"", "", "StopJob", "\n{\"who\":\"forged\"}\n\xff", absl::UnknownError("a\nb")});
  const auto lines = Lines(path);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["who"], "");
  EXPECT_EQ(lines[0]["code"], "UNKNOWN");
}

TEST(AuditLogTest, FolderThatCannotBeWrittenIsNamed) {
  const auto log = AuditLog::Open("/proc/audit.jsonl");
  EXPECT_EQ(log.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(log.status().message().find("/proc/audit.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace pawl
