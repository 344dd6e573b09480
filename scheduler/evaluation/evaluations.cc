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
    // The next evaluation has the last one's number only after another job's end between two
    // pauses. If that end was at a pause, the number after it follows.
    const uint64_t next = collector_.evaluation();
    const bool end_was_a_pause =
        !results_.empty() && results_.back().evaluation() == next && part.evaluation() == next + 1;
    // If the collector counted on although the end was between two pauses (only the newest results
    // are kept, and the job's own were taken for the former job's), the step identifies the end.
    const bool end_was_between =
        !has_published_ && !results_.empty() && results_.back().evaluation() == part.evaluation() &&
        part.evaluation() + 1 == next && results_.back().step() < part.step();
    if ((end_was_a_pause || end_was_between) && collector_.empty())
      collector_.StartAt(part.evaluation());
    return collector_.Add(part);
  }
  if (part.evaluation() == computing_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("evaluation is ", part.evaluation(), ", but ",
                                                    computing_, " is being computed"));
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
  stored.set_next(computing_ != 0 ? computing_ : collector_.evaluation());
  if (published_best_.has_value()) *stored.mutable_best() = *published_best_;
  stored.set_without_improvement(published_without_improvement_);
  stored.set_stop_training(stop_training_);
  stored.set_best_is_kept(published_best_is_kept_);
  return stored;
}

void Evaluations::Restore(const StoredEvaluations& stored) {
  has_published_ = false;
  results_.assign(stored.results().begin(), stored.results().end());
  if (stored.next() != 0) collector_.StartAt(stored.next());
  // The former job had early stopping and this one has not: no best parameters are kept.
  if (!early_stopping_) return;
  if (stored.has_best()) published_best_ = stored.best();
  published_without_improvement_ = stored.without_improvement();
  published_best_is_kept_ = best_is_kept_ = stored.best_is_kept();
  stop_ = stop_training_ = stored.stop_training();
  policy_.Restore(published_best_, published_without_improvement_);
}

}  // namespace pawl
