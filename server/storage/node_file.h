// The file that tells a server who it was before it died: <data dir>/node.
#ifndef PAWL_SERVER_STORAGE_NODE_FILE_H_
#define PAWL_SERVER_STORAGE_NODE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "server/storage/node_identity.pb.h"

namespace pawl {

// A line with the checksum of all that follows it, then a NodeIdentity as text:
//
//   # crc32c 1c0b7a5d of the lines below; written by pawl-server
//   node: "server-0"
//   ...
//
// NOT_FOUND. DATA_LOSS, naming the file and the offset.
absl::StatusOr<NodeIdentity> ReadNodeFile(Env& env, const std::string& data_folder);
// Durable when it returns.
absl::Status WriteNodeFile(Env& env, const std::string& data_folder, const NodeIdentity& identity);

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_NODE_FILE_H_
