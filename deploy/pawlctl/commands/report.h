// The scheduler's answers as text for humans and as JSON for programs.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_REPORT_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/scheduler.pb.h"

namespace pawl {

// Indented. Bytes that are not UTF-8, as in the name of a file, are replaced.
std::string JsonText(const nlohmann::ordered_json& value);

// Aligns cells in columns, numbers to the right. The first row is the heading.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// "auc 0.7216  logloss 0.4603  (after step 610)"
std::string EvaluationText(const EvaluationResult& result);
// "normalized_entropy 0.9241  calibration 1.0032"; empty if it has neither.
std::string ProbabilitiesText(const EvaluationResult& result);

// `routing` may be null.
std::string StatusText(const GetStatusResponse& status, const RoutingTable* routing = nullptr);
nlohmann::ordered_json StatusJson(const GetStatusResponse& status,
                                  const RoutingTable* routing = nullptr);

std::string NodesText(const GetStatusResponse& status, const RoutingTable* routing = nullptr);
nlohmann::ordered_json NodesJson(const GetStatusResponse& status,
                                 const RoutingTable* routing = nullptr);

std::string TablesText(const ListTablesResponse& tables);
nlohmann::ordered_json TablesJson(const ListTablesResponse& tables);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_REPORT_H_
