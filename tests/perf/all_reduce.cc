// Measures the summation of gradients: all-reduces of 64 MiB over loopback, compared with one TCP
// connection.
//
//   bazel run -c opt //tests/perf:all_reduce
//
// The members are threads of one process that share only its processors. The bandwidth counts the
// bytes that each member sends, 2 (k-1)/k of the total; it receives as many and sums them
// meanwhile.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/harness/runfile.h"
#include "tests/perf/iperf.h"
#include "worker/collective/testing/members_in_threads.h"

namespace pawl {
namespace {

constexpr size_t kElements = size_t{16} << 20;
constexpr int kRuns = 7;
constexpr double kIperfSeconds = 2;

// The median of several runs, in seconds.
double MeasureAllReduce(size_t members_count) {
  MembersInThreads members(members_count);
  std::vector<std::vector<float>> values(members_count, std::vector<float>(kElements, 1));
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    const MonotonicTime begin = Clock::Real().Now();
    members.ForEach([&](GlooCollective& member) {
      float* const data = values[member.place()].data();
      const absl::Status status = Wait([&](Collective::Done done) {
        member.AllReduce(data, data, kElements, CollectiveType::kFloat32, Reduction::kSum,
                         kTestTimeout, std::move(done));
      });
      if (!status.ok()) std::abort();
    });
    times.push_back(Seconds(Clock::Real().Now() - begin));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int Run() {
  const auto folder = MakeOutputFolder("all_reduce");
  const auto iperf =
      folder.ok() ? MeasureIperf(kIperfSeconds, *folder) : absl::StatusOr<double>(folder.status());
  if (iperf.ok()) {
    std::printf("iperf3, one connection: %.2f GB/s\n", *iperf / 1e9);
  } else {
    std::printf("iperf3: %s\n", iperf.status().ToString().c_str());
  }
  for (const size_t members : {2, 3}) {
    const double seconds = MeasureAllReduce(members);
    const double bytes = 2.0 * static_cast<double>(members - 1) / static_cast<double>(members) *
                         kElements * sizeof(float);
    std::printf("all-reduce of 64 MiB, %zu members: %.1f ms, %.2f GB/s sent by each", members,
                seconds * 1e3, bytes / seconds / 1e9);
    if (iperf.ok())
      std::printf(", %.2f GB/s by all: %.2f of iperf3", members * bytes / seconds / 1e9,
                  static_cast<double>(members) * bytes / seconds / *iperf);
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace pawl

int main() { return pawl::Run(); }
