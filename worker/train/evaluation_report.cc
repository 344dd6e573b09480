#include "worker/train/evaluation_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "client_lib/evaluation/auc.h"

namespace pawl {
namespace {

static_assert(std::endian::native == std::endian::little,
              "scores are copied to the wire as they lie in memory");

constexpr uint32_t kSignBit = uint32_t{1} << 31;

// A rounded score keeps its sign, its exponent and 11 bits of its fraction.
constexpr int kKeptBits = 20;
constexpr int kDroppedBits = 32 - kKeptBits;

// Maps a score to an integer that sorts like it; both zeros map to the same. REQUIRES: score is not
// NaN.
uint32_t OrderOf(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  return (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
}

float ScoreOf(uint32_t order) {
  return std::bit_cast<float>((order & kSignBit) != 0 ? order & ~kSignBit : ~order);
}

// REQUIRES: the samples ascend by their order.
AucCounter CountPairs(absl::Span<const RankedSample> samples) {
  AucCounter counter;
  for (size_t i = 0; i < samples.size();) {
    const uint32_t order = samples[i].order;
    uint64_t counts[2] = {0, 0};
    for (; i < samples.size() && samples[i].order == order; ++i)
      ++counts[samples[i].relevance > 0 ? 1 : 0];
    counter.Add(/*positives=*/counts[1], /*negatives=*/counts[0]);
  }
  return counter;
}

}  // namespace

absl::Status EvaluationReport::Add(const Batch& batch, const Predictions& predictions,
                                   absl::Span<const uint64_t> groups) {
  for (const float score : predictions.scores) {
    if (!std::isfinite(score)) {
      return absl::InternalError(absl::StrCat(
          "the model predicts ", score, ": the training has diverged; reduce the learning rate"));
    }
  }
  sums_ += predictions.sums;
  for (size_t s = 0; s < groups.size(); ++s) {
    float relevance = batch.labels[s * batch.label_count + label_];
    if (reported_ != ReportedScores::kNone) relevance = relevance > 0 ? 1 : 0;
    members_.push_back({groups[s], {OrderOf(predictions.scores[s]), relevance}});
  }
  if (reported_ == ReportedScores::kNone) return absl::OkStatus();
  for (size_t s = 0; s < predictions.scores.size(); ++s) {
    const uint32_t order = OrderOf(predictions.scores[s]);
    const bool positive = batch.labels[s * batch.label_count + label_] > 0;
    const uint64_t score = uint64_t{order} << 32 | (positive ? 1u : 0u);
    if (reported_ == ReportedScores::kExact) {
      scores_.push_back(score);
    } else {
      AddRounded(order, positive);
    }
  }
  return absl::OkStatus();
}

void EvaluationReport::AddRounded(uint32_t order, bool positive) {
  if (counts_.empty()) counts_.resize(size_t{2} << kKeptBits);
  ++counts_[size_t{2} * (order >> kDroppedBits) + (positive ? 1 : 0)];
}

template <typename Function>
void EvaluationReport::ForEachScore(const Function& add) {
  std::sort(scores_.begin(), scores_.end());
  for (size_t i = 0; i < scores_.size();) {
    const auto order = static_cast<uint32_t>(scores_[i] >> 32);
    uint32_t counts[2] = {0, 0};
    for (; i < scores_.size() && scores_[i] >> 32 == order; ++i) ++counts[scores_[i] & 1];
    add(order, counts[0], counts[1]);
  }
  for (size_t i = 0; i < counts_.size(); i += 2) {
    if (counts_[i] + uint64_t{counts_[i + 1]} == 0) continue;
    // The middle of the scores that are rounded to it.
    const uint32_t order = static_cast<uint32_t>(i / 2) << kDroppedBits | uint32_t{1}
                                                                              << (kDroppedBits - 1);
    add(order, counts_[i], counts_[i + 1]);
  }
  scores_.clear();
  counts_.clear();
}

void EvaluationReport::SetGroups(ReportEvaluationRequest& part) {
  std::sort(members_.begin(), members_.end(), [](const Member& a, const Member& b) {
    return std::tie(a.group, a.sample.order, a.sample.relevance) <
           std::tie(b.group, b.sample.order, b.sample.relevance);
  });
  uint64_t groups = 0, samples = 0, auc_sum = 0, ndcg_groups = 0, ndcg_sum = 0;
  NdcgCalculator calculator(ndcg_at_);
  std::vector<RankedSample> ranking;
  for (size_t i = 0; i < members_.size();) {
    const uint64_t group = members_[i].group;
    ranking.clear();
    for (; i < members_.size() && members_[i].group == group; ++i)
      ranking.push_back(members_[i].sample);
    if (const std::optional<double> ndcg = calculator.Ndcg(ranking); ndcg.has_value()) {
      ++ndcg_groups;
      ndcg_sum += static_cast<uint64_t>(std::ldexp(*ndcg, 32));
    }
    if (reported_ == ReportedScores::kNone) continue;
    const AucCounter counter = CountPairs(ranking);
    if (!counter.has_both_labels()) continue;
    ++groups;
    samples += counter.positives() + counter.negatives();
    auc_sum += counter.WeightedAuc();
  }
  members_.clear();
  part.set_groups(groups);
  part.set_group_samples(samples);
  part.set_group_auc_sum(auc_sum);
  part.set_ndcg_groups(ndcg_groups);
  part.set_ndcg_sum(ndcg_sum);
}

std::vector<ReportEvaluationRequest> EvaluationReport::TakeParts(
    const ReportEvaluationRequest& header) {
  std::vector<ReportEvaluationRequest> parts;
  const auto begin_part = [&]() -> ReportEvaluationRequest& {
    ReportEvaluationRequest& part = parts.emplace_back(header);
    part.set_part(static_cast<uint32_t>(parts.size() - 1));
    part.set_label(label_);
    return part;
  };
  ReportEvaluationRequest& first = begin_part();
  first.set_samples(sums_.samples);
  first.set_logloss_sum(sums_.logloss_sum);
  first.set_correct(sums_.correct);
  first.set_squared_error_sum(sums_.squared_error_sum);
  first.set_absolute_error_sum(sums_.absolute_error_sum);
  SetGroups(first);
  ForEachScore([&](uint32_t order, uint32_t negatives, uint32_t positives) {
    if (parts.back().scores().size() == kMaxScoresInPart * sizeof(float)) begin_part();
    const float score = ScoreOf(order);
    parts.back().mutable_scores()->append(reinterpret_cast<const char*>(&score), sizeof(score));
    parts.back().add_negatives(negatives);
    parts.back().add_positives(positives);
  });
  for (ReportEvaluationRequest& part : parts) {
    part.set_parts(static_cast<uint32_t>(parts.size()));
    part.set_rounded_scores(reported_ == ReportedScores::kRounded);
  }
  sums_ = EvaluationSums();
  return parts;
}

}  // namespace pawl
