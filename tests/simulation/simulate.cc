// Runs any number of schedules.
//
//   simulate --seeds=10000 --first_seed=1     prints schedules per minute and failures
//   simulate --seed=4711 [--print] [--log]    repeats one with its events and the product's log
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "spdlog/spdlog.h"
#include "tests/simulation/schedule.h"
#include "tests/simulation/simulation.h"

ABSL_FLAG(uint64_t, first_seed, 1, "first seed");
ABSL_FLAG(uint64_t, seeds, 100, "number of schedules");
ABSL_FLAG(int64_t, seed, -1, "run only this seed");
ABSL_FLAG(bool, print, false, "print every event");
ABSL_FLAG(bool, log, false, "print the logs of the processes");
ABSL_FLAG(bool, leases, false, "only faults that affect leases (DrawLeaseSchedule)");
ABSL_FLAG(bool, assigns, false, "assignments in every schedule (DrawAssignSchedule)");
ABSL_FLAG(bool, finishes, false, "only schedules in which the job finishes");
ABSL_FLAG(bool, clips, false, "clip_global_norm in every schedule (DrawClipSchedule)");
ABSL_FLAG(int, sabotage, 0, "a SimulationOptions::Sabotage, to find seeds that expose it");
ABSL_FLAG(int, max_failures, 5, "stop after this many failed schedules");

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "runs schedules of a simulated cluster (tests/simulation/README.md)");
  absl::ParseCommandLine(argc, argv);
  spdlog::set_level(absl::GetFlag(FLAGS_log) ? spdlog::level::info : spdlog::level::off);
  const bool one = absl::GetFlag(FLAGS_seed) >= 0;
  const uint64_t first =
      one ? static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)) : absl::GetFlag(FLAGS_first_seed);
  const uint64_t count = one ? 1 : absl::GetFlag(FLAGS_seeds);
  const auto begin = std::chrono::steady_clock::now();
  uint64_t run = 0, events = 0, acknowledged = 0, faults = 0, failed_jobs = 0;
  double simulated_s = 0;
  pawl::CatchUps catch_ups;
  pawl::Reached reached;
  int failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < absl::GetFlag(FLAGS_max_failures);
       ++seed) {
    const pawl::Schedule schedule = absl::GetFlag(FLAGS_leases)    ? pawl::DrawLeaseSchedule(seed)
                                    : absl::GetFlag(FLAGS_assigns) ? pawl::DrawAssignSchedule(seed)
                                    : absl::GetFlag(FLAGS_clips)   ? pawl::DrawClipSchedule(seed)
                                                                   : pawl::DrawSchedule(seed);
    if (absl::GetFlag(FLAGS_finishes) && !schedule.finishes) continue;
    if (one) std::printf("%s\n", schedule.ToString().c_str());
    const pawl::Outcome outcome = pawl::Simulate(
        schedule,
        {.sabotage = static_cast<pawl::SimulationOptions::Sabotage>(absl::GetFlag(FLAGS_sabotage)),
         .print = absl::GetFlag(FLAGS_print)});
    ++run;
    events += outcome.events;
    acknowledged += outcome.acknowledged;
    faults += outcome.faults;
    catch_ups += outcome.catch_ups;
    failed_jobs += outcome.job_failed;
    simulated_s += outcome.simulated_s;
    reached.Add(outcome.reached);
    if (!outcome.violation.empty()) {
      ++failures;
      std::printf("VIOLATION: %s\n", outcome.violation.c_str());
    }
    if (one) std::printf("hash %016llx\n", static_cast<unsigned long long>(outcome.hash));
  }
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu schedules in %.1f s, %.0f a minute; %d failed; %.0f simulated seconds, %llu events, "
      "%llu faults, "
      "%llu pushes acknowledged; %llu jobs lost their data\n"
      "followers caught up: %llu from memory, %llu from the log, %llu after a rollback, %llu by "
      "snapshots\n",
      static_cast<unsigned long long>(run), wall_s, 60.0 * static_cast<double>(run) / wall_s,
      failures, simulated_s, static_cast<unsigned long long>(events),
      static_cast<unsigned long long>(faults), static_cast<unsigned long long>(acknowledged),
      static_cast<unsigned long long>(failed_jobs),
      static_cast<unsigned long long>(catch_ups.by_tail),
      static_cast<unsigned long long>(catch_ups.by_log),
      static_cast<unsigned long long>(catch_ups.by_going_back),
      static_cast<unsigned long long>(catch_ups.by_snapshot));
  std::printf("reached:");
  for (const auto& [name, count] : reached.ByName()) {
    std::printf(" %llu %s;", static_cast<unsigned long long>(count), name.c_str());
  }
  std::printf("\n");
  return failures == 0 ? 0 : 1;
}
