// What the scheduler knows, as tables for people and as JSON for programs.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_REPORT_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/scheduler.pb.h"

namespace pawl {

// Lines of cells in columns: the first row is the heading; columns of numbers are aligned to the
// right.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// `routing`: null where nobody has said where the partitions are.
std::string StatusText(const GetStatusResponse& status, const RoutingTable* routing = nullptr);
nlohmann::ordered_json StatusJson(const GetStatusResponse& status,
                                  const RoutingTable* routing = nullptr);

std::string NodesText(const GetStatusResponse& status, const RoutingTable* routing = nullptr);
nlohmann::ordered_json NodesJson(const GetStatusResponse& status,
                                 const RoutingTable* routing = nullptr);

std::string TablesText(const ListTablesResponse& tables);
nlohmann::ordered_json TablesJson(const ListTablesResponse& tables);

// "12 replicas to copy (3 under way, 40 MB left, about 5.0 s), ..."
std::string MovesText(const MovesStatus& moves);

// One line.
std::string EventText(const ClusterEvent& event);
nlohmann::ordered_json EventJson(const ClusterEvent& event);

// CRC32C values as everywhere in Pawl: eight hexadecimal digits.
std::string FormatDigest(uint32_t digest);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_REPORT_H_
