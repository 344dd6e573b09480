#include "worker/train/evaluation_report.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

static_assert(std::endian::native == std::endian::little,
              "scores are copied to the wire as they lie in memory");

constexpr uint32_t kSignBit = uint32_t{1} << 31;

// Maps a score to an integer that sorts like it; both zeros map to the same. REQUIRES: score is not
// NaN.
uint32_t OrderOf(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  return (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
}

float ScoreOf(uint32_t order) {
  return std::bit_cast<float>((order & kSignBit) != 0 ? order & ~kSignBit : ~order);
}

}  // namespace

absl::Status EvaluationReport::Add(const Batch& batch, const Predictions& predictions) {
  for (const float score : predictions.scores) {
    if (!std::isfinite(score)) {
      return absl::InternalError(absl::StrCat(
          "the model predicts ", score, ": the training has diverged; reduce the learning rate"));
    }
  }
  sums_ += predictions.sums;
  if (!with_scores_) return absl::OkStatus();
  scores_.reserve(scores_.size() + predictions.scores.size());
  for (size_t s = 0; s < predictions.scores.size(); ++s) {
    scores_.push_back(uint64_t{OrderOf(predictions.scores[s])} << 32 |
                      (batch.labels[s] > 0 ? 1u : 0u));
  }
  return absl::OkStatus();
}

std::vector<ReportEvaluationRequest> EvaluationReport::TakeParts(
    const ReportEvaluationRequest& header) {
  std::sort(scores_.begin(), scores_.end());
  std::vector<ReportEvaluationRequest> parts;
  const auto begin_part = [&]() -> ReportEvaluationRequest& {
    ReportEvaluationRequest& part = parts.emplace_back(header);
    part.set_part(static_cast<uint32_t>(parts.size() - 1));
    return part;
  };
  ReportEvaluationRequest& first = begin_part();
  first.set_samples(sums_.samples);
  first.set_logloss_sum(sums_.logloss_sum);
  first.set_correct(sums_.correct);
  first.set_squared_error_sum(sums_.squared_error_sum);
  for (size_t i = 0; i < scores_.size();) {
    const uint32_t order = static_cast<uint32_t>(scores_[i] >> 32);
    uint32_t counts[2] = {0, 0};
    for (; i < scores_.size() && scores_[i] >> 32 == order; ++i) ++counts[scores_[i] & 1];
    if (parts.back().scores().size() == kMaxScoresInPart * sizeof(float)) begin_part();
    const float score = ScoreOf(order);
    parts.back().mutable_scores()->append(reinterpret_cast<const char*>(&score), sizeof(score));
    parts.back().add_negatives(counts[0]);
    parts.back().add_positives(counts[1]);
  }
  for (ReportEvaluationRequest& part : parts) part.set_parts(static_cast<uint32_t>(parts.size()));
  scores_.clear();
  sums_ = EvaluationSums();
  return parts;
}

}  // namespace pawl
