#include "scheduler/startup/rebuild.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/limits.h"
#include "client_lib/rpc/retry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr uint64_t kJob = 77;

// Three partitions on servers 0 and 2: partition 0 on both, 1 on server 0 alone, 2 without a
// primary, server 2 the backup.
RoutingTable Routing(uint64_t epoch) {
  RoutingTable routing;
  routing.set_job_id(kJob);
  routing.set_epoch(epoch);
  for (const uint32_t number : {0, 2}) {
    ServerAddress& server = *routing.add_servers();
    server.set_node("server-" + std::to_string(number));
    server.set_incarnation(10 + number);
    server.set_address("10.0.0.1:700" + std::to_string(number));
  }
  routing.add_primary(0);
  routing.add_replicas()->add_backups(1);
  routing.add_primary(0);
  routing.add_replicas();
  routing.add_primary(kNoPrimary);
  routing.add_replicas()->add_backups(1);
  return routing;
}

RegisterRequest Server(uint32_t number, uint64_t epoch, const std::vector<uint32_t>& partitions) {
  RegisterRequest request;
  request.set_role(SERVER_ROLE);
  request.set_node("server-" + std::to_string(number));
  request.set_job_id(kJob);
  for (const uint32_t partition : partitions) request.add_recovered()->set_partition(partition);
  HeldJob& held = *request.mutable_held_job();
  held.mutable_job()->set_name("flights");
  held.mutable_job()->set_partitions(3);
  held.mutable_job()->set_logical_workers(2);
  *held.mutable_routing() = Routing(epoch);
  TableSpec& table = *held.add_tables();
  table.set_id(4);
  table.set_name("table");
  held.set_last_incarnation(20);
  return request;
}

RegisterRequest WithAddress(RegisterRequest request, uint64_t process_nonce) {
  request.set_address("10.0.0.1:7001");
  request.set_process_nonce(process_nonce);
  return request;
}

RebuildOptions Options() {
  RebuildOptions options;
  options.job = Server(0, 1, {}).held_job().job();
  options.servers = 2;
  options.workers = 1;
  return options;
}

std::vector<uint32_t> LastInSync(const SchedulerState& state, int partition) {
  const auto& servers = state.placement().partitions(partition).last_in_sync();
  return {servers.begin(), servers.end()};
}

// The message of the FAILED_PRECONDITION.
std::string RefusalOf(const RebuildOptions& options, const std::vector<RegisterRequest>& servers) {
  const absl::Status status = RebuildState(options, servers).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  return std::string(status.message());
}

TEST(RebuildTest, ServersInSyncByTheNewestRoutingMayBecomePrimary) {
  RegisterRequest older = Server(0, 8, {0, 1});
  older.mutable_held_job()->mutable_routing()->mutable_replicas(1)->add_backups(1);
  const SchedulerState state = RebuildState(Options(), {older, Server(2, 9, {0, 2})}).value();
  EXPECT_EQ(state.job_id(), kJob);
  EXPECT_EQ(state.state(), STARTING);
  EXPECT_GT(state.placement().epoch(), 9u);
  EXPECT_THAT(LastInSync(state, 0), ElementsAre(0, 2));
  EXPECT_THAT(LastInSync(state, 1), ElementsAre(0));
  EXPECT_THAT(LastInSync(state, 2), ElementsAre(2));
  for (const StoredReplicaSet& set : state.placement().partitions())
    EXPECT_EQ(set.primary(), kNoPrimary);
  EXPECT_EQ(state.ranks().ranks_size(), 2);
  EXPECT_FALSE(state.ranks().decided());
}

// The yielding primary has every push: its successor has not taken over, or has it as a backup.
TEST(RebuildTest, PrimaryThatHandsOverMayBecomePrimary) {
  RegisterRequest former = Server(0, 9, {0, 1, 2});
  former.mutable_held_job()->mutable_routing()->mutable_replicas(2)->set_yielding(0);
  const SchedulerState state = RebuildState(Options(), {former, Server(2, 8, {0, 2})}).value();
  EXPECT_THAT(LastInSync(state, 2), ElementsAre(0, 2));
  EXPECT_THAT(state.placement().partitions(2).retained(), ElementsAre(0, 2));
  RebuildOptions options = Options();
  options.without = {"server-2"};
  const SchedulerState alone = RebuildState(options, {former}).value();
  EXPECT_THAT(LastInSync(alone, 2), ElementsAre(0));
}

