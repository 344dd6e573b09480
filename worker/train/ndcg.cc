#include "worker/train/ndcg.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

double Gain(float relevance) {
  const float whole = std::floor(relevance);
  // Exact for whole numbers, as most relevances are.
  const double power = std::ldexp(1.0, static_cast<int>(whole));
  if (relevance == whole) return power - 1;
  const double rest = static_cast<double>(relevance) - static_cast<double>(whole);
  return power * DeterministicExp(rest * DeterministicLog(2.0)) - 1;
}

}  // namespace

void NdcgCalculator::PrepareDiscounts(size_t places) {
  for (size_t place = discounts_.size(); place < std::min(places, at_); ++place) {
    discounts_.push_back(DeterministicLog(2.0) / DeterministicLog(static_cast<double>(place) + 2));
  }
}

std::optional<double> NdcgCalculator::Ndcg(absl::Span<const RankedSample> samples) {
  PrepareDiscounts(samples.size());
  const size_t places = std::min(samples.size(), at_);

  best_.clear();
  for (const RankedSample& sample : samples) best_.push_back(sample.relevance);
  std::partial_sort(best_.begin(), best_.begin() + static_cast<std::ptrdiff_t>(places), best_.end(),
                    std::greater<>());
  double best = 0;
  for (size_t place = 0; place < places; ++place) best += Gain(best_[place]) * discounts_[place];
  if (best <= 0) return std::nullopt;

  double gain = 0;
  for (size_t place = 0; place < places;) {
    // The samples from the back that have this prediction.
    const size_t end = samples.size() - place;
    size_t begin = end;
    double gains = 0;
    while (begin > 0 && samples[begin - 1].order == samples[end - 1].order)
      gains += Gain(samples[--begin].relevance);
    const size_t ties = end - begin;
    double discount = 0;
    for (size_t i = place; i < std::min(place + ties, places); ++i) discount += discounts_[i];
    gain += gains * (discount / static_cast<double>(ties));
    place += ties;
  }
  return std::min(gain / best, 1.0);
}

}  // namespace pawl
