#include "tests/simulation/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/job/job_file.h"

namespace pawl {

std::string Schedule::ToString() const {
  std::string text = absl::StrCat(
      "seed ", seed, ": ", servers, " servers, ", replicas, " replicas, ", min_in_sync,
      " of them in sync, ", partitions, " partitions, ", Durability_Name(durability), ", ",
      ConsistencyMode_Name(consistency.mode()), "(", consistency.staleness(), "), ", workers, " x ",
      ranks_per_worker, " ranks, ", steps, " steps, ", clients, " clients, ", pushes,
      " pushes, lease ", lease.count(), " ms, faults for ", storm.count(), " ms, a fault every ",
      fault_interval.count(), " ms:", faults_at_begin ? " at startup," : "");
  if (kills_servers) absl::StrAppend(&text, " kills of servers,");
  if (kills_all_servers) absl::StrAppend(&text, " of all at once,");
  if (kills_scheduler) absl::StrAppend(&text, " of the scheduler,");
  if (kills_senders) absl::StrAppend(&text, " of senders,");
  if (drains) absl::StrAppend(&text, " drains,");
  if (pauses) absl::StrAppend(&text, " pauses,");
  if (partitions_network) absl::StrAppend(&text, " partitions,");
  if (disturbs_network) absl::StrAppend(&text, " losses,");
  if (loses_disks) absl::StrAppend(&text, " lost disks,");
  if (damages_disks) absl::StrAppend(&text, " damaged disks,");
  if (breaks_disks) absl::StrAppend(&text, " broken disks,");
  if (fills_folder) absl::StrAppend(&text, " full folders of checkpoints,");
  if (copies_disks) absl::StrAppend(&text, " copied disks,");
  if (suspends) absl::StrAppend(&text, " suspensions,");
  if (changes_lease) absl::StrAppend(&text, " other leases,");
  if (late_control) absl::StrAppend(&text, " late control messages,");
  if (loses_scheduler_state) absl::StrAppend(&text, " lost scheduler states,");
  if (brakes_pushes) absl::StrAppend(&text, " small backlogs of learners,");
  if (loses_servers_with_state) absl::StrAppend(&text, " and servers with them,");
  text.pop_back();
  if (unequal_steps) absl::StrAppend(&text, "; ranks have unequal numbers of steps");
  if (finishes) absl::StrAppend(&text, "; finishes");
  if (evaluates) absl::StrAppend(&text, "; evaluates");
  if (checkpoints) absl::StrAppend(&text, "; checkpoints after ", checkpoint_steps, " steps");
  if (assigns) absl::StrAppend(&text, "; assigns");
  if (shares_rows) absl::StrAppend(&text, "; ranks share rows");
  if (clip_global_norm > 0) absl::StrAppend(&text, "; clips the global norm to ", clip_global_norm);
  return text;
}

Job Schedule::ToJob() const {
  Job job;
  job.set_name("simulated");
  job.set_seed(seed);
  *job.mutable_consistency() = consistency;
  job.set_logical_workers(ranks());
  job.set_clip_global_norm(clip_global_norm);
  job.set_partitions(partitions);
  job.set_replicas(replicas);
  job.set_min_in_sync(min_in_sync);
  job.set_durability(durability);
  if (checkpoints) {
    job.mutable_checkpoint()->set_dir(kCheckpoints);
    job.mutable_checkpoint()->set_every_steps(checkpoint_steps);
    job.mutable_checkpoint()->set_keep(checkpoints_kept);
  }
  FillDefaults(job, 0);
  return job;
}

namespace {

constexpr uint32_t kManyRanks = 2000;

// Small except for the number of ranks. Most ranks lose their process at some time.
void MakeLarge(SeededRandom& random, Schedule& schedule) {
  schedule.servers = 3;
  schedule.replicas = 2;
  schedule.partitions = 4;
  schedule.workers = 4;
  schedule.ranks_per_worker = kManyRanks / static_cast<uint32_t>(schedule.workers);
  schedule.steps = 3;
  schedule.pace = std::chrono::milliseconds(500);
  schedule.storm = std::chrono::milliseconds(4000);
  schedule.fault_interval = std::chrono::milliseconds(700);
  schedule.kills_senders = true;
  schedule.kills_servers = random.Chance(0.5);
}

// Few other faults, so that there are handovers.
void MakeLoseStateInAHandover(Schedule& schedule) {
  schedule.loses_state_in_a_handover = true;
  schedule.storm = std::chrono::seconds(30);
  schedule.fault_interval = std::chrono::milliseconds(1500);
  schedule.pushes = 200;
  schedule.loses_disks = schedule.damages_disks = schedule.breaks_disks = schedule.copies_disks =
      false;
  schedule.kills_servers = schedule.kills_scheduler = schedule.drains = schedule.pauses = false;
  schedule.partitions_network = schedule.suspends = schedule.changes_lease = false;
  schedule.loses_servers_with_state = false;
}

// Nearly every fault at once, except those that no operator can repair.
void MakeLoseState(SeededRandom& random, Schedule& schedule) {
  schedule.loses_scheduler_state = true;
  schedule.loses_servers_with_state = random.Chance(0.3);
  schedule.loses_state_behind_a_pause = schedule.seed % 64 == 52 && schedule.replicas > 1 &&
                                        schedule.durability != MEMORY && !schedule.loses_disks;
  if (schedule.seed % 128 == 84 && schedule.replicas > 1 && schedule.durability != MEMORY)
    MakeLoseStateInAHandover(schedule);
  // Some server must have heard the newest routing and still know it.
  schedule.kills_all_servers = false;
  schedule.kills_servers &= random.Chance(0.5);
}

// Ranks evaluate during most of the storm, and many workers die.
void MakeLoseEvaluations(Schedule& schedule) {
  schedule.workers = std::max(schedule.workers, 2);
  schedule.steps = 60;
  schedule.pace = std::chrono::milliseconds(30);
  schedule.kills_senders = true;
}

// Some ranks finish early in the storm.
void MakeUnequal(Schedule& schedule) {
  schedule.unequal_steps = true;
  schedule.consistency.set_mode(BOUNDED);
  schedule.consistency.set_staleness(static_cast<uint32_t>(schedule.seed / 64 % 4));
  schedule.workers = std::max(schedule.workers, 2);
  schedule.clients = 1;
  schedule.steps = 60;
}

// Processes whose ranks have finished restart while others train. Few other faults, so that most
// kills are theirs.
void MakeRestartFinished(Schedule& schedule) {
  schedule.kills_senders = schedule.kills_scheduler = true;
  schedule.storm = std::chrono::seconds(20);
  schedule.fault_interval = std::min(schedule.fault_interval, std::chrono::milliseconds(500));
  schedule.loses_disks = schedule.damages_disks = schedule.breaks_disks = schedule.copies_disks =
      false;
  schedule.drains = schedule.pauses = schedule.partitions_network = schedule.suspends =
      schedule.changes_lease = false;
}

// Most steps of most jobs are scaled down, and not all.
void MakeClip(Schedule& schedule) {
  if (schedule.is_large()) return;
  schedule.clip_global_norm = 0.4f + 0.1f * static_cast<float>(schedule.seed / 64 % 8);
}

// Most jobs make several periodic checkpoints.
void MakeCheckpoints(Schedule& schedule) {
  schedule.checkpoints = true;
  schedule.checkpoint_steps = schedule.seed / 64 % 5;
  schedule.checkpoints_kept = schedule.seed / 64 % 3 + 1;
  schedule.steps *= 2;
  schedule.fills_folder = schedule.seed / 64 % 2 == 1;
}

// A returning server has no data, and a minute of pushes separates its deaths.
void MakeBrakePushes(SeededRandom& random, Schedule& schedule) {
  const uint64_t seed = schedule.seed;
  schedule = Schedule();
  schedule.seed = seed;
  schedule.servers = 3;
  schedule.replicas = 2;
  schedule.partitions = 4;
  schedule.durability = MEMORY;
  schedule.consistency.set_mode(
      static_cast<ConsistencyMode>(random.Between(uint64_t{SYNC}, uint64_t{ASYNC})));
  if (schedule.consistency.mode() == BOUNDED)
    schedule.consistency.set_staleness(static_cast<uint32_t>(random.Below(4)));
  schedule.clients = 3;
  schedule.pushes = random.Between(1500, 2000);
  schedule.pace = std::chrono::milliseconds(25);
  schedule.storm = std::chrono::seconds(60);
  schedule.fault_interval = std::chrono::milliseconds(random.Between(10000, 25000));
  schedule.kills_servers = true;
  schedule.brakes_pushes = true;
}

}  // namespace

Schedule DrawSchedule(uint64_t seed) {
  // Independent of the random numbers of the run.
  SeededRandom random(seed * 2 + 1);
  Schedule schedule;
  schedule.seed = seed;
  schedule.servers = static_cast<int>(random.Between(2, 5));
  schedule.replicas = static_cast<uint32_t>(random.Between(1, std::min(schedule.servers, 3)));
  schedule.partitions = static_cast<uint32_t>(random.Between(4, 16));
  schedule.durability = random.Chance(0.6) ? LOG : MEMORY;
  schedule.consistency.set_mode(
      static_cast<ConsistencyMode>(random.Between(uint64_t{SYNC}, uint64_t{ASYNC})));
  if (schedule.consistency.mode() == BOUNDED)
    schedule.consistency.set_staleness(static_cast<uint32_t>(random.Below(4)));
  if (random.Chance(0.5)) {
    schedule.heartbeat_interval = std::chrono::milliseconds(100);
    schedule.lease = std::chrono::milliseconds(500);
  }
  schedule.workers = static_cast<int>(random.Between(1, 3));
  schedule.ranks_per_worker = static_cast<uint32_t>(random.Between(1, 2));
  schedule.steps = random.Between(5, 20);
  schedule.clients = static_cast<int>(random.Between(1, 3));
  schedule.pushes = random.Between(10, 40);
  // Not the seeds that simulation_test names: assignments would change their events.
  constexpr uint64_t kAssigning = uint64_t{1} << 8 | uint64_t{1} << 18 | uint64_t{1} << 21 |
                                  uint64_t{1} << 22 | uint64_t{1} << 27 | uint64_t{1} << 29 |
                                  uint64_t{1} << 30;
  schedule.assigns = (kAssigning >> seed % 32 & 1) != 0;
  if (seed % 64 == 51) MakeUnequal(schedule);
  // The same holds.
  constexpr uint64_t kFinishing = uint64_t{1} << 23 | uint64_t{1} << 26 | uint64_t{1} << 42 |
                                  uint64_t{1} << 48 | uint64_t{1} << 54 | uint64_t{1} << 59 |
                                  uint64_t{1} << 63;
  schedule.finishes = (kFinishing >> seed % 64 & 1) != 0;
  // The job ends while clients push.
  if (schedule.finishes) schedule.pushes *= 3;
  if (schedule.finishes && seed % 64 != 23 && seed % 64 != 63) MakeCheckpoints(schedule);
  // The same holds.
  constexpr uint64_t kClipping = uint64_t{1} << 1 | uint64_t{1} << 2 | uint64_t{1} << 5 |
                                 uint64_t{1} << 16 | uint64_t{1} << 23 | uint64_t{1} << 25 |
                                 uint64_t{1} << 41 | uint64_t{1} << 42 | uint64_t{1} << 47 |
                                 uint64_t{1} << 51 | uint64_t{1} << 52 | uint64_t{1} << 63;
  if (schedule.consistency.mode() == SYNC && (kClipping >> seed % 64 & 1) != 0) MakeClip(schedule);
  constexpr uint64_t kSharing = uint64_t{1} << 2 | uint64_t{1} << 5 | uint64_t{1} << 8 |
                                uint64_t{1} << 16 | uint64_t{1} << 23 | uint64_t{1} << 24 |
                                uint64_t{1} << 26 | uint64_t{1} << 41 | uint64_t{1} << 47 |
                                uint64_t{1} << 50 | uint64_t{1} << 53 | uint64_t{1} << 62;
  schedule.shares_rows = schedule.consistency.mode() == SYNC && schedule.ranks() >= kSharingRanks &&
                         (kSharing >> seed % 64 & 1) != 0;
  // The same holds.
  schedule.evaluates = seed % 32 == 18 || seed % 32 == 21 || seed % 32 == 27 || seed % 256 == 52 ||
                       seed % 256 == 116;
  if (seed % 128 == 72) MakeLarge(random, schedule);
  if (seed % 8 == 0) return schedule;  // no other faults
  schedule.storm = std::chrono::milliseconds(random.Between(2000, 12000));
  schedule.fault_interval = std::chrono::milliseconds(random.Between(100, 1500));
  // Few kinds at a time, because a bug shows best when most of the system works.
  schedule.kills_servers = random.Chance(0.5);
  schedule.kills_all_servers = schedule.durability != MEMORY && random.Chance(0.2);
  schedule.kills_scheduler = random.Chance(0.4);
  schedule.kills_senders = random.Chance(0.4);
  schedule.drains = random.Chance(0.3);
  schedule.pauses = random.Chance(0.4);
  schedule.partitions_network = random.Chance(0.4);
  schedule.disturbs_network = random.Chance(0.4);
  schedule.faults_at_begin = random.Chance(0.3);
  schedule.loses_disks =
      random.Chance(0.3) && schedule.durability != MEMORY && schedule.replicas > 1;
  schedule.min_in_sync =
      random.Chance(0.3) ? static_cast<uint32_t>(random.Between(1, schedule.replicas)) : 1;
  schedule.copies_disks = random.Chance(0.2) && schedule.durability != MEMORY;
  schedule.breaks_disks = random.Chance(0.2) && schedule.durability != MEMORY &&
                          schedule.replicas > schedule.min_in_sync;
  schedule.suspends = random.Chance(0.2);
  schedule.changes_lease = schedule.kills_scheduler && random.Chance(0.4);
  schedule.late_control = random.Chance(0.2);
  // Not the seeds that simulation_test names for a single fix.
  schedule.damages_disks = schedule.loses_disks && (seed % 16 == 2 || seed % 16 == 15);
  if (schedule.unequal_steps) MakeRestartFinished(schedule);
  if (seed % 32 == 11) MakeBrakePushes(random, schedule);
  if (seed % 16 == 4) MakeLoseState(random, schedule);
  if (schedule.evaluates && schedule.loses_scheduler_state) MakeLoseEvaluations(schedule);
  return schedule;
}

Schedule DrawAssignSchedule(uint64_t seed) {
  Schedule schedule = DrawSchedule(seed);
  schedule.assigns = true;
  schedule.clip_global_norm = 0;
  return schedule;
}

Schedule DrawClipSchedule(uint64_t seed) {
  Schedule schedule = DrawSchedule(seed);
  schedule.consistency.Clear();
  schedule.consistency.set_mode(SYNC);
  schedule.unequal_steps = false;
  schedule.assigns = false;
  MakeClip(schedule);
  return schedule;
}

Schedule DrawLeaseSchedule(uint64_t seed) {
  Schedule schedule = DrawSchedule(seed);
  // The steps below are too many for thousands of ranks.
  if (schedule.is_large()) schedule.ranks_per_worker = 1;
  schedule.pace = Schedule().pace;
  schedule.replicas = 2;
  schedule.min_in_sync = 1;
  schedule.durability = LOG;
  schedule.storm = std::chrono::seconds(30);
  schedule.fault_interval = std::chrono::milliseconds(700);
  schedule.steps = 200;
  schedule.pushes = 400;
  schedule.kills_servers = schedule.kills_all_servers = schedule.kills_senders = schedule.drains =
      schedule.pauses = false;
  schedule.disturbs_network = schedule.faults_at_begin = schedule.suspends = schedule.late_control =
      false;
  schedule.loses_disks = schedule.breaks_disks = schedule.copies_disks = false;
  schedule.kills_scheduler = schedule.changes_lease = schedule.partitions_network = true;
  return schedule;
}

}  // namespace pawl
