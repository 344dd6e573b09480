// Servers whose answers a test controls.
#ifndef PAWL_SCHEDULER_TESTING_FAKE_SERVERS_H_
#define PAWL_SCHEDULER_TESTING_FAKE_SERVERS_H_

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/mutex.h"
#include "scheduler/rpc/server_caller.h"

namespace pawl {

// Records every call as "address Method" and answers at once: UNAVAILABLE while the server has not
// adopted the call's routing epoch, else with an error queued for that call, else with OK. While
// held, answers wait for Release. Thread-safe.
class FakeServers final : public ServerCaller {
 public:
  void KeepOnly(const absl::flat_hash_set<std::string>& addresses) override {
    MutexLock lock(mu_);
    kept_ = addresses;
  }
  // The last argument of KeepOnly.
  absl::flat_hash_set<std::string> kept() {
    MutexLock lock(mu_);
    return kept_;
  }
  void CreateTable(const std::string& address, const CreateTableOnServerRequest& request,
                   MonotonicDuration timeout, Done done) override {
    {
      MutexLock lock(mu_);
      last_table_ = request.table();
    }
    Answer(address, "CreateTable", request.routing_epoch(), std::move(done));
  }
  void Inspect(const std::string& address, const InspectRequest& request, MonotonicDuration timeout,
               InspectDone done) override {
    Answer(address, request.digest() ? "Inspect" : "Inspect counters", request.routing_epoch(),
           [this, address, done = std::move(done)](absl::Status status) mutable {
             InspectResponse response;
             {
               MutexLock lock(mu_);
               response = inspections_[address];
             }
             if (status.ok()) {
               done(std::move(response));
             } else {
               done(std::move(status));
             }
           });
  }
  void KeepBest(const std::string& address, const KeepBestRequest& request,
                MonotonicDuration timeout, Done done) override {
    Answer(address, "KeepBest " + std::to_string(request.step()), request.routing_epoch(),
           std::move(done));
  }
  void RestoreBest(const std::string& address, const RestoreBestRequest& request,
                   MonotonicDuration timeout, Done done) override {
    Answer(address, "RestoreBest", request.routing_epoch(), std::move(done));
  }
  void ReleaseLogicalWorker(const std::string& address, const ReleaseLogicalWorkerRequest& request,
                            MonotonicDuration timeout, Done done) override {
    Answer(address,
           "ReleaseLogicalWorker " + std::to_string(request.logical_worker()) + " " +
               std::to_string(request.incarnation()),
           request.routing_epoch(), std::move(done));
  }

  void Checkpoint(const std::string& address, const CheckpointOnServerRequest& request,
                  MonotonicDuration timeout, CheckpointDone done) override {
    Answer(
        address,
        "Checkpoint " + std::to_string(request.step()) + (request.is_final() ? " of the end" : ""),
        request.routing_epoch(),
        [this, address, done = std::move(done)](absl::Status status) mutable {
          CheckpointOnServerResponse response;
          {
            MutexLock lock(mu_);
            response = parts_[address];
          }
          if (status.ok()) {
            done(std::move(response));
          } else {
            done(std::move(status));
          }
        });
  }
  void LoadCheckpoint(const std::string& address, const LoadCheckpointRequest& request,
                      MonotonicDuration timeout, Done done) override {
    Answer(address, "LoadCheckpoint " + request.dir() + "/" + request.name(),
           request.routing_epoch(), std::move(done));
  }

  // The next calls recorded as `call` fail with `status`, in the order of FailNext.
  void FailNext(const std::string& call, absl::Status status) {
    MutexLock lock(mu_);
    failures_[call].push_back(std::move(status));
  }
  void SetInspection(const std::string& address, InspectResponse response) {
    MutexLock lock(mu_);
    inspections_[address] = std::move(response);
  }
  void SetParts(const std::string& address, CheckpointOnServerResponse response) {
    MutexLock lock(mu_);
    parts_[address] = std::move(response);
  }
  void Hold() {
    MutexLock lock(mu_);
    hold_ = true;
  }
  // Sends all held answers.
  void Release() {
    std::vector<std::pair<Done, absl::Status>> held;
    {
      MutexLock lock(mu_);
      hold_ = false;
      held.swap(held_);
    }
    for (auto& [done, status] : held) done(std::move(status));
  }
  // Drops all held answers.
  void Forget() {
    std::vector<std::pair<Done, absl::Status>> held;
    MutexLock lock(mu_);
    hold_ = false;
    held.swap(held_);
  }
  std::vector<std::string> TakeCalls() {
    MutexLock lock(mu_);
    return std::exchange(calls_, {});
  }
  TableSpec last_table() {
    MutexLock lock(mu_);
    return last_table_;
  }
  // The server has adopted this routing epoch. Without this call it has adopted every epoch.
  void SetAdopted(const std::string& address, uint64_t epoch) {
    MutexLock lock(mu_);
    adopted_[address] = epoch;
  }
  // The routing epoch of the last call.
  uint64_t last_routing_epoch() {
    MutexLock lock(mu_);
    return last_routing_epoch_;
  }

 private:
  void Answer(const std::string& address, const std::string& method, uint64_t epoch, Done done) {
    const std::string call = address + " " + method;
    absl::Status status;
    {
      MutexLock lock(mu_);
      last_routing_epoch_ = epoch;
      const auto adopted = adopted_.find(address);
      if (adopted != adopted_.end() && adopted->second < epoch) {
        status = absl::UnavailableError("the routing has not reached this server");
      } else {
        calls_.push_back(call);
      }
      std::deque<absl::Status>& failures = failures_[call];
      if (status.ok() && !failures.empty()) {
        status = failures.front();
        failures.pop_front();
      }
      if (hold_) {
        held_.emplace_back(std::move(done), std::move(status));
        return;
      }
    }
    done(std::move(status));
  }

  Mutex mu_;
  bool hold_ PAWL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<std::string> kept_ PAWL_GUARDED_BY(mu_);
  std::vector<std::string> calls_ PAWL_GUARDED_BY(mu_);
  std::vector<std::pair<Done, absl::Status>> held_ PAWL_GUARDED_BY(mu_);
  std::map<std::string, std::deque<absl::Status>> failures_ PAWL_GUARDED_BY(mu_);
  std::map<std::string, InspectResponse> inspections_ PAWL_GUARDED_BY(mu_);
  std::map<std::string, CheckpointOnServerResponse> parts_ PAWL_GUARDED_BY(mu_);
  std::map<std::string, uint64_t> adopted_ PAWL_GUARDED_BY(mu_);
  TableSpec last_table_ PAWL_GUARDED_BY(mu_);
  uint64_t last_routing_epoch_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_TESTING_FAKE_SERVERS_H_
