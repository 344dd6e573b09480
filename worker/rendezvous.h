// Where the ranks of a job wait for each other.
#ifndef PAWL_WORKER_RENDEZVOUS_H_
#define PAWL_WORKER_RENDEZVOUS_H_

#include <cstdint>
#include <future>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Thread-safe. Implementations: the client library's, and fakes in tests.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Ready when all `parties` have called it with this name; `party` is which of them this is.
  virtual std::future<absl::Status> Barrier(const std::string& name, uint32_t parties, uint32_t party) = 0;

  // The answer to a rank's last part comes when all ranks have reported.
  virtual std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(ReportEvaluationRequest request) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_RENDEZVOUS_H_
