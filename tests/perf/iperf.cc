#include "tests/perf/iperf.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/process/child_process.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

constexpr char kProgram[] = "/usr/bin/iperf3";
constexpr std::chrono::seconds kStartTimeout{5};
// Writes as large as gRPC's.
constexpr char kWriteSize[] = "1M";

// A port that is not in use at the moment.
int FreePort() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  static_cast<void>(bind(descriptor, reinterpret_cast<sockaddr*>(&address), size));
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  close(descriptor);
  return ntohs(address.sin_port);
}

bool Contains(const std::string& path, const std::string& text) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {}).find(text) != std::string::npos;
}

}  // namespace

absl::StatusOr<double> MeasureIperf(double seconds, const std::string& folder) {
  if (access(kProgram, X_OK) != 0) {
    return absl::NotFoundError(
        "iperf3 is not installed: apt-get install iperf3 (deploy/install_packages does it)");
  }
  const std::string port = absl::StrCat(FreePort());
  PAWL_ASSIGN_OR_RETURN(
      auto server, ChildProcess::Start({"iperf3-server",
                                        kProgram,
                                        {"-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush"},
                                        folder + "/iperf3-server.log"}));
  const auto listens = [&] { return Contains(server->log(), "listening"); };
  Eventually([&] { return listens() || server->HasEnded(); }, kStartTimeout);
  if (!listens())
    return absl::UnavailableError(absl::StrCat("iperf3 -s does not listen, see ", server->log()));
  PAWL_ASSIGN_OR_RETURN(
      auto client,
      ChildProcess::Start({"iperf3-client",
                           kProgram,
                           {"-c", "127.0.0.1", "-p", port, "-J", "-l", kWriteSize, "-t",
                            absl::StrCat(std::max(1, static_cast<int>(std::ceil(seconds))))},
                           folder + "/iperf3-client.json"}));
  if (!client->WaitUntil(Clock::Real().Now() + std::chrono::seconds(30) +
                         std::chrono::seconds(static_cast<int>(seconds)))) {
    return absl::DeadlineExceededError("iperf3 does not end");
  }
  std::ifstream file(client->log());
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json::json_pointer where("/end/sum_received/bits_per_second");
  if (!json.is_object() || !json.contains(where)) {
    return absl::DataLossError(absl::StrCat("iperf3 gave no result, see ", client->log()));
  }
  return json.at(where).get<double>() / 8.0;
}

}  // namespace pawl
