// Fakes of everything outside a rank, so that tests train it without processes.
#ifndef PAWL_WORKER_TRAIN_TESTING_TRAINER_FAKES_H_
#define PAWL_WORKER_TRAIN_TESTING_TRAINER_FAKES_H_

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/client.h"
#include "gtest/gtest.h"
#include "proto/types.pb.h"
#include "worker/process/rendezvous.h"

namespace pawl {

inline constexpr float kLearningRate = 0.25f;

// The servers of a job in one object: SGD on all tables. Answers calls on the thread that makes
// them ready. SYNC follows the design: a step closes when all ranks have ended it.
class FakeServers {
 public:
  // `clocks`: the step that each rank starts with.
  FakeServers(ConsistencyMode mode, std::vector<uint64_t> clocks)
      : mode_(mode), clocks_(std::move(clocks)) {}

  struct PullCall {
    uint32_t rank;
    uint64_t step;
    std::vector<PullItem> items;
    Callback done;
  };

  void Pull(PullCall call) {
    std::vector<std::pair<Callback, absl::Status>> answers;
    {
      MutexLock lock(mu_);
      Log(call.rank, absl::StrCat("pull ", call.step, TableNames(call.items)));
      pulls_.push_back(std::move(call));
      AnswerPulls(answers);
    }
    for (auto& [done, status] : answers) done(status);
  }

  void Push(uint32_t rank, uint64_t step, absl::Span<const PushItem> items, Callback done) {
    absl::Status status;
    std::function<void()> action;
    {
      MutexLock lock(mu_);
      Log(rank, absl::StrCat("push ", step));
      std::string& bytes = pushed_[rank];
      for (const PushItem& item : items) {
        element_types_[item.table.name()].insert(item.element_type);
        std::vector<uint64_t>& keys = pushed_keys_[rank][step];
        keys.insert(keys.end(), item.keys.begin(), item.keys.end());
        bytes.append(reinterpret_cast<const char*>(item.keys.data()),
                     item.keys.size() * sizeof(uint64_t));
        bytes.append(reinterpret_cast<const char*>(item.gradients.data()),
                     item.gradients.size() * sizeof(float));
        waiting_[step][rank].push_back({item.table.name(),
                                        item.table.dense() ? 0 : item.table.row_width(),
                                        {item.keys.begin(), item.keys.end()},
                                        {item.gradients.begin(), item.gradients.end()},
                                        item.table.spec().optimizer().has_assign()});
      }
      if (mode_ != SYNC) Apply(step, 1.0f);
      status = push_failure_;
      if (const auto found = at_push_.find({rank, step}); found != at_push_.end())
        action = found->second;
    }
    if (action != nullptr) action();
    done(status);
  }

  void EndStep(uint32_t rank, uint64_t step, Callback done) {
    absl::Status broken;
    {
      MutexLock lock(mu_);
      Log(rank, absl::StrCat("end ", step));
      broken = push_failure_;
    }
    // As the client library does.
    if (!broken.ok()) return done(broken);
    {
      MutexLock lock(mu_);
      if (hold_ends_) {
        held_ends_.emplace_back([this, rank, step, done = std::move(done)]() mutable {
          ProcessEnd(rank, step, std::move(done));
        });
        return;
      }
    }
    ProcessEnd(rank, step, std::move(done));
  }