TEST(RebuildTest, NumbersOfTheLostSchedulerAreNotReused) {
  const SchedulerState state =
      RebuildState(Options(), {Server(0, 8, {0, 1}), Server(2, 9, {0, 2})}).value();
  EXPECT_GE(state.membership().last_incarnation(), 20 + kRebuildGap);
  EXPECT_GE(state.placement().epoch(), 9 + kRebuildGap);
  EXPECT_GE(state.membership().next_server(), 3 + kRebuildNumberGap);
  // Nor numbers of another rebuilt scheduler that no server knows.
  RebuildOptions later = Options();
  later.unix_ms = 1'800'000'000'000;
  const SchedulerState again =
      RebuildState(later, {Server(0, 8, {0, 1}), Server(2, 9, {0, 2})}).value();
  EXPECT_EQ(again.placement().epoch(), later.unix_ms * kEpochsInAMillisecond);
  EXPECT_EQ(again.membership().last_incarnation(), later.unix_ms * kEpochsInAMillisecond);
  EXPECT_EQ(state.tables().last_id(), 4u);
}

TEST(RebuildTest, ServersAreGoneUntilTheyRegister) {
  const SchedulerState state =
      RebuildState(Options(), {Server(0, 9, {0, 1}), Server(2, 9, {0, 2})}).value();
  ASSERT_EQ(state.membership().nodes_size(), 2);
  EXPECT_EQ(state.membership().nodes(1).name(), "server-2");
  EXPECT_EQ(state.membership().nodes(1).number(), 2u);
  EXPECT_TRUE(state.membership().nodes(1).gone());
}

