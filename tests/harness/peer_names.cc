#include "tests/harness/peer_names.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// Returns the inodes of connected sockets with this local port.
std::set<std::string> InodesAt(uint16_t port) {
  std::set<std::string> inodes;
  // gRPC uses IPv6 sockets with mapped addresses.
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    while (std::getline(file, line)) {
      unsigned local_port = 0;
      unsigned remote_port = 0;
      unsigned long inode = 0;
      if (std::sscanf(line.c_str(),
                      " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%x %*x %*x:%*x %*x:%*x %*x %*d %*d %lu",
                      &local_port, &remote_port, &inode) == 3 &&
          local_port == port && remote_port != 0 && inode != 0) {
        inodes.insert(absl::StrCat("socket:[", inode, "]"));
      }
    }
  }
  return inodes;
}

}  // namespace

void PeerNames::Set(pid_t pid, const std::string& name) {
  MutexLock lock(mu_);
  names_[pid] = name;
}

void PeerNames::Remove(pid_t pid) {
  MutexLock lock(mu_);
  names_.erase(pid);
}

std::string PeerNames::NameOf(uint16_t port) const {
  const std::set<std::string> inodes = InodesAt(port);
  if (inodes.empty()) return "";
  MutexLock lock(mu_);
  for (const auto& [pid, name] : names_) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(absl::StrCat("/proc/", pid, "/fd"), error), end;
         !error && entry != end; entry.increment(error)) {
      std::error_code gone;
      if (inodes.count(std::filesystem::read_symlink(entry->path(), gone).string()) > 0)
        return name;
    }
  }
  return "";
}

}  // namespace pawl