  // Runs `action` in the rank's push of this step.
  void AtPush(uint32_t rank, uint64_t step, std::function<void()> action) {
    MutexLock lock(mu_);
    at_push_[{rank, step}] = std::move(action);
  }
  // Accepts ends of steps but does not process them until ReleaseEnds.
  void HoldEnds() {
    MutexLock lock(mu_);
    hold_ends_ = true;
  }
  void ReleaseEnds() {
    while (true) {
      absl::AnyInvocable<void()> end;
      {
        MutexLock lock(mu_);
        // An end that arrives meanwhile comes after those that were held before it.
        hold_ends_ = !held_ends_.empty();
        if (!hold_ends_) return;
        end = std::move(held_ends_.front());
        held_ends_.pop_front();
      }
      end();
    }
  }
  // By step.
  std::map<uint64_t, std::vector<uint64_t>> pushed_keys(uint32_t rank) {
    MutexLock lock(mu_);
    return pushed_keys_[rank];
  }
  void FailPushes(absl::Status status) {
    MutexLock lock(mu_);
    push_failure_ = std::move(status);
  }
  // The value of an element before its first push; 0 if unset.
  void SetInitial(
      std::function<float(const std::string& table, uint64_t key, size_t element)> initial) {
    MutexLock lock(mu_);
    initial_ = std::move(initial);
  }
  // Gives the dense table `name` a NaN.
  void Poison(const std::string& name) {
    MutexLock lock(mu_);
    parameters_[{name, 0}] = {std::numeric_limits<float>::quiet_NaN()};
  }
  std::vector<std::string> LogOf(uint32_t rank) {
    MutexLock lock(mu_);
    return logs_[rank];
  }
  // The element types in which each table's gradients were pushed.
  std::map<std::string, std::set<ElementType>> element_types() {
    MutexLock lock(mu_);
    return element_types_;
  }
  std::map<uint32_t, std::string> pushed() {
    MutexLock lock(mu_);
    return pushed_;
  }
  std::map<std::pair<std::string, uint64_t>, std::vector<float>> parameters() {
    MutexLock lock(mu_);
    return parameters_;
  }

 private:
  struct Gradient {
    std::string table;
    uint64_t row_width;  // 0: dense
    std::vector<uint64_t> keys;
    std::vector<float> values;
    bool is_assigned;
  };

  void ProcessEnd(uint32_t rank, uint64_t step, Callback done) {
    std::vector<std::pair<Callback, absl::Status>> answers;
    {
      MutexLock lock(mu_);
      EXPECT_EQ(clocks_[rank], step);
      clocks_[rank] = step + 1;
      if (mode_ == SYNC && *std::min_element(clocks_.begin(), clocks_.end()) == step + 1) {
        Apply(step, 1.0f / static_cast<float>(clocks_.size()));
      }
      AnswerPulls(answers);
    }
    done(absl::OkStatus());
    for (auto& [d, status] : answers) d(status);
  }

  static std::string TableNames(absl::Span<const PullItem> items) {
    std::string names;
    for (const PullItem& item : items) absl::StrAppend(&names, " ", item.table.name());
    return names;
  }
  void Log(uint32_t rank, std::string what) PAWL_REQUIRES(mu_) {
    logs_[rank].push_back(std::move(what));
  }

  void Apply(uint64_t step, float scale) PAWL_REQUIRES(mu_) {
    // The map iterates over ranks in ascending order.
    std::map<std::pair<std::string, uint64_t>, std::vector<float>> sums;
    std::set<std::string> assigned;
    for (const auto& [rank, gradients] : waiting_[step]) {
      for (const Gradient& gradient : gradients) {
        if (gradient.is_assigned) {
          // Exactly one rank pushes a tensor, which is one block here.
          EXPECT_TRUE(assigned.insert(gradient.table).second) << gradient.table;
          parameters_[{gradient.table, 0}] = gradient.values;
          continue;
        }
        const size_t width = gradient.row_width == 0 ? gradient.values.size() : gradient.row_width;
        for (size_t i = 0; i * width < gradient.values.size(); ++i) {
          std::vector<float>& sum =
              sums[{gradient.table, gradient.row_width == 0 ? 0 : gradient.keys[i]}];
          sum.resize(width);
          for (size_t j = 0; j < width; ++j) sum[j] += gradient.values[i * width + j];
        }
      }
    }
    for (const auto& [key, sum] : sums) {
      std::vector<float>& row = parameters_[key];
      if (row.empty()) {
        row.resize(sum.size());
        Read(key.first, key.second, absl::MakeSpan(row), /*initial=*/true);
      }
      for (size_t j = 0; j < sum.size(); ++j) row[j] -= kLearningRate * (scale * sum[j]);
    }
    waiting_.erase(step);
  }

