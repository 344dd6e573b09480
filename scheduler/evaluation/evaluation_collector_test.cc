#include "scheduler/evaluation/evaluation_collector.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

struct Sample {
  float score;
  bool positive;
};

// The definition, pair by pair.
double AucByPairs(const std::vector<Sample>& samples) {
  double won = 0;
  double pairs = 0;
  for (const Sample& a : samples) {
    for (const Sample& b : samples) {
      if (!a.positive || b.positive) continue;
      ++pairs;
      won += a.score > b.score ? 1.0 : a.score == b.score ? 0.5 : 0.0;
    }
  }
  return won / pairs;
}

// The samples as the parts of one rank.
std::vector<ReportEvaluationRequest> Parts(const std::vector<Sample>& samples, uint32_t rank,
                                           uint32_t parts, uint64_t evaluation = 1) {
  std::map<float, std::pair<uint32_t, uint32_t>> counts;
  for (const Sample& sample : samples)
    ++(sample.positive ? counts[sample.score].first : counts[sample.score].second);
  std::vector<ReportEvaluationRequest> requests(parts);
  size_t index = 0;
  for (uint32_t part = 0; part < parts; ++part) {
    ReportEvaluationRequest& request = requests[part];
    request.set_evaluation(evaluation);
    request.set_step(100);
    request.set_rank(rank);
    request.set_part(part);
    request.set_parts(parts);
    if (part == 0) request.set_samples(samples.size());
  }
  for (const auto& [score, count] : counts) {
    ReportEvaluationRequest& request = requests[index++ * parts / counts.size()];
    request.mutable_scores()->append(reinterpret_cast<const char*>(&score), sizeof(score));
    request.add_positives(count.first);
    request.add_negatives(count.second);
  }
  return requests;
}

TEST(EvaluationCollectorTest, AucEqualsThePairwiseDefinition) {
  const uint32_t seed = 20240607;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    std::vector<Sample> all;
    EvaluationCollector collector(3, LOGISTIC);
    std::vector<ReportEvaluationRequest> requests;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      std::vector<Sample> samples(40);
      for (Sample& sample : samples) {
        sample.score = static_cast<float>(random() % 30) / 8 - 2;
        sample.positive = random() % 3 == 0;
      }
      all.insert(all.end(), samples.begin(), samples.end());
      for (ReportEvaluationRequest& part : Parts(samples, rank, 1 + rank)) requests.push_back(part);
    }
    std::shuffle(requests.begin(), requests.end(), random);
    // A rank's last part comes last.
    std::stable_partition(requests.begin(), requests.end(),
                          [](const ReportEvaluationRequest& request) {
                            return request.part() + 1 < request.parts();
                          });
    for (const ReportEvaluationRequest& request : requests) {
      EXPECT_FALSE(collector.complete());
      const absl::Status status = collector.Add(request);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(collector.complete());
    const EvaluationResult result = ComputeEvaluation(collector.Take(), LOGISTIC);
    EXPECT_DOUBLE_EQ(result.auc(), AucByPairs(all));
    EXPECT_EQ(result.samples(), 120u);
    EXPECT_EQ(result.step(), 100u);
  }
}

ReportEvaluationRequest Arrival(uint32_t rank, uint64_t evaluation = 1) {
  ReportEvaluationRequest request;
  request.set_evaluation(evaluation);
  request.set_step(100);
  request.set_rank(rank);
  request.set_arrives(true);
  return request;
}

