// A routing table with two servers, for tests.
#ifndef PAWL_SERVER_TESTING_TWO_SERVERS_H_
#define PAWL_SERVER_TESTING_TWO_SERVERS_H_

#include <cstdint>

#include "proto/scheduler.pb.h"

namespace pawl {

// A routing table with server-0 and server-1 in incarnation 1. The test adds the partitions.
inline RoutingTable TwoServers(uint64_t job_id, uint64_t epoch) {
  RoutingTable routing;
  routing.set_job_id(job_id);
  routing.set_epoch(epoch);
  for (const char* node : {"server-0", "server-1"}) {
    ServerAddress& server = *routing.add_servers();
    server.set_node(node);
    server.set_incarnation(1);
  }
  return routing;
}

}  // namespace pawl

#endif  // PAWL_SERVER_TESTING_TWO_SERVERS_H_