  void AnswerPulls(std::vector<std::pair<Callback, absl::Status>>& answers) PAWL_REQUIRES(mu_) {
    const uint64_t version = *std::min_element(clocks_.begin(), clocks_.end());
    for (auto it = pulls_.begin(); it != pulls_.end();) {
      if (mode_ == SYNC && it->step > version) {
        ++it;
        continue;
      }
      for (PullItem& item : it->items) {
        if (item.table.dense()) {
          Read(item.table.name(), 0, item.values);
        } else {
          for (size_t i = 0; i < item.keys.size(); ++i) {
            Read(item.table.name(), item.keys[i],
                 item.values.subspan(i * item.table.row_width(), item.table.row_width()));
          }
        }
      }
      answers.emplace_back(std::move(it->done), absl::OkStatus());
      it = pulls_.erase(it);
    }
  }
  void Read(const std::string& table, uint64_t key, absl::Span<float> out, bool initial = false)
      PAWL_REQUIRES(mu_) {
    const auto row = parameters_.find({table, key});
    if (initial || row == parameters_.end()) {
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = initial_ == nullptr ? 0.0f : initial_(table, key, i);
    } else {
      std::copy(row->second.begin(), row->second.end(), out.begin());
    }
  }

  const ConsistencyMode mode_;
  Mutex mu_;
  std::function<float(const std::string& table, uint64_t key, size_t element)> initial_
      PAWL_GUARDED_BY(mu_);
  std::vector<uint64_t> clocks_ PAWL_GUARDED_BY(mu_);
  std::vector<PullCall> pulls_ PAWL_GUARDED_BY(mu_);
  std::map<uint64_t, std::map<uint32_t, std::vector<Gradient>>> waiting_ PAWL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, uint64_t>, std::vector<float>> parameters_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, std::vector<std::string>> logs_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, std::string> pushed_ PAWL_GUARDED_BY(mu_);
  std::map<std::string, std::set<ElementType>> element_types_ PAWL_GUARDED_BY(mu_);
  absl::Status push_failure_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, std::map<uint64_t, std::vector<uint64_t>>> pushed_keys_ PAWL_GUARDED_BY(mu_);
  std::map<std::pair<uint32_t, uint64_t>, std::function<void()>> at_push_ PAWL_GUARDED_BY(mu_);
  bool hold_ends_ PAWL_GUARDED_BY(mu_) = false;
  std::deque<absl::AnyInvocable<void()>> held_ends_ PAWL_GUARDED_BY(mu_);
};

class FakeLogicalWorker final : public LogicalWorker {
 public:
  FakeLogicalWorker(FakeServers& servers, uint32_t rank, uint64_t first_step)
      : servers_(servers), rank_(rank), step_(first_step) {}

  void Push(absl::Span<const PushItem> items, const CallOptions&, Callback done) override {
    servers_.Push(rank_, step_, items, std::move(done));
  }
  void Assign(absl::Span<const AssignItem>, const CallOptions&, Callback done) override {
    done(absl::UnimplementedError("not used by a rank"));
  }
  void Pull(absl::Span<const PullItem> items, const CallOptions& options, Callback done) override {
    servers_.Pull(
        {rank_, options.step.value_or(step_), {items.begin(), items.end()}, std::move(done)});
  }
  void PushPull(absl::Span<const PushItem>, absl::Span<const PullItem>, const CallOptions&,
                Callback done) override {
    done(absl::UnimplementedError("not used by a rank"));
  }
  uint32_t rank() const override { return rank_; }
  uint64_t step() const override { return step_; }
  void SetLearningRates(absl::Span<const LearningRateItem>, const CallOptions&,
                        Callback done) override {
    done(absl::UnimplementedError("not used by a rank"));
  }
  void EndStep(const CallOptions&, Callback done) override {
    servers_.EndStep(rank_, step_++, std::move(done));
  }

 private:
  FakeServers& servers_;
  const uint32_t rank_;
  uint64_t step_;
};

// Answers once all ranks have called.
class FakeRendezvous final : public Rendezvous {
 public:
  FakeRendezvous(uint32_t ranks, uint64_t stop_after) : ranks_(ranks), stop_after_(stop_after) {}