TEST(EvaluationCollectorTest, AllHaveArrivedOnceEachRankIsOrReports) {
  EvaluationCollector collector(3, LOGISTIC);
  EXPECT_TRUE(collector.empty());
  EXPECT_EQ(collector.step(), 0u);
  ASSERT_TRUE(collector.Add(Arrival(0)).ok());
  ASSERT_TRUE(collector.Add(Arrival(0)).ok());
  EXPECT_FALSE(collector.empty());
  EXPECT_EQ(collector.step(), 100u);
  ASSERT_TRUE(collector.Add(Parts({{0.5f, true}, {0.2f, false}}, 1, 2)[0]).ok());
  EXPECT_FALSE(collector.all_arrived());
  EXPECT_EQ(collector.Add(Arrival(3)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(collector.Add(Arrival(2, 2)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(collector.all_arrived());
  ASSERT_TRUE(collector.Add(Arrival(2)).ok());
  EXPECT_TRUE(collector.all_arrived());
  EXPECT_FALSE(collector.complete());
  // Its next host is awaited, unless there is none.
  collector.Forget(2);
  EXPECT_FALSE(collector.all_arrived());
  collector.Finish(2);
  EXPECT_TRUE(collector.all_arrived());
  collector.Clear();
  EXPECT_TRUE(collector.empty());
  EXPECT_FALSE(collector.all_arrived());
  EXPECT_EQ(collector.evaluation(), 2u);
  for (const uint32_t rank : {0, 1}) collector.Finish(rank);
  EXPECT_FALSE(collector.all_arrived()) << "no rank takes part";
}

TEST(EvaluationCollectorTest, AucOfAKnownExample) {
  EvaluationCollector collector(1, LOGISTIC);
  // Pairs: (0.8 > 0.5), (0.5 = 0.5) half, (0.8 > 0.1), (0.5 > 0.1): 3.5 of 4.
  ASSERT_TRUE(
      collector.Add(Parts({{0.8f, true}, {0.5f, true}, {0.5f, false}, {0.1f, false}}, 0, 1)[0])
          .ok());
  EXPECT_DOUBLE_EQ(ComputeEvaluation(collector.Take(), LOGISTIC).auc(), 3.5 / 4);
}

TEST(EvaluationCollectorTest, HugeCountsDoNotOverflow) {
  EvaluationInput input;
  const uint32_t many = std::numeric_limits<uint32_t>::max();
  for (int rank = 0; rank < 4; ++rank) {
    EvaluationShare share;
    share.samples = 2ull * many;
    share.scores = {{0.25f, 0, many}, {0.75f, many, 0}};
    input.ranks.push_back(share);
  }
  EXPECT_EQ(ComputeEvaluation(input, LOGISTIC).auc(), 1.0);
}

TEST(EvaluationCollectorTest, OneLabelAloneHasNoAuc) {
  EvaluationCollector collector(1, LOGISTIC);
  ASSERT_TRUE(collector.Add(Parts({{0.8f, true}, {0.5f, true}}, 0, 1)[0]).ok());
  EXPECT_FALSE(ComputeEvaluation(collector.Take(), LOGISTIC).has_auc());
}

TEST(EvaluationCollectorTest, SumsAreInRankOrder) {
  const double sums[] = {1e16, 1.0, -1e16, 3.0};
  std::vector<uint32_t> order = {0, 1, 2, 3};
  const double expected = (((1e16 + 1.0) + -1e16) + 3.0) / 40;
  do {
    EvaluationCollector collector(4, SOFTMAX_CROSS_ENTROPY);
    for (const uint32_t rank : order) {
      ReportEvaluationRequest request;
      request.set_evaluation(1);
      request.set_rank(rank);
      request.set_parts(1);
      request.set_samples(10);
      request.set_correct(rank);
      request.set_logloss_sum(sums[rank]);
      ASSERT_TRUE(collector.Add(request).ok());
    }
    const EvaluationResult result = ComputeEvaluation(collector.Take(), SOFTMAX_CROSS_ENTROPY);
    EXPECT_EQ(result.logloss(), expected);
    EXPECT_EQ(result.accuracy(), 6.0 / 40);
    EXPECT_FALSE(result.has_auc());
    EXPECT_FALSE(result.has_rmse());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(EvaluationCollectorTest, SquaredLossHasOnlyRmse) {
  EvaluationCollector collector(1, SQUARED);
  ReportEvaluationRequest request;
  request.set_evaluation(1);
  request.set_parts(1);
  request.set_samples(4);
  request.set_squared_error_sum(36);
  ASSERT_TRUE(collector.Add(request).ok());
  const EvaluationResult result = ComputeEvaluation(collector.Take(), SQUARED);
  EXPECT_EQ(result.rmse(), 3);
  EXPECT_FALSE(result.has_logloss());
}

TEST(EvaluationCollectorTest, RepeatedPartCountsOnce) {
  EvaluationCollector collector(1, LOGISTIC);
  const auto parts = Parts({{0.8f, true}, {0.5f, false}, {0.9f, false}}, 0, 2);
  ASSERT_TRUE(collector.Add(parts[0]).ok());
  ASSERT_TRUE(collector.Add(parts[0]).ok());
  EXPECT_FALSE(collector.complete());
  ASSERT_TRUE(collector.Add(parts[1]).ok());
  EXPECT_EQ(ComputeEvaluation(collector.Take(), LOGISTIC).auc(), 0.5);
}

TEST(EvaluationCollectorTest, TakeReturnsTheReports) {
  EvaluationCollector collector(1, LOGISTIC);
  ReportEvaluationRequest part = Parts({{0.8f, true}, {0.5f, false}}, 0, 1)[0];
  part.set_rounded_scores(true);
  part.set_groups(1);
  part.set_group_samples(2);
  part.set_group_auc_sum(uint64_t{1} << 32);
  part.set_ndcg_groups(2);
  part.set_ndcg_sum(uint64_t{3} << 31);
  ASSERT_TRUE(collector.Add(part).ok());
  const EvaluationResult result = ComputeEvaluation(collector.Take(), LOGISTIC);
  EXPECT_EQ(result.auc_error_max(), 0);
  EXPECT_TRUE(result.has_auc_error_max());
  EXPECT_EQ(result.gauc(), 0.5);
  EXPECT_EQ(result.groups(), 1u);
  EXPECT_EQ(result.ndcg(), 0.75);
  EXPECT_EQ(result.ndcg_groups(), 2u);
}

TEST(EvaluationCollectorTest, NextEvaluationStartsAfterTake) {
  EvaluationCollector collector(1, LOGISTIC);
  const std::vector<Sample> samples = {{0.8f, true}, {0.5f, false}};
  EXPECT_EQ(collector.Add(Parts(samples, 0, 1, 2)[0]).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(collector.Add(Parts(samples, 0, 1, 1)[0]).ok());
  EXPECT_EQ(collector.Take().evaluation, 1u);
  EXPECT_FALSE(collector.complete());
  EXPECT_EQ(collector.evaluation(), 2u);
  ASSERT_TRUE(collector.Add(Parts(samples, 0, 1, 2)[0]).ok());
  EXPECT_TRUE(collector.complete());
}

TEST(EvaluationCollectorTest, FinishedRankIsNotWaitedFor) {
  EvaluationCollector collector(3, LOGISTIC);
  const std::vector<Sample> samples = {{0.8f, true}, {0.5f, false}};
  ASSERT_TRUE(collector.Add(Parts(samples, 0, 1)[0]).ok());
  ASSERT_TRUE(collector.Add(Parts(samples, 1, 2)[0]).ok());
  ASSERT_TRUE(collector.Add(Parts(samples, 2, 1)[0]).ok());
  collector.Finish(0);
  EXPECT_FALSE(collector.complete());
  collector.Finish(1);
  ASSERT_TRUE(collector.complete());
  const EvaluationResult result = ComputeEvaluation(collector.Take(), LOGISTIC);
  EXPECT_EQ(result.samples(), 4u) << "rank 0 had sent all parts, rank 1 had not";
  EXPECT_EQ(result.step(), 100u);
  EXPECT_EQ(result.auc(), 1.0);
  EXPECT_FALSE(collector.complete());
  ASSERT_TRUE(collector.Add(Parts(samples, 2, 1, /*evaluation=*/2)[0]).ok());
  EXPECT_TRUE(collector.complete());
  collector.Finish(2);
  EXPECT_FALSE(collector.complete()) << "no rank wants the result";
}

TEST(EvaluationCollectorTest, PartsToComeTakeNoMemory) {
  EvaluationCollector collector(64, LOGISTIC);
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = used();
  for (uint32_t rank = 0; rank < 64; ++rank) {
    ReportEvaluationRequest request;
    request.set_evaluation(1);
    request.set_rank(rank);
    request.set_parts(kMaxEvaluationParts);
    ASSERT_TRUE(collector.Add(request).ok());
  }
  EXPECT_LT(used(), before + (size_t{1} << 20));
}

TEST(EvaluationCollectorTest, ImpossiblePartsAreRefusedAndChangeNothing) {
  EvaluationCollector collector(2, LOGISTIC);
  const auto good = Parts({{0.8f, true}, {0.5f, false}}, 0, 1)[0];
  const auto refused = [&](auto change,
                           absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    ReportEvaluationRequest bad = good;
    change(bad);
    EXPECT_EQ(collector.Add(bad).code(), code) << bad.DebugString();
  };
  refused([](auto& part) { part.set_rank(2); }, absl::StatusCode::kOutOfRange);
  refused([](auto& part) { part.set_parts(0); });
  refused([](auto& part) { part.set_part(1); });
  refused([](auto& part) { part.set_parts(kMaxEvaluationParts + 1); });
  refused([](auto& part) { part.mutable_scores()->pop_back(); });
  refused([](auto& part) { part.add_positives(1); });
  refused([](auto& part) { part.clear_negatives(); });
  refused([](auto& part) { part.set_samples(3); });
  refused([](auto& part) { part.set_logloss_sum(std::nan("")); });
  refused([](auto& part) { part.set_absolute_error_sum(std::nan("")); });
  refused([](auto& part) { part.set_groups(1); });
  refused([](auto& part) {
    part.set_groups(2);
    part.set_group_samples(2);
  });
  refused([](auto& part) {
    part.set_groups(1);
    part.set_group_samples(3);
  });
  refused([](auto& part) {
    part.set_groups(1);
    part.set_group_samples(2);
    part.set_group_auc_sum((uint64_t{2} << 32) + 1);
  });
  refused([](auto& part) { part.set_ndcg_groups(3); });
  refused([](auto& part) {
    part.set_ndcg_groups(1);
    part.set_ndcg_sum((uint64_t{1} << 32) + 1);
  });
  refused([](auto& part) {
    const float nan = std::nanf("");
    part.mutable_scores()->replace(0, 4, reinterpret_cast<const char*>(&nan), 4);
  });
  refused(
      [](auto& part) { part.set_scores(part.scores().substr(4) + part.scores().substr(0, 4)); });
  refused([](auto& part) { part.set_scores(part.scores().substr(4) + part.scores().substr(4)); });
  EXPECT_TRUE(collector.Add(good).ok());
  ReportEvaluationRequest other = Parts({{0.8f, true}, {0.5f, false}}, 1, 1)[0];
  other.set_rounded_scores(true);
  EXPECT_EQ(collector.Add(other).code(), absl::StatusCode::kInvalidArgument)
      << "rank 0 did not round";
  other.set_rounded_scores(false);
  EXPECT_TRUE(collector.Add(other).ok());
  EXPECT_EQ(ComputeEvaluation(collector.Take(), LOGISTIC).samples(), 4u);
}

TEST(EvaluationCollectorTest, LabelsAreCollectedApart) {
  EvaluationCollector collector(2, LOGISTIC);
  const std::vector<Sample> first = {{0.1f, false}, {0.2f, true}, {0.3f, false}};
  const std::vector<Sample> second = {{0.1f, true}, {0.2f, true}, {0.3f, false}};
  const auto add = [&](uint32_t rank, uint32_t label, uint32_t parts) {
    for (ReportEvaluationRequest& part : Parts(label == 0 ? first : second, rank, parts)) {
      part.set_label(label);
      part.set_labels(2);
      const absl::Status status = collector.Add(part);
      ASSERT_TRUE(status.ok()) << status;
    }
  };
  add(0, 0, 1);
  add(0, 1, 2);
  add(1, 0, 1);
  EXPECT_FALSE(collector.complete());
  ReportEvaluationRequest odd = Parts(first, 1, 1)[0];
  odd.set_label(2);
  odd.set_labels(2);
  EXPECT_EQ(collector.Add(odd).code(), absl::StatusCode::kInvalidArgument) << "no such label";
  odd.set_labels(3);
  EXPECT_EQ(collector.Add(odd).code(), absl::StatusCode::kInvalidArgument) << "two labels before";
  collector.Forget(0);
  add(1, 1, 1);
  EXPECT_FALSE(collector.complete());
  ReportEvaluationRequest second_only = Parts(second, 0, 1)[0];
  second_only.set_label(1);
  second_only.set_labels(2);
  EXPECT_EQ(collector.Add(second_only).code(), absl::StatusCode::kFailedPrecondition)
      << "the rank must send the first label again";
  add(0, 0, 1);
  add(0, 1, 1);
  ASSERT_TRUE(collector.complete());
  EvaluationInput input = collector.Take();
  ASSERT_EQ(input.other_labels.size(), 1u);
  input.other_labels[0].label = "buy";
  const EvaluationResult result = ComputeEvaluation(input, LOGISTIC);
  ASSERT_EQ(result.other_labels_size(), 1);
  std::vector<Sample> twice = first;
  twice.insert(twice.end(), first.begin(), first.end());
  EXPECT_DOUBLE_EQ(result.auc(), AucByPairs(twice));
  twice = second;
  twice.insert(twice.end(), second.begin(), second.end());
  EXPECT_DOUBLE_EQ(result.other_labels(0).auc(), AucByPairs(twice));
  EXPECT_EQ(result.other_labels(0).label(), "buy");
  // The next evaluation starts afresh.
  EXPECT_TRUE(collector.empty());
  ReportEvaluationRequest next = Parts(first, 0, 1, /*evaluation=*/2)[0];
  EXPECT_TRUE(collector.Add(next).ok());
  EXPECT_FALSE(collector.complete());
}

TEST(EvaluationCollectorTest, PartsWhoseScoresOverlapAreRefused) {
  EvaluationCollector collector(1, LOGISTIC);
  auto parts = Parts({{0.1f, true}, {0.2f, false}, {0.3f, true}, {0.4f, false}}, 0, 2);
  std::swap(*parts[0].mutable_scores(), *parts[1].mutable_scores());
  ASSERT_TRUE(collector.Add(parts[0]).ok());
  EXPECT_EQ(collector.Add(parts[1]).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(collector.complete());
}

}  // namespace
}  // namespace pawl
