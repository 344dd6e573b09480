#include "scheduler/evaluation/evaluations.h"

#include "absl/strings/str_cat.h"

namespace pawl {

const EvaluationResult* Evaluations::Find(uint64_t evaluation, uint64_t step) const {
  for (const EvaluationResult& result : results_) {
    if (result.evaluation() == evaluation && result.step() == step) return &result;
  }
  return nullptr;
}

absl::Status Evaluations::Add(const ReportEvaluationRequest& part) {
  if (computing_ == 0) {
    // The collector continues the stored numbers. The workers number by step: a job with other
    // data, or one that continues from another one's end, may use other numbers, and a rebuilt
    // scheduler knows none.
    if (!has_published_ && collector_.empty()) collector_.StartAt(part.evaluation());
    return collector_.Add(part);
  }
  if (part.evaluation() == computing_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("evaluation is ", part.evaluation(), ", but ",
                                                    computing_, " is being computed"));
}

bool Evaluations::IsLost(uint64_t evaluation) const {
  return results_are_lost_ && !collector_.empty() && evaluation < collector_.evaluation();
}

bool Evaluations::SkipTo(uint64_t evaluation) {
  if (!MayBeLost() || evaluation <= collector_.evaluation()) return false;
  collector_.Clear();
  return true;
}

bool Evaluations::SkipBefore(uint64_t steps) {
  if (!MayBeLost() || steps <= collector_.step()) return false;
  collector_.Clear();
  return true;
}

std::optional<EvaluationInput> Evaluations::Take() {
  if (!collector_.complete()) return std::nullopt;
  computing_ = collector_.evaluation();
  EvaluationInput input = collector_.Take();
  if (input.other_labels.empty()) return input;
  // Programs of users may report any number of labels, which have no names.
  const auto name = [this](size_t label) {
    return label < label_names_.size() ? label_names_[label] : absl::StrCat("label", label);
  };
  input.label = name(0);
  for (size_t i = 0; i < input.other_labels.size(); ++i) input.other_labels[i].label = name(i + 1);
  return input;
}

EarlyStoppingPolicy::Decision Evaluations::Judge(const EvaluationResult& result) const {
  EarlyStoppingPolicy policy = policy_;
  return early_stopping_ ? policy.Observe(result) : EarlyStoppingPolicy::Decision();
}

void Evaluations::Publish(const EvaluationResult& result) {
  has_published_ = true;
  results_are_lost_ = false;
  // Thousands of results with bins would not fit into a message.
  if (!results_.empty()) results_.back().clear_calibration_bins();
  results_.push_back(result);
  const size_t kept = kMaxEvaluationsKept / (1 + result.other_labels_size());
  while (results_.size() > kept) results_.pop_front();
  computing_ = 0;
  stopped_before_last_ = stop_training_;
  if (!early_stopping_) return;
  const EarlyStoppingPolicy::Decision decision = policy_.Observe(result);
  stop_training_ = stop_training_ || decision.stop;
  best_is_kept_ = best_is_kept_ || decision.improved;
}

std::optional<EvaluationResult> Evaluations::FinalResult() const {
  if (best_is_kept_) return policy_.best();
  if (results_.empty()) return std::nullopt;
  return results_.back();
}

StoredEvaluations Evaluations::Save() const {
  StoredEvaluations stored;
  for (const EvaluationResult& result : results_) *stored.add_results() = result;
  if (!results_are_lost_) stored.set_next(computing_ != 0 ? computing_ : collector_.evaluation());
  if (policy_.best().has_value()) *stored.mutable_best() = *policy_.best();
  stored.set_without_improvement(policy_.without_improvement());
  stored.set_stop_training(stop_training_);
  stored.set_best_is_kept(best_is_kept_);
  return stored;
}

StoredEvaluations Evaluations::SaveEnd(uint64_t step) const {
  StoredEvaluations stored = Save();
  // A job that starts from a checkpoint has lost nothing.
  if (stored.next() == 0) stored.set_next(1);
  if (results_.empty() || results_.back().step() != step) return stored;
  const EvaluationResult& last = results_.back();
  stored.set_next(last.evaluation());
  const bool is_best = stored.has_best() && stored.best().step() == step &&
                       stored.best().evaluation() == last.evaluation();
  if (is_best) return stored;
  stored.mutable_results()->RemoveLast();
  // Without an improvement, nothing else has changed.
  if (policy_.without_improvement() > 0)
    stored.set_without_improvement(policy_.without_improvement() - 1);
  stored.set_stop_training(stopped_before_last_);
  return stored;
}

void Evaluations::Restore(const StoredEvaluations& stored) {
  has_published_ = false;
  results_.assign(stored.results().begin(), stored.results().end());
  if (stored.next() != 0) collector_.StartAt(stored.next());
  results_are_lost_ = stored.next() == 0;
  // The former job had early stopping and this one has not: no best parameters are kept.
  if (!early_stopping_) return;
  best_is_kept_ = stored.best_is_kept();
  stop_training_ = stored.stop_training();
  policy_.Restore(stored.has_best() ? std::optional(stored.best()) : std::nullopt,
                  stored.without_improvement());
}

}  // namespace pawl
