#include "tests/harness/network_namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/status_macros.h"
#include "tests/harness/command_output.h"

namespace pawl {
namespace {

constexpr char kIp[] = "/sbin/ip";
constexpr char kTc[] = "/sbin/tc";
constexpr char kBridge[] = "pawl0";
constexpr char kTestHost[] = "test";
// A MAC address that no host has.
constexpr char kUnusedMac[] = "02:00:00:00:00:99";
constexpr uint32_t kMaxHosts = 250;
// The burst of a limited link must exceed the largest piece that the kernel hands over at once
// (usually 64 KiB, too much for a slow link). Otherwise pieces are split into packets of the wire's
// size, which costs much processor time in emulation.
constexpr uint64_t kMinBurstBytes = 16384;
constexpr uint64_t kLargestPacketBytes = 15000;
constexpr uint64_t kBurstsInSecond = 1000;
// Packets that would wait longer are dropped, and TCP resends them.
constexpr char kLongestQueue[] = "200ms";

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

std::string AddressOfNumber(uint32_t number) { return absl::StrCat("10.77.0.", number); }

// `arguments` are separated by spaces.
absl::StatusOr<std::string> OutputOf(const char* program, absl::string_view arguments) {
  return CommandOutput(program, absl::StrSplit(arguments, ' '));
}

absl::Status Ip(absl::string_view arguments) { return OutputOf(kIp, arguments).status(); }

bool WriteText(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY);
  if (file < 0) return false;
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return close(file) == 0 && written;
}

// Selects the namespace of a host; the test's host is the current namespace.
std::string On(const std::string& host) {
  return host == kTestHost ? "" : absl::StrCat("-n ", host, " ");
}
const char* LinkOf(const std::string& host) { return host == kTestHost ? kBridge : "eth0"; }

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkNamespaces>> NetworkNamespaces::Enter() {
  if (access(kIp, X_OK) != 0) return Failed(kIp);
  const std::string user = absl::StrCat("0 ", geteuid(), " 1");
  const std::string group = absl::StrCat("0 ", getegid(), " 1");
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) return Failed("unshare");
  if (!WriteText("/proc/self/setgroups", "deny")) return Failed("setgroups");
  if (!WriteText("/proc/self/uid_map", user) || !WriteText("/proc/self/gid_map", group))
    return Failed("uid_map");
  // ip keeps the names of namespaces in /run.
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", "/run", "tmpfs", 0, nullptr) != 0) {
    return Failed("mount");
  }
  std::unique_ptr<NetworkNamespaces> network(new NetworkNamespaces());
  PAWL_RETURN_IF_ERROR(network->Begin());
  return network;
}

absl::Status NetworkNamespaces::Begin() {
  hosts_[kTestHost] = 1;
  for (const std::string& command :
       {std::string("link set lo up"), absl::StrCat("link add ", kBridge, " type bridge"),
        absl::StrCat("addr add ", AddressOfNumber(1), "/24 dev ", kBridge),
        absl::StrCat("link set ", kBridge, " up")}) {
    PAWL_RETURN_IF_ERROR(Ip(command));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> NetworkNamespaces::AddressOf(const std::string& host) {
  if (const auto found = hosts_.find(host); found != hosts_.end())
    return AddressOfNumber(found->second);
  const auto number = static_cast<uint32_t>(hosts_.size()) + 1;
  if (number > kMaxHosts)
    return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxHosts, " hosts"));
  const std::string link = absl::StrCat("pawl", number);
  for (const std::string& command :
       {absl::StrCat("netns add ", host),
        absl::StrCat("link add ", link, " type veth peer name eth0 netns ", host),
        absl::StrCat("link set ", link, " master ", kBridge),
        absl::StrCat("link set ", link, " up"), absl::StrCat("-n ", host, " link set lo up"),
        absl::StrCat("-n ", host, " link set eth0 up"),
        absl::StrCat("-n ", host, " addr add ", AddressOfNumber(number), "/24 dev eth0")}) {
    PAWL_RETURN_IF_ERROR(Ip(command));
  }
  hosts_[host] = number;
  return AddressOfNumber(number);
}

std::vector<std::string> NetworkNamespaces::CommandPrefix(const std::string& host) {
  return {kIp, "netns", "exec", host};
}

absl::Status NetworkNamespaces::Silence(const std::string& from, const std::string& to) {
  return Ip(absl::StrCat(On(from), "neigh replace ", AddressOfNumber(hosts_.at(to)), " lladdr ",
                         kUnusedMac, " dev ", LinkOf(from), " nud permanent"));
}

absl::Status NetworkNamespaces::Restore(const std::string& from, const std::string& to) {
  return Ip(
      absl::StrCat(On(from), "neigh del ", AddressOfNumber(hosts_.at(to)), " dev ", LinkOf(from)));
}

absl::Status NetworkNamespaces::Disconnect(const std::string& host) {
  return Ip(absl::StrCat("link set pawl", hosts_.at(host), " nomaster"));
}

absl::Status NetworkNamespaces::Connect(const std::string& host) {
  return Ip(absl::StrCat("link set pawl", hosts_.at(host), " master ", kBridge));
}

absl::Status NetworkNamespaces::Limit(const std::string& host, uint64_t bytes_per_second) {
  PAWL_RETURN_IF_ERROR(
      Ip(absl::StrCat("-n ", host, " link set eth0 gso_max_size ", kLargestPacketBytes)));
  return OutputOf(kTc, absl::StrCat("-n ", host, " qdisc replace dev eth0 root tbf rate ",
                                    8 * bytes_per_second, "bit burst ",
                                    std::max(kMinBurstBytes, bytes_per_second / kBurstsInSecond),
                                    "b latency ", kLongestQueue))
      .status();
}

absl::Status NetworkNamespaces::Unlimit(const std::string& host) {
  return OutputOf(kTc, absl::StrCat("-n ", host, " qdisc del dev eth0 root")).status();
}

absl::StatusOr<uint64_t> NetworkNamespaces::SentBytes(const std::string& host) {
  PAWL_ASSIGN_OR_RETURN(
      const std::string text,
      OutputOf(kIp,
               absl::StrCat("netns exec ", host, " cat /sys/class/net/eth0/statistics/tx_bytes")));
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(text, &bytes))
    return absl::UnavailableError(absl::StrCat("tx_bytes of ", host, ": ", text));
  return bytes;
}

}  // namespace pawl
