#include "client_lib/security/method_roles.h"

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/harness/runfile.h"

namespace pawl {
namespace {

// "workers; when they start" -> the roles before the semicolon.
RoleSet RolesInComment(absl::string_view comment) {
  const absl::string_view list = *absl::StrSplit(absl::StripSuffix(comment, "."), ';').begin();
  if (list == "all roles") return kAllRoles;
  const std::map<absl::string_view, PeerRole> roles = {
      {"scheduler", PeerRole::kScheduler}, {"servers", PeerRole::kServer},
      {"workers", PeerRole::kWorker},      {"clients", PeerRole::kClient},
      {"readers", PeerRole::kReader},      {"operators", PeerRole::kOperator}};
  RoleSet set;
  for (const absl::string_view name : absl::StrSplit(list, ", ")) {
    const auto found = roles.find(name);
    EXPECT_NE(found, roles.end()) << "'" << name << "' is not a role; comment: " << comment;
    if (found != roles.end()) set = set.With(found->second);
  }
  return set;
}

// The roles that the comments of a .proto file give, by path.
std::map<std::string, RoleSet> CommentedRoles(const std::string& file) {
  std::map<std::string, RoleSet> roles;
  std::ifstream in(*Runfile(absl::StrCat("proto/", file)));
  EXPECT_TRUE(in.good()) << file;
  std::string service;
  std::string caller;
  for (std::string line; std::getline(in, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "service "))
      service = std::string(*absl::StrSplit(rest, ' ').begin());
    if (absl::ConsumePrefix(&rest, "  // Caller: ")) caller = std::string(rest);
    if (absl::ConsumePrefix(&rest, "  rpc ")) {
      const std::string path =
          absl::StrCat("/pawl.", service, "/", std::string(*absl::StrSplit(rest, '(').begin()));
      EXPECT_FALSE(caller.empty()) << path << " has no comment 'Caller:'";
      roles[path] = RolesInComment(caller);
      caller.clear();
    }
  }
  return roles;
}

TEST(MethodRolesTest, TableHasTheRolesThatTheProtosGive) {
  std::set<std::string> paths;
  for (const char* file :
       {"parameter.proto", "replication.proto", "scheduler.proto", "server_control.proto"}) {
    for (const auto& [path, roles] : CommentedRoles(file)) {
      paths.insert(path);
      const std::optional<RoleSet> known = RolesOf(path);
      ASSERT_TRUE(known.has_value()) << path << " has no row in method_roles.cc";
      EXPECT_EQ(known->Describe(), roles.Describe()) << path;
    }
  }
  EXPECT_GT(paths.size(), 30u);
  for (const absl::string_view path : KnownMethods()) {
    if (absl::StartsWith(path, "/pawl.")) {
      EXPECT_TRUE(paths.contains(std::string(path))) << path << " is in no .proto file";
    }
  }
}

TEST(MethodRolesTest, UnknownRpcHasNoRoles) {
  EXPECT_EQ(RolesOf("/pawl.Scheduler/Destroy"), std::nullopt);
  EXPECT_EQ(RolesOf(""), std::nullopt);
  EXPECT_EQ(RolesOf("/pawl.Scheduler/StopJob/"), std::nullopt);
}

}  // namespace
}  // namespace pawl