TEST(RebuildTest, MissingPartitionsAndServersAreNamed) {
  // Server 2 has lost partition 2; server 0 was never in sync for it.
  EXPECT_THAT(RefusalOf(Options(), {Server(0, 9, {0, 1, 2}), Server(2, 9, {0})}),
              HasSubstr("partitions 2; start server-2 again"));
  EXPECT_EQ(RebuildState(Options(), {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RebuildTest, UnavailablePartitionNamesItsServers) {
  // Servers 0 and 5 were in sync, and both are gone.
  RegisterRequest newest = Server(2, 9, {0});
  RoutingTable& routing = *newest.mutable_held_job()->mutable_routing();
  routing.set_primary(1, kNoPrimary);
  routing.mutable_replicas(1)->add_last_in_sync("server-0");
  routing.mutable_replicas(1)->add_last_in_sync("server-5");
  routing.mutable_replicas(2)->clear_backups();
  routing.mutable_replicas(2)->add_last_in_sync("server-5");
  RegisterRequest returned = Server(5, 9, {1, 2});
  returned.clear_held_job();
  const SchedulerState state =
      RebuildState(Options(), {Server(0, 8, {0}), newest, returned}).value();
  EXPECT_THAT(LastInSync(state, 1), ElementsAre(5));
  EXPECT_THAT(LastInSync(state, 2), ElementsAre(5));
  EXPECT_GE(state.membership().next_server(), 6 + kRebuildNumberGap);
  // It may have become primary by a routing that no other server has adopted.
  EXPECT_THAT(RefusalOf(Options(), {Server(0, 8, {0, 1}), newest}),
              HasSubstr("--rebuild_without=server-5"));
}

// It may have acknowledged pushes that it no longer has.
TEST(RebuildTest, ServerWithDamagedDataCountsAsMissing) {
  RebuildCensus census(1 << 20);
  (void)census.OnRegister(WithAddress(Server(0, 9, {0, 1}), 3));
  (void)census.OnRegister(WithAddress(Server(2, 9, {0, 2}), 4));
  ASSERT_EQ(census.Registrations().size(), 2u);
  RegisterRequest damaged = WithAddress(Server(2, 9, {}), 5);
  damaged.clear_held_job();
  damaged.set_start_count(1);
  damaged.set_data_damaged(true);
  EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(damaged)));
  ASSERT_EQ(census.Registrations().size(), 1u);
  EXPECT_THAT(RefusalOf(Options(), census.Registrations()),
              HasSubstr("--rebuild_without=server-2"));
}

void SetPosition(RegisterRequest& server, int replica, uint64_t term, uint64_t index) {
  server.mutable_recovered(replica)->set_term(term);
  server.mutable_recovered(replica)->set_log_index(index);
}

// The primary acknowledges alone after its backup was dropped. Then it is restarted, and the
// backup, which has not heard of that, knows the newest routing.
TEST(RebuildTest, RestartedPrimaryThatIsAheadOfItsBackupIsTheOnlyCandidate) {
  RegisterRequest backup = Server(2, 9, {0, 2});
  backup.mutable_held_job()->mutable_routing()->mutable_replicas(0)->set_primary_since(4);
  SetPosition(backup, 0, 4, 100);
  RegisterRequest primary = Server(0, 9, {0, 1});
  SetPosition(primary, 0, 4, 150);
  const SchedulerState living = RebuildState(Options(), {backup, primary}).value();
  EXPECT_THAT(LastInSync(living, 0), UnorderedElementsAre(0, 2)) << "a backup has what is acked";
  primary.clear_held_job();
  const SchedulerState restarted = RebuildState(Options(), {backup, primary}).value();
  EXPECT_THAT(LastInSync(restarted, 0), ElementsAre(0));
}

TEST(RebuildTest, ReplicaBehindALaterTermIsNotTrusted) {
  RegisterRequest living = Server(2, 9, {0, 2});
  living.mutable_held_job()->mutable_routing()->mutable_replicas(0)->set_primary_since(4);
  SetPosition(living, 0, 4, 100);
  RegisterRequest restarted = Server(0, 9, {0, 1});
  restarted.clear_held_job();
  for (const auto& [term, index, in_sync] :
       std::vector<std::tuple<uint64_t, uint64_t, std::vector<uint32_t>>>{
           {5, 90, {0}}, {4, 101, {0}}, {4, 99, {2, 0}}, {3, 200, {2, 0}}}) {
    SCOPED_TRACE(absl::StrCat("the restarted server has term ", term, ", index ", index));
    SetPosition(restarted, 0, term, index);
    const SchedulerState state = RebuildState(Options(), {living, restarted}).value();
    EXPECT_EQ(LastInSync(state, 0), in_sync);
  }
}

// Server 0 was the only one in sync when the newest known routing was adopted. It deleted its
// replica once server 2 had replaced it, by a routing that no living server knows. Server 2 may
// have got no push since, so its term may be the old one.
TEST(RebuildTest, RestartedSuccessorOfADeletedReplicaIsTheCandidate) {
  RegisterRequest predecessor = Server(0, 9, {0});
  predecessor.mutable_held_job()->mutable_routing()->mutable_replicas(1)->set_primary_since(4);
  RegisterRequest successor = Server(2, 9, {0, 2, 1});
  successor.clear_held_job();
  for (const uint64_t term : {5, 4}) {
    SetPosition(successor, 2, term, 100);
    const SchedulerState state = RebuildState(Options(), {predecessor, successor}).value();
    EXPECT_THAT(LastInSync(state, 1), ElementsAre(2));
  }
  // Server 2 had been dropped before, and has only what it retains from then.
  RegisterRequest knows_better = predecessor;
  knows_better.mutable_held_job()->mutable_routing()->mutable_replicas(1)->add_retained(1);
  EXPECT_THAT(RefusalOf(Options(), {knows_better, successor}), HasSubstr("partitions 1"));
  SetPosition(successor, 2, 3, 100);
  EXPECT_THAT(RefusalOf(Options(), {predecessor, successor}), HasSubstr("partitions 1"));
  // The predecessor may still have its replica.
  SetPosition(successor, 2, 5, 100);
  RebuildOptions without = Options();
  without.without = {"server-0"};
  RegisterRequest third = Server(4, 9, {});
  *third.mutable_held_job() = predecessor.held_job();
  EXPECT_THAT(RefusalOf(without, {third, successor}), HasSubstr("start server-0 again"));
}

TEST(RebuildTest, TablesAreCreatedAgain) {
  RegisterRequest without = Server(2, 9, {0, 2});
  without.mutable_held_job()->clear_tables();
  for (const RegisterRequest& other : {without, Server(2, 9, {0, 2})}) {
    RegisterRequest server = Server(0, 9, {0, 1});
    server.mutable_held_job()->set_longest_lease_ms(2500);
    const SchedulerState state = RebuildState(Options(), {server, other}).value();
    ASSERT_EQ(state.tables().tables_size(), 1);
    EXPECT_FALSE(state.tables().tables(0).ready()) << "some partitions may lack it";
    EXPECT_TRUE(state.rebuilt()) << "the job must not count as a job without pushes";
    EXPECT_EQ(state.longest_lease_ms(), 2500u);
  }
}

TEST(RebuildTest, UnnamedServerKeepsItsName) {
  RegisterRequest returned = Server(7, 3, {1});
  returned.clear_held_job();
  const SchedulerState state =
      RebuildState(Options(), {Server(0, 9, {0, 1}), Server(2, 9, {0, 2}), returned}).value();
  ASSERT_EQ(state.membership().nodes_size(), 3);
  EXPECT_EQ(state.membership().nodes(2).name(), "server-7");
  EXPECT_GE(state.membership().next_server(), 8 + kRebuildNumberGap);
  EXPECT_THAT(LastInSync(state, 1), ElementsAre(0));
}

TEST(RebuildTest, RegistrationBeforeTheHeardOneIsLate) {
  RegisterRequest registrations = Server(2, 9, {0, 2});
  registrations.set_process_nonce(5);
  registrations.set_start_count(3);
  registrations.set_registration(4);
  const SchedulerState state =
      RebuildState(Options(), {Server(0, 9, {0, 1}), registrations}).value();
  const StoredNode& node = state.membership().nodes(1);
  EXPECT_EQ(node.process_nonce(), 5u);
  EXPECT_EQ(node.start_count(), 3u);
  EXPECT_EQ(node.registration(), 3u) << "that registration will be repeated";
}

TEST(RebuildCensusTest, LateRegistrationDoesNotReplaceANewerOne) {
  RebuildCensus census;
  RegisterRequest request = WithAddress(Server(2, 9, {0, 2}), 5);
  request.set_registration(3);
  EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(request)));
  RegisterRequest late = request;
  late.set_registration(2);
  late.clear_held_job();
  EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(late)));
  ASSERT_EQ(census.Registrations().size(), 1u);
  EXPECT_TRUE(census.Registrations()[0].has_held_job());
}

