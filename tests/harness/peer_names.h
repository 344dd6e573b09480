// Identifies the process at the other end of a connection.
#ifndef PAWL_TESTS_HARNESS_PEER_NAMES_H_
#define PAWL_TESTS_HARNESS_PEER_NAMES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "client_lib/base/mutex.h"

namespace pawl {

// Names processes of this machine by the local port of their connection, which it looks up in
// /proc. A ByteProxy uses it to tell server-0 from server-1. Thread-safe.
class PeerNames {
 public:
  void Set(pid_t pid, const std::string& name);
  void Remove(pid_t pid);

  // Returns "" if no registered process has a TCP socket with this local port on 127.0.0.1.
  std::string NameOf(uint16_t port) const;

 private:
  mutable Mutex mu_;
  std::map<pid_t, std::string> names_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_PEER_NAMES_H_
