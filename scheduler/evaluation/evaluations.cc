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
  return results_are_lost_ && !has_published_ && !collector_.empty() &&
         evaluation < collector_.evaluation();
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

EarlyStoppingPolicy::Decision Evaluations::Observe(const EvaluationResult& result) {
  if (!early_stopping_) return {};
  const EarlyStoppingPolicy::Decision decision = policy_.Observe(result);
  stop_ = stop_ || decision.stop;
  return decision;
}

void Evaluations::Publish(const EvaluationResult& result) {
  has_published_ = true;
  // Thousands of results with bins would not fit into a message.
  if (!results_.empty()) results_.back().clear_calibration_bins();
  results_.push_back(result);
  const size_t kept = kMaxEvaluationsKept / (1 + result.other_labels_size());
  while (results_.size() > kept) results_.pop_front();
  computing_ = 0;
  stopped_before_last_ = stop_training_;
  stop_training_ = stop_;
  published_best_ = policy_.best();
  published_without_improvement_ = policy_.without_improvement();
  published_best_is_kept_ = best_is_kept_;
}

std::optional<EvaluationResult> Evaluations::FinalResult() const {
  if (best_is_kept_) return policy_.best();
  if (results_.empty()) return std::nullopt;
  return results_.back();
}

StoredEvaluations Evaluations::Save() const {
  StoredEvaluations stored;
  for (const EvaluationResult& result : results_) *stored.add_results() = result;
  if (!results_are_lost_ || has_published_)
    stored.set_next(computing_ != 0 ? computing_ : collector_.evaluation());
  if (published_best_.has_value()) *stored.mutable_best() = *published_best_;
  stored.set_without_improvement(published_without_improvement_);
  stored.set_stop_training(stop_training_);
  stored.set_best_is_kept(published_best_is_kept_);
  return stored;
}

StoredEvaluations Evaluations::SaveEnd(uint64_t step) const {
  StoredEvaluations stored = Save();
  // A job that starts from a checkpoint has lost nothing.
  if (stored.next() == 0) stored.set_next(1);
  if (results_.empty() || results_.back().step() != step) return stored;
  const EvaluationResult& last = results_.back();
  stored.set_next(last.evaluation());
  const bool is_best = published_best_.has_value() && published_best_->step() == step &&
                       published_best_->evaluation() == last.evaluation();
  if (is_best) return stored;
  stored.mutable_results()->RemoveLast();
  // Without an improvement, nothing else has changed.
  if (published_without_improvement_ > 0)
    stored.set_without_improvement(published_without_improvement_ - 1);
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
  if (stored.has_best()) published_best_ = stored.best();
  published_without_improvement_ = stored.without_improvement();
  published_best_is_kept_ = best_is_kept_ = stored.best_is_kept();
  stop_ = stop_training_ = stored.stop_training();
  policy_.Restore(published_best_, published_without_improvement_);
}

}  // namespace pawl