TEST(RebuildCensusTest, RegistrationFromBeforeTheCensusDoesNotCount) {
  RegisterRequest request = WithAddress(Server(2, 9, {0, 2}), 5);
  request.set_rebuild_challenge(0);
  uint64_t former = 0;
  for (int scheduler = 0; scheduler < 2; ++scheduler) {
    // The second census is of a scheduler that has been restarted.
    RebuildCensus census;
    EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(request)));
    request.set_rebuild_challenge(former);
    const absl::Status again = census.OnRegister(request);
    EXPECT_TRUE(absl::IsUnavailable(again));
    EXPECT_TRUE(census.Registrations().empty());
    request.set_rebuild_challenge(RebuildChallengeOf(again));
    EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(request)));
    EXPECT_EQ(census.Registrations().size(), 1u);
    former = request.rebuild_challenge();
  }
}

// A copy of the directory counts one start more than the live server.
TEST(RebuildCensusTest, LateRegistrationOfACopyDoesNotReplaceTheLiveServer) {
  RebuildCensus census;
  RegisterRequest original = WithAddress(Server(2, 9, {0, 2}), 5);
  original.set_start_count(1);
  original.set_rebuild_challenge(0);
  RegisterRequest copy = original;
  copy.set_process_nonce(6);
  copy.set_start_count(2);
  copy.clear_held_job();
  EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(copy)));
  original.set_rebuild_challenge(RebuildChallengeOf(census.OnRegister(original)));
  EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(original)));
  EXPECT_TRUE(absl::IsUnavailable(census.OnRegister(copy)));
  ASSERT_EQ(census.Registrations().size(), 1u);
  EXPECT_TRUE(census.Registrations()[0].has_held_job());
}

TEST(RebuildCensusTest, ServersRegisterAgainAndOthersWait) {
  HeartbeatRequest heartbeat;
  EXPECT_TRUE(absl::IsUnavailable(RebuildCensus().OnHeartbeat(heartbeat)));
  heartbeat.mutable_server();
  EXPECT_TRUE(absl::IsAborted(RebuildCensus().OnHeartbeat(heartbeat)));
}

