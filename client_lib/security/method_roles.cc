#include "client_lib/security/method_roles.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_join.h"

namespace pawl {
namespace {

struct MethodRoles {
  absl::string_view path;
  RoleSet roles;
};

constexpr RoleSet kScheduler(PeerRole::kScheduler);
constexpr RoleSet kServers(PeerRole::kServer);
constexpr RoleSet kWorkers(PeerRole::kWorker);
constexpr RoleSet kOperators(PeerRole::kOperator);
constexpr RoleSet kWorkersAndClients(PeerRole::kWorker, PeerRole::kClient);
// Readers and operators register as clients that only pull.
constexpr RoleSet kNodes(PeerRole::kServer, PeerRole::kWorker, PeerRole::kClient, PeerRole::kReader,
                         PeerRole::kOperator);

// The "Caller:" comments in proto/ say the same; method_roles_test compares them.
constexpr MethodRoles kMethods[] = {
    {"/pawl.Parameter/Push", kWorkersAndClients},
    {"/pawl.Parameter/Pull",
     RoleSet(PeerRole::kWorker, PeerRole::kClient, PeerRole::kReader, PeerRole::kOperator)},
    {"/pawl.Parameter/Scan", kWorkersAndClients},
    {"/pawl.Parameter/EndStep", kWorkers},
    {"/pawl.Parameter/TakeOver", kWorkers},

    {"/pawl.Replication/Replicate", kServers},
    {"/pawl.Replication/InstallSnapshot", kServers},
    {"/pawl.Replication/GoBack", kServers},

    {"/pawl.ServerControl/CreateTable", kScheduler},
    {"/pawl.ServerControl/Inspect", RoleSet(PeerRole::kScheduler, PeerRole::kOperator)},
    {"/pawl.ServerControl/KeepBest", kScheduler},
    {"/pawl.ServerControl/RestoreBest", kScheduler},
    {"/pawl.ServerControl/ReleaseLogicalWorker", kScheduler},
    {"/pawl.ServerControl/Fingerprint", kOperators},
    {"/pawl.ServerControl/Checkpoint", kScheduler},
    {"/pawl.ServerControl/LoadCheckpoint", kScheduler},

    {"/pawl.Scheduler/Register", kNodes},
    {"/pawl.Scheduler/Heartbeat", kNodes},
    {"/pawl.Scheduler/Goodbye", kNodes},
    {"/pawl.Scheduler/GetRouting", kAllRoles},
    {"/pawl.Scheduler/ConfirmRouting", kServers},
    {"/pawl.Scheduler/CreateTable", kWorkersAndClients},
    {"/pawl.Scheduler/ListTables", kAllRoles},
    {"/pawl.Scheduler/Barrier", kWorkersAndClients},
    {"/pawl.Scheduler/GetAssignment", kWorkers},
    {"/pawl.Scheduler/GiveUpRanks", kWorkers},
    {"/pawl.Scheduler/JoinGroup", kWorkers},
    {"/pawl.Scheduler/ExchangeInGroup", kWorkers},
    {"/pawl.Scheduler/WatchGroup", kWorkers},
    {"/pawl.Scheduler/ReportEvaluation", kWorkers},
    {"/pawl.Scheduler/AgreeOnData", kWorkers},
    {"/pawl.Scheduler/FinishWork", kWorkers},
    {"/pawl.Scheduler/GetStatus", kAllRoles},
    {"/pawl.Scheduler/ListEvents", kAllRoles},
    {"/pawl.Scheduler/Checkpoint", kOperators},
    {"/pawl.Scheduler/Scale", kOperators},
    {"/pawl.Scheduler/Drain", kOperators},
    {"/pawl.Scheduler/ReleaseRetained", kOperators},
    {"/pawl.Scheduler/StopJob", kOperators},

    // gRPC's own services.
    {"/grpc.health.v1.Health/Check", kAllRoles},
    {"/grpc.health.v1.Health/Watch", kAllRoles},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kAllRoles},
};

}  // namespace

std::string RoleSet::Describe() const {
  std::vector<absl::string_view> names;
  for (int i = 0; i < kPeerRoles; ++i) {
    if (const auto role = static_cast<PeerRole>(i); Contains(role)) names.push_back(RoleName(role));
  }
  return absl::StrJoin(names, " or ");
}

std::optional<RoleSet> RolesOf(absl::string_view path) {
  static const auto* const roles = [] {
    auto* map = new absl::flat_hash_map<absl::string_view, RoleSet>;
    for (const MethodRoles& method : kMethods) map->emplace(method.path, method.roles);
    return map;
  }();
  const auto found = roles->find(path);
  if (found == roles->end()) return std::nullopt;
  return found->second;
}

std::vector<absl::string_view> KnownMethods() {
  std::vector<absl::string_view> paths;
  for (const MethodRoles& method : kMethods) paths.push_back(method.path);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace pawl
