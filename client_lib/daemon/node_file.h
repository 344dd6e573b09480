// The file that tells a server or worker who it was before it died: <data dir>/node.
#ifndef PAWL_CLIENT_LIB_DAEMON_NODE_FILE_H_
#define PAWL_CLIENT_LIB_DAEMON_NODE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "client_lib/daemon/node_identity.pb.h"

namespace pawl {

// A line with the checksum of all that follows it, then a NodeIdentity as text:
//
//   # crc32c 1c0b7a5d of the lines below; written by pawl-server
//   node: "server-0"
//   ...
//
// `daemon`: kServerDaemon or kWorkerDaemon.
inline constexpr absl::string_view kServerDaemon = "pawl-server";
inline constexpr absl::string_view kWorkerDaemon = "pawl-worker";

// NOT_FOUND. DATA_LOSS, naming the file and the offset. FAILED_PRECONDITION for a folder of the
// other daemon.
absl::StatusOr<NodeIdentity> ReadNodeFile(Env& env, const std::string& data_folder,
                                          absl::string_view daemon);
// FAILED_PRECONDITION, naming what lies there, if `data_folder` is a scheduler's.
absl::Status CheckIsNoSchedulersFolder(Env& env, const std::string& data_folder);
// FAILED_PRECONDITION, naming what lies there, if `data_folder` is a server's or a worker's. Each
// of the two looks after it has left something that the other one looks for, so of two that begin
// at the same time at least one is refused.
absl::Status CheckIsNoNodesFolder(Env& env, const std::string& data_folder);
// Durable when it returns.
absl::Status WriteNodeFile(Env& env, const std::string& data_folder, const NodeIdentity& identity,
                           absl::string_view daemon);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_NODE_FILE_H_