  std::future<absl::Status> Barrier(const std::string& name, uint32_t parties,
                                    uint32_t party) override {
    MutexLock lock(mu_);
    EXPECT_EQ(parties, ranks_);
    std::vector<std::promise<absl::Status>>& waiting = barriers_[name];
    barrier_names_.insert(name);
    std::promise<absl::Status> promise;
    auto future = promise.get_future();
    if (broken_barriers_.contains(name)) {
      promise.set_value(absl::AbortedError("a party died"));
      return future;
    }
    waiting.push_back(std::move(promise));
    if (waiting.size() == ranks_) {
      for (auto& each : waiting) each.set_value(absl::OkStatus());
    }
    return future;
  }

  std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(
      ReportEvaluationRequest request) override {
    MutexLock lock(mu_);
    std::promise<absl::StatusOr<ReportEvaluationResponse>> promise;
    auto future = promise.get_future();
    const uint64_t evaluation = request.evaluation();
    if (request.arrives()) {
      auto& waiting = arrivals_[evaluation];
      waiting.push_back(std::move(promise));
      if (waiting.size() == ranks_) {
        for (auto& each : waiting) each.set_value(ReportEvaluationResponse());
      }
      return future;
    }
    if (arrivals_.contains(evaluation)) {
      EXPECT_EQ(arrivals_[evaluation].size(), ranks_) << "reported before all had arrived";
    }
    const bool last_part = request.part() + 1 == request.parts() &&
                           request.label() + 1 == std::max(request.labels(), 1u);
    reports_.push_back(std::move(request));
    if (last_part && restarts_ > 0) {
      --restarts_;
      promise.set_value(absl::FailedPreconditionError("send all of them again"));
      return future;
    }
    if (!last_part) {
      promise.set_value(ReportEvaluationResponse());
      return future;
    }
    auto& waiting = evaluations_[evaluation];
    waiting.push_back(std::move(promise));
    if (waiting.size() == ranks_) {
      ReportEvaluationResponse response;
      response.set_stop(evaluation == stop_after_);
      for (auto& each : waiting) each.set_value(response);
    }
    return future;
  }

  // Makes barriers of this name fail.
  void BreakBarrier(const std::string& name) {
    MutexLock lock(mu_);
    broken_barriers_.insert(name);
  }
  // Makes this many last parts reach a scheduler that lacks the earlier parts.
  void RestartScheduler(int times) {
    MutexLock lock(mu_);
    restarts_ = times;
  }
  std::vector<ReportEvaluationRequest> reports() {
    MutexLock lock(mu_);
    return reports_;
  }
  // The number of ranks that have arrived, by evaluation.
  std::map<uint64_t, size_t> arrivals() {
    MutexLock lock(mu_);
    std::map<uint64_t, size_t> counts;
    for (const auto& [evaluation, waiting] : arrivals_) counts[evaluation] = waiting.size();
    return counts;
  }
  std::set<std::string> barrier_names() {
    MutexLock lock(mu_);
    return barrier_names_;
  }

 private:
  const uint32_t ranks_;
  const uint64_t stop_after_;
  Mutex mu_;
  std::map<std::string, std::vector<std::promise<absl::Status>>> barriers_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> barrier_names_ PAWL_GUARDED_BY(mu_);
  std::map<uint64_t, std::vector<std::promise<absl::StatusOr<ReportEvaluationResponse>>>>
      arrivals_ PAWL_GUARDED_BY(mu_), evaluations_ PAWL_GUARDED_BY(mu_);
  std::vector<ReportEvaluationRequest> reports_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> broken_barriers_ PAWL_GUARDED_BY(mu_);
  int restarts_ PAWL_GUARDED_BY(mu_) = 0;
};

// Writes `samples` lines of two pairs each; the label depends on the line number.
inline std::string WriteFile(const std::string& name, int samples, bool distinct = false) {
  std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream file(path);
  for (int s = 0; s < samples; ++s) {
    file << (s % 3 == 0) << " qid:" << 100 + s % 5 << " " << 1 + s % 5 << ":"
         << (distinct ? 1 + s : 1) << " " << 10 + s % 7 << ":1\n";
  }
  return path;
}

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_TESTING_TRAINER_FAKES_H_
