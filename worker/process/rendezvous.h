// Where the ranks of a job wait for each other.
#ifndef PAWL_WORKER_PROCESS_RENDEZVOUS_H_
#define PAWL_WORKER_PROCESS_RENDEZVOUS_H_

#include <chrono>
#include <cstdint>
#include <future>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/scheduler.pb.h"
#include "worker/process/interrupt.h"

namespace pawl {

// Deadline of what waits for all ranks to come to the same place, in ASYNC perhaps from far behind.
inline constexpr std::chrono::hours kRendezvousTimeout{24};
// How often ranks meet anew because one of them died there, and how often one reports anew because
// the scheduler was restarted.
inline constexpr int kMaxRendezvousAttempts = 100;

// Thread-safe. Implementations: the client library's, and fakes in tests.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Ready when all `parties` have called it with this name; `party` is which of them this is.
  virtual std::future<absl::Status> Barrier(const std::string& name, uint32_t parties,
                                            uint32_t party) = 0;

  // The answer to a rank's last part comes when all ranks have reported.
  virtual std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(
      ReportEvaluationRequest request) = 0;
};

// Waits until all ranks have come to the place of this name.
absl::Status Meet(Rendezvous& rendezvous, absl::string_view place, uint32_t logical_workers,
                  uint32_t rank, const Interrupt& leave);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_RENDEZVOUS_H_
