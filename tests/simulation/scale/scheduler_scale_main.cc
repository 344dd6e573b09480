// Measures the scheduler with a large cluster; see scheduler_scale.h. Prints one JSON object per
// size.
//
//   bazel run //tests/simulation/scale:scheduler_scale -- --servers=1000 --workers=10000
//   --partitions=4096,16384 --replicas=2,3
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "spdlog/spdlog.h"
#include "tests/simulation/scale/scheduler_scale.h"

ABSL_FLAG(uint32_t, servers, 1000, "servers");
ABSL_FLAG(uint32_t, workers, 10000, "workers");
ABSL_FLAG(std::vector<std::string>, partitions, std::vector<std::string>({"4096", "16384"}),
          "sizes of the job");
ABSL_FLAG(std::vector<std::string>, replicas, std::vector<std::string>({"2", "3"}),
          "replicas of each partition");
ABSL_FLAG(uint32_t, zones, 20, "zones");
ABSL_FLAG(uint64_t, parameter_bytes, uint64_t{1} << 40,
          "bytes of all partitions, one replica each");
ABSL_FLAG(uint64_t, repair_bytes_per_s, uint64_t{100} << 20, "rate at which a server copies");

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "measures the scheduler with a large cluster (scheduler/placement/scale.md)");
  absl::ParseCommandLine(argc, argv);
  spdlog::set_level(spdlog::level::err);
  for (const std::string& replicas : absl::GetFlag(FLAGS_replicas)) {
    for (const std::string& partitions : absl::GetFlag(FLAGS_partitions)) {
      pawl::SchedulerScaleOptions options;
      options.servers = absl::GetFlag(FLAGS_servers);
      options.workers = absl::GetFlag(FLAGS_workers);
      options.partitions = static_cast<uint32_t>(std::stoul(partitions));
      options.replicas = static_cast<uint32_t>(std::stoul(replicas));
      options.zones = absl::GetFlag(FLAGS_zones);
      options.parameter_bytes = absl::GetFlag(FLAGS_parameter_bytes);
      options.repair_bytes_per_s = absl::GetFlag(FLAGS_repair_bytes_per_s);
      const auto figures = pawl::MeasureScheduler(options);
      if (!figures.ok()) {
        std::fprintf(stderr, "%s\n", figures.status().ToString().c_str());
        return 1;
      }
      nlohmann::ordered_json line = {{"servers", options.servers},
                                     {"workers", options.workers},
                                     {"partitions", options.partitions},
                                     {"replicas", options.replicas}};
      line.update(*figures);
      std::printf("%s\n", line.dump(2).c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}
