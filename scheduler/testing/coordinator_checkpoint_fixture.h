// A Coordinator whose checkpoints the test completes.
#ifndef PAWL_SCHEDULER_TESTING_COORDINATOR_CHECKPOINT_FIXTURE_H_
#define PAWL_SCHEDULER_TESTING_COORDINATOR_CHECKPOINT_FIXTURE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {

// Two servers and a worker. The test completes their checkpoints through written_.
class CoordinatorCheckpointTest : public CoordinatorFixture {
 protected:
  struct Written {
    std::string dir;
    CheckpointManifest manifest;
    uint32_t keep = 0;
    absl::AnyInvocable<void(absl::StatusOr<std::string>)> done;
  };

  // Starts training, with `more` in the job.
  void Train(const std::string& more,
             const std::function<void(Coordinator::Options&)>& change = nullptr) {
    Begin(absl::StrCat(kTraining, more), 2, 1, [&](Coordinator::Options& options) {
      options.write_checkpoint =
          [this](const std::string& dir, CheckpointManifest manifest, uint32_t keep,
                 absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
            written_.push_back({dir, std::move(manifest), keep, std::move(done)});
          };
      if (change != nullptr) change(options);
    });
    for (int i = 0; i < 2; ++i) server_nodes_.push_back(Join(SERVER_ROLE));
    worker_ = Join(WORKER_ROLE);
    SetAllParts();
    servers_.TakeCalls();
  }
  // Each server has written its share of the 8 partitions.
  void SetAllParts() {
    const RoutingTable routing = Routing();
    for (int server = 0; server < routing.servers_size(); ++server) {
      CheckpointOnServerResponse parts;
      for (int p = 0; p < routing.primary_size(); ++p) {
        if (routing.primary(p) != static_cast<uint32_t>(server)) continue;
        CheckpointPart& part = *parts.add_parts();
        part.set_partition(static_cast<uint32_t>(p));
        part.set_bytes(100 + static_cast<uint64_t>(p));
      }
      servers_.SetParts(routing.servers(server).address(), parts);
    }
  }
  // The servers report that they have reached `step`.
  void Reach(uint64_t step) {
    for (const RegisterResponse& server : server_nodes_) {
      auto request = From<HeartbeatRequest>(server);
      request.mutable_server()->set_step(step);
      ASSERT_TRUE(coordinator_->Heartbeat(request).ok());
    }
    ASSERT_TRUE(Beat(worker_).ok());
    clock_.Advance(kTickInterval);
    coordinator_->Tick();
  }
  Answer<CheckpointResponse> Ask(const std::string& dir = "") {
    CheckpointRequest request;
    request.set_dir(dir);
    return Call(&Coordinator::Checkpoint, request);
  }

  std::vector<RegisterResponse> server_nodes_;
  std::vector<Written> written_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_TESTING_COORDINATOR_CHECKPOINT_FIXTURE_H_
