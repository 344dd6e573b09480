// Normalized discounted cumulative gain (NDCG) of a ranking.
#ifndef PAWL_WORKER_TRAIN_NDCG_H_
#define PAWL_WORKER_TRAIN_NDCG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace pawl {

// The largest relevance: a gain stays exact in double precision.
inline constexpr float kMaxRelevance = 31;

struct RankedSample {
  // Larger for higher predictions.
  uint32_t order;
  // The label: 0 to kMaxRelevance.
  float relevance;
};

// Computes the NDCG of groups of samples, as Evaluation.group_by in proto/job.proto defines it.
// Samples of equal predictions share the mean of the discounts of their places, which is the mean
// NDCG over all orders of theirs (McSherry and Najork 2008, "Computing information retrieval
// performance measures efficiently in the presence of tied scores"). The result has the same bits
// on every processor. Not thread-safe.
class NdcgCalculator {
 public:
  // Counts the gains of the first `at` places. REQUIRES: at > 0.
  explicit NdcgCalculator(uint32_t at) : at_(at) {}

  // From 0 to 1; nullopt if no relevance is above 0. REQUIRES: the samples ascend by (order,
  // relevance).
  std::optional<double> Ndcg(absl::Span<const RankedSample> samples);

 private:
  // 1 / log2(place + 2) for the places from 0; at most at_ of them.
  void PrepareDiscounts(size_t places);

  const size_t at_;
  std::vector<double> discounts_;
  std::vector<float> best_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_NDCG_H_
