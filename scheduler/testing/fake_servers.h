// Servers whose answers a test controls.
#ifndef PAWL_SCHEDULER_TESTING_FAKE_SERVERS_H_
#define PAWL_SCHEDULER_TESTING_FAKE_SERVERS_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "google/protobuf/message.h"
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
  void Call(const std::string& address, const std::string& rpc,
            const google::protobuf::Message& request, MonotonicDuration timeout,
            std::shared_ptr<google::protobuf::Message> response, Done done) override {
    if (const auto* create = dynamic_cast<const CreateTableOnServerRequest*>(&request)) {
      MutexLock lock(mu_);
      last_table_ = create->table();
    }
    Answer(address, Text(rpc, request), EpochOf(request),
           [this, key = std::pair(address, rpc), response,
            done = std::move(done)](absl::Status status) mutable {
             {
               MutexLock lock(mu_);
               const auto it = responses_.find(key);
               if (it != responses_.end()) response->CopyFrom(*it->second);
             }
             done(std::move(status));
           });
  }

  // The next calls recorded as `call` fail with `status`, in the order of FailNext.
  void FailNext(const std::string& call, absl::Status status) {
    MutexLock lock(mu_);
    failures_[call].push_back(std::move(status));
  }
  void SetInspection(const std::string& address, const InspectResponse& response) {
    MutexLock lock(mu_);
    responses_[{address, kInspectRpc.name}] = std::make_unique<InspectResponse>(response);
  }
  void SetParts(const std::string& address, const CheckpointOnServerResponse& response) {
    MutexLock lock(mu_);
    responses_[{address, kCheckpointRpc.name}] =
        std::make_unique<CheckpointOnServerResponse>(response);
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
  // The rpc with those fields of the request that tests look at.
  static std::string Text(const std::string& rpc, const google::protobuf::Message& request) {
    if (const auto* inspect = dynamic_cast<const InspectRequest*>(&request))
      return inspect->digest() ? rpc : rpc + " counters";
    if (const auto* keep = dynamic_cast<const KeepBestRequest*>(&request))
      return absl::StrCat(rpc, " ", keep->step());
    if (const auto* release = dynamic_cast<const ReleaseLogicalWorkerRequest*>(&request))
      return absl::StrCat(rpc, " ", release->logical_worker(), " ", release->incarnation());
    if (const auto* checkpoint = dynamic_cast<const CheckpointOnServerRequest*>(&request))
      return absl::StrCat(rpc, " ", checkpoint->step(),
                          checkpoint->is_final() ? " of the end" : "");
    if (const auto* load = dynamic_cast<const LoadCheckpointRequest*>(&request))
      return absl::StrCat(rpc, " ", load->dir(), "/", load->name());
    return rpc;
  }

  static uint64_t EpochOf(const google::protobuf::Message& request) {
    return request.GetReflection()->GetUInt64(
        request, request.GetDescriptor()->FindFieldByName("routing_epoch"));
  }

  void Answer(const std::string& address, const std::string& text, uint64_t epoch, Done done) {
    const std::string call = address + " " + text;
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
  // By address and rpc. Other answers are empty.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<google::protobuf::Message>>
      responses_ PAWL_GUARDED_BY(mu_);
  std::map<std::string, uint64_t> adopted_ PAWL_GUARDED_BY(mu_);
  TableSpec last_table_ PAWL_GUARDED_BY(mu_);
  uint64_t last_routing_epoch_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_TESTING_FAKE_SERVERS_H_