TEST(RebuildProgressTest, RebuildWaitsForAllServersUntilItsDeadline) {
  const MonotonicTime now{std::chrono::hours(1)};
  Rebuild rebuild(Options(), std::chrono::seconds(30), now);
  EXPECT_FALSE(rebuild.Poll({Server(0, 9, {0, 1})}, now).has_value());
  const auto state = rebuild.Poll({Server(0, 9, {0, 1}), Server(2, 9, {0, 2})}, now);
  ASSERT_TRUE(state.has_value());
  EXPECT_TRUE(state->ok());
  Rebuild late(Options(), std::chrono::seconds(30), now);
  const auto refused = late.Poll({Server(0, 9, {0, 1})}, now + std::chrono::seconds(30));
  ASSERT_TRUE(refused.has_value());
  EXPECT_FALSE(refused->ok());
}

TEST(RebuildProgressTest, RebuildWaitsForTheLeaseOfADeadServer) {
  const MonotonicTime now{std::chrono::hours(1)};
  RebuildOptions options = Options();
  options.without = {"server-2"};
  RegisterRequest server = Server(0, 9, {0, 1, 2});
  server.mutable_held_job()->mutable_routing()->set_primary(2, 0);
  server.mutable_held_job()->set_longest_lease_ms(2500);
  Rebuild rebuild(options, std::chrono::seconds(30), now);
  EXPECT_FALSE(rebuild.Poll({server}, now).has_value());
  EXPECT_TRUE(rebuild.Poll({server}, now + std::chrono::milliseconds(2500)).has_value());
}

TEST(RebuildTest, MissingServerIsRequiredUnlessDead) {
  RebuildOptions options = Options();
  RegisterRequest server = Server(0, 9, {0, 1, 2});
  server.mutable_held_job()->mutable_routing()->set_primary(2, 0);
  EXPECT_THAT(RefusalOf(options, {server}), HasSubstr("--rebuild_without=server-2"));
  options.without = {"server-2"};
  EXPECT_TRUE(RebuildState(options, {server}).ok());
}

TEST(RebuildTest, ImpossibleReportIsRefused) {
  RegisterRequest late = Server(2, ~uint64_t{0} - 1, {0, 2});
  EXPECT_EQ(RebuildState(Options(), {Server(0, 9, {0, 1}), late}).status().code(),
            absl::StatusCode::kInvalidArgument);
  RegisterRequest twice = Server(2, 9, {0, 2});
  twice.mutable_held_job()->mutable_routing()->mutable_servers(1)->set_node("server-0");
  EXPECT_EQ(RebuildState(Options(), {Server(0, 8, {0, 1}), twice}).status().code(),
            absl::StatusCode::kInvalidArgument);
  RegisterRequest other = Server(2, 9, {0, 2});
  other.mutable_held_job()->mutable_tables(0)->set_name("other");
  EXPECT_EQ(RebuildState(Options(), {Server(0, 9, {0, 1}), other}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RebuildTest, DifferentJobIsRefusedNamingTheDifference) {
  RebuildOptions options = Options();
  options.job.set_name("clicks");
  EXPECT_THAT(RefusalOf(options, {Server(0, 9, {0, 1}), Server(2, 9, {0, 2})}), HasSubstr("name"));

  RegisterRequest stranger = Server(2, 9, {0, 2});
  stranger.set_job_id(kJob + 1);
  EXPECT_EQ(RebuildState(Options(), {Server(0, 9, {0, 1}), stranger}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(RebuildTest, AllServersAreThoseOfTheNewestRouting) {
  EXPECT_FALSE(HasAllServers({}, {}));
  EXPECT_FALSE(HasAllServers({Server(0, 9, {1})}, {}));
  EXPECT_TRUE(HasAllServers({Server(0, 9, {1})}, {"server-2"}));
  const RegisterRequest newest = Server(0, 9, {1});
  EXPECT_TRUE(HasAllServers({newest, Server(2, 8, {0, 2})}, {}));
  // By a later routing, server 0 has handed over partition 1.
  EXPECT_FALSE(HasAllServers({Server(0, 9, {}), Server(2, 8, {0, 2})}, {}));
  RegisterRequest restarted = Server(2, 8, {0, 2});
  SetPosition(restarted, 1, 7, 100);
  EXPECT_FALSE(HasAllServers({newest, restarted}, {})) << "it has changes of a later term";
}

}  // namespace
}  // namespace pawl
