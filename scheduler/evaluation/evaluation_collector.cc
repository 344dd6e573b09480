#include "scheduler/evaluation/evaluation_collector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

static_assert(std::endian::native == std::endian::little,
              "scores are read as they lie on the wire");

using Score = EvaluationShare::Score;

std::string Where(const ReportEvaluationRequest& part) {
  return absl::StrCat("evaluation ", part.evaluation(), " rank ", part.rank(),
                      part.labels() > 1 ? absl::StrCat(" label ", part.label()) : "", " part ",
                      part.part());
}

absl::StatusOr<std::vector<Score>> ReadScores(const ReportEvaluationRequest& part, Loss loss) {
  const size_t count = part.scores().size() / sizeof(float);
  if (part.scores().size() % sizeof(float) != 0 ||
      static_cast<size_t>(part.positives_size()) != count ||
      static_cast<size_t>(part.negatives_size()) != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(part), ": scores has ", part.scores().size(), " bytes, positives ",
                     part.positives_size(), " and negatives ", part.negatives_size(),
                     " entries; 4 bytes and one of each a score"));
  }
  if (loss != LOGISTIC && count > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(part), ": scores is set; only logistic loss has scores"));
  }
  std::vector<Score> scores(count);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&scores[i].score, part.scores().data() + i * sizeof(float), sizeof(float));
    scores[i].positives = part.positives(static_cast<int>(i));
    scores[i].negatives = part.negatives(static_cast<int>(i));
    if (!std::isfinite(scores[i].score)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(part), ": scores[", i, "] is ", scores[i].score));
    }
    if (i > 0 && !(scores[i - 1].score < scores[i].score)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(part), ": scores[", i,
                       "] is not above the one before; they must be distinct and ascend"));
    }
  }
  return scores;
}

// A group has two samples at least for an AUC and one for an NDCG, and each of them is 1 at most.
absl::Status CheckGroups(const ReportEvaluationRequest& part) {
  if (part.group_samples() <= part.samples() && part.groups() <= part.group_samples() / 2 &&
      (part.groups() > 0) == (part.group_samples() > 0) &&
      absl::uint128(part.group_auc_sum()) <= absl::uint128(part.group_samples()) << 32 &&
      part.ndcg_groups() <= part.samples() &&
      absl::uint128(part.ndcg_sum()) <= absl::uint128(part.ndcg_groups()) << 32) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Where(part), ": groups is ", part.groups(), ", group_samples ", part.group_samples(),
      ", group_auc_sum ", part.group_auc_sum(), ", ndcg_groups ", part.ndcg_groups(),
      " and ndcg_sum ", part.ndcg_sum(), ", which is impossible for ", part.samples(), " samples"));
}

// REQUIRES: it is the first part, which has the sums of all parts.
absl::Status CheckSums(const ReportEvaluationRequest& part) {
  if (!(std::isfinite(part.logloss_sum()) && std::isfinite(part.squared_error_sum()) &&
        std::isfinite(part.absolute_error_sum()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(part), ": logloss_sum is ", part.logloss_sum(), ", squared_error_sum ",
        part.squared_error_sum(), " and absolute_error_sum ", part.absolute_error_sum(),
        "; the training has diverged, try a lower learning rate"));
  }
  return CheckGroups(part);
}

}  // namespace

absl::Status EvaluationCollector::CheckRank(const ReportEvaluationRequest& part) const {
  if (part.rank() >= ranks_) {
    return absl::OutOfRangeError(
        absl::StrCat(Where(part), ": rank is ", part.rank(), "; the job's last is ", ranks_ - 1));
  }
  if (part.evaluation() != evaluation_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(part), ": the evaluation being collected is ", evaluation_));
  }
  return absl::OkStatus();
}

absl::Status EvaluationCollector::CheckPlace(const ReportEvaluationRequest& part) const {
  const uint32_t labels = std::max(part.labels(), 1u);
  if (labels > kMaxLabels || part.label() >= labels) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(part), ": label is ", part.label(), " and labels ", part.labels(),
                     "; labels must be at most ", kMaxLabels, " and above label"));
  }
  if (part.parts() < 1 || part.parts() > kMaxEvaluationParts || part.part() >= part.parts()) {
    return absl::InvalidArgumentError(absl::StrCat(Where(part), ": parts is ", part.parts(),
                                                   "; it must be 1 to ", kMaxEvaluationParts,
                                                   " and above part"));
  }
  if (has_parts() && labels * ranks_ != shares_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        Where(part), ": labels is ", labels, ", but it was ", shares_.size() / ranks_, " before"));
  }
  return absl::OkStatus();
}

absl::Status EvaluationCollector::CheckOrder(const ReportEvaluationRequest& part,
                                             const Share& share) const {
  if (part.part() + 1 == part.parts() && share.parts.size() + 1 < part.parts()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(part), ": ", share.parts.size(), " of the ", part.part(),
                     " parts before it are here; send all of them again"));
  }
  // A rank sends its labels in order.
  if (part.part() + 1 == part.parts() && part.label() > 0 &&
      !shares_[size_t{part.label() - 1} * ranks_ + part.rank()].complete()) {
    return absl::FailedPreconditionError(absl::StrCat(
        Where(part), ": the parts of label ", part.label() - 1, " are not here; send all again"));
  }
  return absl::OkStatus();
}

