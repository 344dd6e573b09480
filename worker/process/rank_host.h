// The ranks that a worker process hosts.
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

// Follows the assignment of this process as it changes: takes over the ranks that are new in it,
// each from the step that the servers say and on a thread of its own, ends those that are in it no
// more with the step that they have begun, and gives them up. Says which have done all their steps.
// Without any rank it stands by. A rank that fails, and is not one to give up, ends all.
//
// Used by one thread. It must outlive the client, whose calls borrow memory of its ranks.
class RankHost {
 public:
  struct Options {
    RankShared shared;
    // All ranks are to end.
    Interrupts interrupts;
    std::function<absl::StatusOr<std::unique_ptr<TrainingModel>>()> make_model;
    // Samples count from this step on.
    uint64_t counted_from_step = 0;
    // Deadline of what is done at once where nothing is wrong: longer than servers and scheduler
    // may be away.
    MonotonicDuration call_timeout = std::chrono::minutes(10);
  };
  // Both outlive the use of the host; see above.
  RankHost(Client& client, Options options) : client_(client), options_(std::move(options)) {}
  RankHost(const RankHost&) = delete;
  RankHost& operator=(const RankHost&) = delete;

  // Until all are to leave: returns the reason when they have ended, or OK if that is the job's
  // completion. Sets both interrupts if a rank has failed. To be called once.
  absl::Status Run();

 private:
  struct Hosted {
    Hosted(LogicalWorkerAssignment a, const Interrupts& all)
        : assignment(std::move(a)), leave(&all.leave), abandon(&all.abandon) {}
    ~Hosted() {
      if (thread.joinable()) thread.join();
    }

    const LogicalWorkerAssignment assignment;
    // The rank is to be given up, or has failed.
    Interrupt leave;
    Interrupt abandon;
    // The rank is to be given up: the assignment has it no more. Of the host's thread.
    bool is_lost = false;
    std::unique_ptr<TrainingModel> model;
    // Made by its thread, and left to it until that has ended.
    std::unique_ptr<RankTrainer> trainer;
    std::promise<absl::Status> end;
    std::future<absl::Status> ended = end.get_future();
    std::thread thread;
  };

  void AskForAssignment();
  absl::Status Adopt(const GetAssignmentResponse& assignment);
  // The incarnation of a rank; on its own thread.
  absl::Status Host(Hosted& hosted);
  // Takes note of ranks whose threads have ended, and tells the scheduler, whose answers it looks
  // for at later times.
  absl::Status HandleEnded();
  // Frees the memory of ranks that have ended, as far as no call borrows it.
  void DropIdle();
  void WaitForChange();

  Client& client_;
  const Options options_;

  // By rank.
  std::map<uint32_t, std::unique_ptr<Hosted>> hosted_;
  std::vector<std::unique_ptr<Hosted>> ended_;
  // What the scheduler was told of ranks that have ended, until it has answered.
  std::vector<std::future<absl::Status>> told_;
  // The newest incarnation of each rank that was begun here.
  std::map<uint32_t, uint64_t> begun_;
  uint64_t version_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool has_changed_ PAWL_GUARDED_BY(mu_) = false;
  std::optional<absl::StatusOr<GetAssignmentResponse>> answer_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_RANK_HOST_H_
