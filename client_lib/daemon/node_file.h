// The file <data dir>/node, which tells a restarted server or worker its identity.
#ifndef PAWL_CLIENT_LIB_DAEMON_NODE_FILE_H_
#define PAWL_CLIENT_LIB_DAEMON_NODE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "client_lib/daemon/node_identity.pb.h"

namespace pawl {

// The file starts with a line that contains the checksum of the rest, a NodeIdentity as text:
//
//   # crc32c 1c0b7a5d of the lines below; written by pawl-server
//   node: "server-0"
//   ...
//
// `daemon` is kServerDaemon or kWorkerDaemon.
inline constexpr absl::string_view kServerDaemon = "pawl-server";
inline constexpr absl::string_view kWorkerDaemon = "pawl-worker";

// NOT_FOUND without the file. DATA_LOSS, naming file and offset, if it is damaged.
// FAILED_PRECONDITION for a folder of the other daemon.
absl::StatusOr<NodeIdentity> ReadNodeFile(Env& env, const std::string& data_folder,
                                          absl::string_view daemon);
// FAILED_PRECONDITION, naming the file found, if `data_folder` belongs to a scheduler.
absl::Status CheckIsNotSchedulerFolder(Env& env, const std::string& data_folder);
// FAILED_PRECONDITION, naming the file found, if `data_folder` belongs to a server or worker. Each
// daemon checks after it has created a file that the other one checks for, so if two start at the
// same time at least one is refused. With `holds_store` the folder is also the scheduler's --store,
// so a lock file there is the scheduler's own.
absl::Status CheckIsNotNodeFolder(Env& env, const std::string& data_folder, bool holds_store);
// Durable when it returns.
absl::Status WriteNodeFile(Env& env, const std::string& data_folder, const NodeIdentity& identity,
                           absl::string_view daemon);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_NODE_FILE_H_
