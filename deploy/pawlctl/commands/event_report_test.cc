#include "deploy/pawlctl/commands/event_report.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(EventReportTest, MovesTextShowsWorkLeft) {
  MovesStatus moves;
  EXPECT_EQ(MovesText(moves), "none left");
  moves.set_replicas_left(12);
  moves.set_in_progress(3);
  moves.set_bytes_left(4000000);
  moves.set_seconds_left(5);
  moves.set_replicas_moved(4);
  moves.set_bytes_moved(2000);
  moves.set_handovers(2);
  moves.set_pause_ms_p50(20);
  moves.set_pause_ms_p99(30);
  moves.set_pause_ms_max(40);
  const std::string text = MovesText(moves);
  for (const char* part : {"12 replicas", "3 in progress", "4,000,000 bytes left", "4 copied",
                           "2,000 bytes", "20 ms", "40 ms (max)"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << part << " is missing in " << text;
  }
}

TEST(EventReportTest, EventTextNamesNodesAndPause) {
  ClusterEvent event;
  event.set_number(7);
  event.set_kind(PRIMARY_MOVED);
  event.set_node("server-1");
  event.set_from("server-0");
  event.set_partition(3);
  event.set_pause_ms(25);
  EXPECT_TRUE(absl::StrContains(
      EventText(event), "partition 3: server-1 is primary, handed over by server-0, pause 25 ms"))
      << EventText(event);
  EXPECT_EQ(EventJson(event)["pause_ms"], 25);
  EXPECT_EQ(EventJson(event)["kind"], "PRIMARY_MOVED");
  event.set_kind(REPLICA_MOVED);
  event.set_bytes(1000);
  EXPECT_TRUE(
      absl::StrContains(EventText(event), "copied to server-1 in place of server-0, 1,000 bytes"))
      << EventText(event);
}

}  // namespace
}  // namespace pawl
