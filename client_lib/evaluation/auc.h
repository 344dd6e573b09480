// The area under the ROC curve (AUC) from counts of labels.
#ifndef PAWL_CLIENT_LIB_EVALUATION_AUC_H_
#define PAWL_CLIENT_LIB_EVALUATION_AUC_H_

#include <cstdint>

#include "absl/numeric/int128.h"

namespace pawl {

// Counts the pairs of a positive and a negative sample in integers, so the result is exact and
// depends on nothing but the samples. A pair of equal scores counts half. Not thread-safe.
class AucCounter {
 public:
  // Adds all samples of one score. Scores ascend from call to call. REQUIRES: fewer than 2^63
  // samples of each label in total.
  void Add(uint64_t positives, uint64_t negatives) {
    const absl::uint128 ties = absl::uint128(positives) * negatives;
    twice_won_ += absl::uint128(positives) * negatives_ * 2 + ties;
    ties_ += ties;
    positives_ += positives;
    negatives_ += negatives;
  }

  uint64_t positives() const { return positives_; }
  uint64_t negatives() const { return negatives_; }
  bool has_both_labels() const { return positives_ > 0 && negatives_ > 0; }

  // The share of the pairs in which the positive sample has the higher score. REQUIRES:
  // has_both_labels().
  double Auc() const {
    return static_cast<double>(twice_won_) / static_cast<double>(twice_pairs());
  }

  // If different scores may have been added as one: how far Auc() can be from the AUC of the scores
  // themselves. REQUIRES: has_both_labels().
  double MaxError() const {
    return static_cast<double>(ties_) / static_cast<double>(twice_pairs());
  }

  // The AUC times the number of samples, in units of 2^-32, rounded down. REQUIRES:
  // has_both_labels(); fewer than 2^32 samples.
  uint64_t WeightedAuc() const {
    const absl::uint128 weighted = (twice_won_ * (positives_ + negatives_)) << 32;
    return static_cast<uint64_t>(weighted / twice_pairs());
  }

 private:
  absl::uint128 twice_pairs() const { return absl::uint128(positives_) * negatives_ * 2; }

  absl::uint128 twice_won_ = 0;
  absl::uint128 ties_ = 0;
  uint64_t positives_ = 0;
  uint64_t negatives_ = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_EVALUATION_AUC_H_
