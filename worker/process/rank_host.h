// Hosts the ranks that the scheduler assigns to a worker process.
#ifndef PAWL_WORKER_PROCESS_RANK_HOST_H_
#define PAWL_WORKER_PROCESS_RANK_HOST_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/mutex.h"
#include "client_lib/client.h"
#include "proto/scheduler.pb.h"
#include "worker/model/training_model.h"
#include "worker/process/interrupt.h"
#include "worker/train/rank_shared.h"
#include "worker/train/rank_trainer.h"

namespace pawl {

// Follows the process's assignment. Takes over each new rank, from the step that the servers report
// and on a thread of its own. Ends each rank that has left the assignment after its current step,
// and releases it. Reports the ranks that have done all their steps. Stands by without ranks. If a
// rank fails that is not being released, all ranks end.
//
// Used by one thread. Outlives the client, whose calls borrow memory of its ranks.
class RankHost {
 public:
  struct Options {
    RankShared shared;
    // Tell all ranks to end.
    Interrupts interrupts;
    std::function<absl::StatusOr<std::unique_ptr<TrainingModel>>()> make_model;
    // Samples count from this step on.
    uint64_t counted_from_step = 0;
    // Deadline of calls that are usually immediate; longer than servers and scheduler may be away.
    MonotonicDuration call_timeout = std::chrono::minutes(10);
  };
  // `client` outlives the use of the host, and the host outlives the client.
  RankHost(Client& client, Options options) : client_(client), options_(std::move(options)) {}
  RankHost(const RankHost&) = delete;
  RankHost& operator=(const RankHost&) = delete;

  // Runs until all ranks must leave. Returns the reason once they have ended, or OK when the job
  // completes. Sets both interrupts if a rank fails. Called once.
  absl::Status Run();

  // After Run: whether no call borrows memory of the ranks and none of their threads reads data, so
  // that destruction does not wait for a read.
  bool IsIdle() const;

 private:
  struct Hosted {
    Hosted(LogicalWorkerAssignment a, const Interrupts& all)
        : assignment(std::move(a)), leave(&all.leave), abandon(&all.abandon) {}
    ~Hosted() {
      if (thread.joinable()) thread.join();
    }
    // REQUIRES: its thread has ended.
    bool IsIdle() const { return trainer == nullptr || trainer->IsIdle(); }

    const LogicalWorkerAssignment assignment;
    // Set to release the rank, and after a failure of it.
    Interrupt leave;
    Interrupt abandon;
    // The assignment no longer has the rank. Used by the host's thread.
    bool is_lost = false;
    std::unique_ptr<TrainingModel> model;
    // Created by the rank's thread and used by it alone until the thread has ended.
    std::unique_ptr<RankTrainer> trainer;
    std::promise<absl::Status> end;
    std::future<absl::Status> ended = end.get_future();
    std::thread thread;
  };

  struct Report {
    std::future<absl::Status> answer;
    // The ranks that have done all their steps.
    std::vector<uint32_t> finished;
    // The ranks that were released.
    GiveUpRanksRequest given_up;
  };

  void RequestAssignment();
  absl::Status Adopt(const GetAssignmentResponse& assignment);
  // Runs a rank from its takeover to its end; on its own thread.
  absl::Status Host(Hosted& hosted);
  // Handles ranks whose threads have ended and reports them to the scheduler. Checks earlier
  // reports for their answers.
  absl::Status HandleEnded();
  void ReportFinished(std::vector<uint32_t> ranks);
  void ReportGivenUp(GiveUpRanksRequest given_up);
  // Destroys ended ranks whose memory no call borrows any more and that read no data. A read may
  // hang, and the other ranks do not wait for it.
  void DropIdle();
  void WaitForChange();

  Client& client_;
  const Options options_;

  // By rank.
  std::map<uint32_t, std::unique_ptr<Hosted>> hosted_;
  std::vector<std::unique_ptr<Hosted>> ended_;
  // Reports of ended ranks that the scheduler has not answered yet.
  std::vector<Report> reports_;
  // The newest incarnation of each rank that was started here.
  std::map<uint32_t, uint64_t> started_;
  uint64_t version_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool has_changed_ PAWL_GUARDED_BY(mu_) = false;
  std::optional<absl::StatusOr<GetAssignmentResponse>> answer_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_RANK_HOST_H_
