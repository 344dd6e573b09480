// How the ranks of a job wait for each other.
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

// Deadline of a wait for all ranks to reach the same point; in ASYNC some may be far behind.
inline constexpr std::chrono::hours kRendezvousTimeout{24};
// How often ranks repeat a barrier because one of them died in it, and how often a rank repeats its
// report because the scheduler restarted.
inline constexpr int kMaxRendezvousAttempts = 100;

// The scheduler calls by which ranks wait for each other. Implemented by the client library's
// adapter and by fakes in tests. Thread-safe.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Ready once all `parties` have called it with this name; `party` is the caller's number.
  virtual std::future<absl::Status> Barrier(const std::string& name, uint32_t parties,
                                            uint32_t party) = 0;

  // The answer to a rank's arrival comes when all ranks have arrived, and the one to its last part
  // when all have reported.
  virtual std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(
      ReportEvaluationRequest request) = 0;
};

// Waits until all ranks have reached the barrier `place`.
absl::Status Meet(Rendezvous& rendezvous, absl::string_view place, uint32_t logical_workers,
                  uint32_t rank, const Interrupt& leave);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_RENDEZVOUS_H_
