// Events of a cluster, and the movement of its replicas, as text and JSON.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_EVENT_REPORT_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_EVENT_REPORT_H_

#include <string>

#include "nlohmann/json.hpp"
#include "proto/scheduler.pb.h"

namespace pawl {

// "12 replicas to copy (3 in progress, 40 MB left, about 5.0 s), ..."
std::string MovesText(const MovesStatus& moves);

// One line.
std::string EventText(const ClusterEvent& event);
nlohmann::ordered_json EventJson(const ClusterEvent& event);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_EVENT_REPORT_H_
