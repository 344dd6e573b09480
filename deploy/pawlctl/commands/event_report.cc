#include "deploy/pawlctl/commands/event_report.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "deploy/pawlctl/cluster/progress.h"

namespace pawl {
std::string MovesText(const MovesStatus& moves) {
  std::string text;
  if (moves.replicas_left() == 0 && moves.handovers_left() == 0) {
    text = "none left";
  } else {
    text = absl::StrCat(
        FormatCount(moves.replicas_left()), " replicas to copy (", moves.in_progress(),
        " in progress, ", FormatCount(moves.bytes_left()), " bytes left",
        moves.seconds_left() > 0 ? absl::StrCat(", about ", FormatSeconds(moves.seconds_left()))
                                 : "",
        ")");
    if (moves.handovers_left() > 0)
      absl::StrAppend(&text, ", ", moves.handovers_left(), " primaries to hand over");
  }
  if (moves.replicas_moved() > 0) {
    absl::StrAppend(&text, "; ", FormatCount(moves.replicas_moved()), " copied so far, ",
                    FormatCount(moves.bytes_moved()), " bytes");
  }
  if (moves.handovers() > 0) {
    absl::StrAppend(&text, "; handover pauses ", moves.pause_ms_p50(), " ms (p50), ",
                    moves.pause_ms_p99(), " ms (p99), ", moves.pause_ms_max(), " ms (max)");
  }
  return text;
}

std::string EventText(const ClusterEvent& event) {
  const std::string partition = absl::StrCat("partition ", event.partition());
  const std::string pause =
      event.has_pause_ms() ? absl::StrCat(", pause ", event.pause_ms(), " ms") : "";
  std::string what;
  switch (event.kind()) {
    case NODE_JOINED:
      what = absl::StrCat(event.node(), " joined: ", event.text());
      break;
    case NODE_RETURNED:
      what = absl::StrCat(event.node(), " came back: ", event.text());
      break;
    case NODE_LEFT:
      what = absl::StrCat(event.node(), " ", event.text());
      break;
    case NODE_DIED:
      what = absl::StrCat(event.node(), " ", event.text());
      break;
    case NODE_DRAINING:
      what = absl::StrCat(event.node(), " is leaving: ", event.text());
      break;
    case PRIMARY_PROMOTED:
      what =
          absl::StrCat(event.node(), " is primary in place of ", event.from(), ": ", event.text());
      break;
    case PRIMARY_MOVED:
      what = absl::StrCat(partition, ": ", event.node(), " is primary, handed over by ",
                          event.from(), pause);
      break;
    case REPLICA_MOVED:
      what = absl::StrCat(partition, ": copied to ", event.node(),
                          event.from().empty() ? "" : " in place of ", event.from(), ", ",
                          FormatCount(event.bytes()), " bytes");
      break;
    case REPLICAS_DROPPED:
      what = absl::StrCat(event.node(), " does not accept what ", event.from(),
                          " sends: replicas of that server's partitions are dropped");
      break;
    case JOB_SCALED:
      what = absl::StrCat("the job gets ", event.text());
      break;
    case FINAL_CHECKPOINT_ENDED:
      what = absl::StrCat("the final checkpoint: ", event.text());
      break;
    case JOB_STATE_CHANGED:
      what = absl::StrCat("the job is ", event.text());
      break;
    default:
      what = absl::StrCat(EventKind_Name(event.kind()), " ", event.node(), " ", event.text());
  }
  return absl::StrCat(event.number(), "  ",
                      absl::FormatTime("%Y-%m-%d %H:%M:%E3S",
                                       absl::FromUnixMillis(static_cast<int64_t>(event.unix_ms())),
                                       absl::LocalTimeZone()),
                      "  ", what);
}

nlohmann::ordered_json EventJson(const ClusterEvent& event) {
  nlohmann::ordered_json json = {{"number", event.number()},
                                 {"unix_ms", event.unix_ms()},
                                 {"kind", EventKind_Name(event.kind())}};
  if (!event.node().empty()) json["node"] = event.node();
  if (!event.from().empty()) json["from"] = event.from();
  const bool of_partition = event.kind() == PRIMARY_PROMOTED || event.kind() == PRIMARY_MOVED ||
                            event.kind() == REPLICA_MOVED;
  if (of_partition) json["partition"] = event.partition();
  if (event.bytes() > 0) json["bytes"] = event.bytes();
  if (event.has_pause_ms()) json["pause_ms"] = event.pause_ms();
  if (!event.text().empty()) json["text"] = event.text();
  return json;
}

}  // namespace pawl
