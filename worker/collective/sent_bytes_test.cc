// Measures the bytes of an all-reduce with the kernel's counters, in a network namespace of the
// test's own that carries no other traffic.
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/testing/members_in_threads.h"

namespace pawl {
namespace {

// Empty, or why this machine does not allow a network namespace.
std::string enter_network_failure;

std::string EnterOwnNetwork() {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0)
    return std::strerror(errno);
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const int result = ioctl(descriptor, SIOCSIFFLAGS, &request);
  close(descriptor);
  return result == 0 ? "" : std::strerror(errno);
}

// Bytes sent by all processes of this network: whole packets, including acknowledgements.
uint64_t BytesOnLoopback() {
  std::ifstream file("/proc/net/dev");
  for (std::string line; std::getline(file, line);) {
    if (const size_t colon = line.find("lo:"); colon != std::string::npos) {
      uint64_t received = 0;
      std::istringstream(line.substr(colon + 3)) >> received;
      return received;
    }
  }
  ADD_FAILURE() << "no interface lo";
  return 0;
}

class SentBytesTest : public testing::TestWithParam<size_t> {};

TEST_P(SentBytesTest, AllReduceSendsTwiceTheOthersShares) {
  const size_t k = GetParam();
  MembersInThreads members(k);
  constexpr size_t kCount = size_t{6} << 20;
  constexpr double kBytes = kCount * sizeof(float);
  std::vector<std::vector<float>> values(k, std::vector<float>(kCount, 1));
  const uint64_t before = BytesOnLoopback();
  members.ForEach([&](GlooCollective& member) {
    const uint64_t sent = member.bytes_sent();
    float* const data = values[member.place()].data();
    EXPECT_TRUE(Wait([&](Collective::Done done) {
                  member.AllReduce(data, data, kCount, CollectiveType::kFloat32, Reduction::kSum,
                                   kTestTimeout, std::move(done));
                }).ok());
    const double expected = 2.0 * static_cast<double>(k - 1) / static_cast<double>(k) * kBytes;
    EXPECT_NEAR(static_cast<double>(member.bytes_sent() - sent), expected, 0.01 * expected);
  });
  const double expected = 2.0 * static_cast<double>(k - 1) * kBytes;
  const double counted = static_cast<double>(BytesOnLoopback() - before);
  if (!enter_network_failure.empty())
    GTEST_SKIP() << "no network namespace: " << enter_network_failure;
  std::printf("%zu members: %.4f of 2 (k-1)/k bytes for each\n", k, counted / expected);
  EXPECT_NEAR(counted, expected, 0.05 * expected);
}

INSTANTIATE_TEST_SUITE_P(Members, SentBytesTest, testing::Values(2, 3, 4));

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  // Before any thread exists.
  pawl::enter_network_failure = pawl::EnterOwnNetwork();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