absl::Status EvaluationCollector::CheckLast(const ReportEvaluationRequest& part, const Share& share,
                                            const std::vector<Score>& scores,
                                            uint64_t counted) const {
  const uint64_t samples = part.part() == 0 ? part.samples() : share.sums.samples;
  if (loss_ == LOGISTIC && counted != samples) {
    return absl::InvalidArgumentError(absl::StrCat(Where(part), ": the parts count ", counted,
                                                   " labels, but samples is ", samples));
  }
  // Part p's scores are below part p + 1's, so the concatenation is ascending.
  float last = -INFINITY;
  for (uint32_t p = 0; p < part.parts(); ++p) {
    const std::vector<Score>& piece = p == part.part() ? scores : share.parts.at(p);
    if (piece.empty()) continue;
    if (!(last < piece.front().score)) {
      return absl::InvalidArgumentError(absl::StrCat(Where(part), ": scores of part ", p,
                                                     " are not above those of the parts before"));
    }
    last = piece.back().score;
  }
  return absl::OkStatus();
}

absl::Status EvaluationCollector::Add(const ReportEvaluationRequest& part) {
  PAWL_RETURN_IF_ERROR(CheckRank(part));
  if (part.arrives()) {
    arrived_[part.rank()] = true;
    step_ = part.step();
    return absl::OkStatus();
  }
  PAWL_RETURN_IF_ERROR(CheckPlace(part));
  if (!has_parts()) shares_.resize(size_t{std::max(part.labels(), 1u)} * ranks_);
  Share& share = shares_[size_t{part.label()} * ranks_ + part.rank()];
  if (!share.parts.empty() && share.parts_total != part.parts()) {
    return absl::InvalidArgumentError(absl::StrCat(Where(part), ": parts is ", part.parts(),
                                                   ", but it was ", share.parts_total, " before"));
  }
  if (share.parts.contains(part.part())) return absl::OkStatus();
  PAWL_RETURN_IF_ERROR(CheckOrder(part, share));

  PAWL_ASSIGN_OR_RETURN(std::vector<Score> scores, ReadScores(part, loss_));
  if (scores_ + scores.size() > kMaxEvaluationScores) {
    return absl::ResourceExhaustedError(absl::StrCat(
        Where(part), ": more than ", kMaxEvaluationScores,
        " distinct scores of all labels in one evaluation; evaluate on fewer samples"));
  }
  if (has_parts() && part.rounded_scores() != rounded_scores_) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(part), ": rounded_scores is ", part.rounded_scores(),
                     ", and differs from the parts before; evaluation.max_exact_samples and the "
                     "evaluation data must be those of all ranks"));
  }
  if (part.part() == 0) PAWL_RETURN_IF_ERROR(CheckSums(part));
  uint64_t counted = share.positives_and_negatives;
  for (const Score& score : scores) counted += uint64_t{score.positives} + score.negatives;
  if (share.parts.size() + 1 == part.parts())
    PAWL_RETURN_IF_ERROR(CheckLast(part, share, scores, counted));

  scores_ += scores.size();
  share.scores += scores.size();
  share.positives_and_negatives = counted;
  share.parts_total = part.parts();
  share.parts[part.part()] = std::move(scores);
  share.sums.step = part.step();
  arrived_[part.rank()] = true;
  step_ = part.step();
  rounded_scores_ = part.rounded_scores();
  if (part.part() == 0) {
    share.sums.samples = part.samples();
    share.sums.logloss_sum = part.logloss_sum();
    share.sums.correct = part.correct();
    share.sums.squared_error_sum = part.squared_error_sum();
    share.sums.absolute_error_sum = part.absolute_error_sum();
    share.sums.groups = part.groups();
    share.sums.group_samples = part.group_samples();
    share.sums.group_auc_sum = part.group_auc_sum();
    share.sums.ndcg_groups = part.ndcg_groups();
    share.sums.ndcg_sum = part.ndcg_sum();
  }
  return absl::OkStatus();
}

bool EvaluationCollector::has_parts() const {
  return std::any_of(shares_.begin(), shares_.end(),
                     [](const Share& share) { return !share.parts.empty(); });
}

bool EvaluationCollector::empty() const {
  return std::find(arrived_.begin(), arrived_.end(), true) == arrived_.end();
}

bool EvaluationCollector::all_arrived() const {
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (!finished_[rank] && !arrived_[rank]) return false;
  }
  return std::find(finished_.begin(), finished_.end(), false) != finished_.end();
}

bool EvaluationCollector::complete() const {
  bool any = false;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (finished_[i % ranks_]) continue;
    if (!shares_[i].complete()) return false;
    any = true;
  }
  return any;
}

void EvaluationCollector::Forget(uint32_t rank) {
  arrived_[rank] = false;
  for (size_t i = rank; i < shares_.size(); i += ranks_) {
    Share& share = shares_[i];
    scores_ -= share.scores;
    share = Share();
  }
}

EvaluationInput EvaluationCollector::Take() {
  EvaluationInput first = TakeLabel(0);
  for (uint32_t label = 1; label < shares_.size() / ranks_; ++label)
    first.other_labels.push_back(TakeLabel(label));
  shares_.resize(ranks_);
  arrived_.assign(ranks_, false);
  ++evaluation_;
  scores_ = 0;
  return first;
}

EvaluationInput EvaluationCollector::TakeLabel(uint32_t label) {
  EvaluationInput input;
  input.evaluation = evaluation_;
  input.rounded_scores = rounded_scores_;
  for (Share& share : absl::MakeSpan(shares_).subspan(label * ranks_, ranks_)) {
    if (share.complete()) {
      EvaluationShare& rank = input.ranks.emplace_back(share.sums);
      for (auto& [part, piece] : share.parts) {
        rank.scores.insert(rank.scores.end(), piece.begin(), piece.end());
        piece = {};
      }
    }
    share = Share();
  }
  return input;
}

}  // namespace pawl
