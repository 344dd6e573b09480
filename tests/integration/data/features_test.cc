// Jobs whose features have tables of their own, lists, weights and several labels.
#include <chrono>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tests/harness/reference/reference_trainer.h"
#include "tests/harness/runfile.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kJobTimeout{100};
constexpr std::chrono::seconds kStepTimeout{30};

// Users who have bought items, and whether they click and buy the next one: more often if they have
// had one of its kind, which is its number modulo 5.
void WriteVisits(const std::string& path, int samples, unsigned seed) {
  std::mt19937 random(seed);
  std::ofstream file(path);
  file << "click,buy,weight,user,item,history,age\n";
  for (int s = 0; s < samples; ++s) {
    const unsigned item = random() % 50;
    std::string history;
    bool has_kind = false;
    for (unsigned count = random() % 6; count > 0; --count) {
      const unsigned bought = random() % 50;
      has_kind = has_kind || bought % 5 == item % 5;
      absl::StrAppend(&history, history.empty() ? "" : "|", "i", bought);
    }
    const bool click = random() % 10 < (has_kind ? 8 : 2);
    const bool buy = click && random() % 10 < 4;
    file << click << "," << buy << "," << (buy ? "2" : "1") << ",u" << random() % 40 << ",i" << item
         << "," << history << "," << random() % 70 << "\n";
  }
}

class FeaturesTest : public TrainingTest {
 protected:
  void SetUp() override {
    const auto folder = MakeOutputFolder("visits");
    ASSERT_TRUE(folder.ok()) << folder.status();
    train_ = *folder + "/train.csv";
    eval_ = *folder + "/eval.csv";
    WriteVisits(train_, 3000, 1);
    WriteVisits(eval_, 500, 2);
  }

  // `labels`: the columns of the labels and weights.
  std::string JobText(const std::string& labels, const std::string& data,
                      const std::string& model) const {
    return absl::StrCat("name: 'features' seed: 7 data { format: CSV train: '", train_, "' eval: '",
                        eval_, "' ", data, " csv { ", labels,
                        " columns { name: 'user' categorical {} } "
                        "columns { name: 'item' categorical {} domain: 'item' } "
                        "columns { name: 'history' categorical {} domain: 'item' "
                        "list { separator: '|' max_length: 4 } } "
                        "columns { name: 'age' numeric { mean: 35 scale: 20 } } } }\n",
                        "model { ", model, " }\noptimizer { adagrad { learning_rate: 0.1 } }\n",
                        "batch_size: 100 partitions: 8 logical_workers: 2 epochs: 3\n");
  }

  // Trains with kills of a worker and a server, and returns the metrics. The result must have the
  // bits of the reference.
  nlohmann::json Train(const std::string& job, uint32_t workers) {
    const auto reference = TrainReference(job);
    EXPECT_TRUE(reference.ok()) << reference.status();
    ProcessClusterOptions options;
    options.job = job;
    options.servers = 2;
    options.workers = workers;
    options.fixed_ports = true;
    options.lease = std::chrono::milliseconds(2500);
    for (uint32_t i = 0; i < workers; ++i)
      options.flags[absl::StrCat("worker-", i)] = {"--step_delay_ms=20"};
    ProcessCluster* const cluster = StartCluster(options);
    EXPECT_NE(cluster, nullptr);
    if (cluster == nullptr || !reference.ok()) return {};
    for (const auto& [steps, victim] : {std::pair(10, "worker-0"), std::pair(30, "server-1")}) {
      const auto status = cluster->WaitFor(
          [steps = steps](const auto& now) {
            return now.steps() >= static_cast<uint64_t>(steps) || now.state() != RUNNING;
          },
          kStepTimeout);
      EXPECT_TRUE(status.ok()) << status.status();
      EXPECT_TRUE(cluster->Kill(victim).ok());
      EXPECT_TRUE(cluster->Restart(victim).ok());
    }
    const nlohmann::json metrics = CompletedMetrics(*cluster, kJobTimeout);
    EXPECT_EQ(metrics.value("steps", uint64_t{0}), reference->steps);
    EXPECT_EQ(metrics.value("digest", "none"), absl::StrFormat("%08x", reference->digest));
    return metrics;
  }
};

constexpr char kClicks[] = "columns { name: 'click' label {} }";
// Needs the history: neither the user nor the item alone tells.
constexpr char kDin[] =
    "din { dim: 8 attention { history: 'history' target: 'item' } attention_hidden: 8 "
    "hidden: 16 } features { table: 'item' columns: ['item', 'history'] dim: 6 "
    "optimizer { adagrad { learning_rate: 0.2 } } }";

TEST_F(FeaturesTest, AttentionToAHistoryKeepsTheBitsThroughKills) {
  const nlohmann::json metrics = Train(JobText(kClicks, "", kDin), 2);
  ASSERT_TRUE(metrics.contains("evaluations")) << metrics;
  EXPECT_GT(metrics["evaluations"].back().value("auc", 0.0), 0.6) << metrics["evaluations"];
}

TEST_F(FeaturesTest, StreamedListsKeepTheBitsThroughKills) {
  Train(JobText(kClicks, "window_samples: 400 block_bytes: 4096",
                "wide_deep { dim: 4 hidden: 8 } "
                "features { table: 'item' columns: 'item' dim: 3 } "
                "features { table: 'item' columns: 'history' dim: 3 pooling: MEAN } "
                "features { table: 'user' columns: 'user' dim: 5 pooling: MAX }"),
        1);
}

TEST_F(FeaturesTest, StreamedEvaluationsScoreAsThoseInMemory) {
  // The batches grow in the second pass, and the evaluations follow the passes.
  WriteVisits(eval_, 5000, 2);
  const auto job = [this](const std::string& streaming) {
    return JobText(kClicks, absl::StrCat("window_samples: 700 block_bytes: 4096 ", streaming),
                   "wide_deep { dim: 4 hidden: 8 }") +
           "batch_size_changes { epoch: 1 batch_size: 150 }";
  };
  const nlohmann::json streamed = Train(job("stream_eval: true"), 2);
  const nlohmann::json in_memory = Train(job(""), 1);
  EXPECT_EQ(streamed.value("steps", 0), 30 + 20 + 20);
  ASSERT_EQ(streamed.value("digest", ""), in_memory.value("digest", "none"));
  ASSERT_EQ(streamed["evaluations"].size(), 3u) << streamed;
  ASSERT_EQ(in_memory["evaluations"].size(), 3u) << in_memory;
  for (size_t i = 0; i < 3; ++i) {
    for (const char* score : {"step", "samples", "auc", "logloss", "calibration"}) {
      EXPECT_EQ(streamed["evaluations"][i][score], in_memory["evaluations"][i][score])
          << score << " of evaluation " << i;
    }
  }
}

TEST_F(FeaturesTest, SeveralLabelsAndWeightsKeepTheBitsThroughKills) {
  const nlohmann::json metrics =
      Train(JobText("columns { name: 'click' label {} } columns { name: 'buy' label {} } "
                    "columns { name: 'weight' weight {} }",
                    "", "mmoe { dim: 4 experts: 3 expert: 8 tower: 4 label_weights: [1, 0.5] }"),
            2);
  ASSERT_TRUE(metrics.contains("evaluations")) << metrics;
  const nlohmann::json& last = metrics["evaluations"].back();
  EXPECT_GT(last.value("auc", 0.0), 0.5) << last;
  EXPECT_GT(last.value("buy/auc", 0.0), 0.5) << last;
  EXPECT_NE(last.value("buy/auc", 0.0), last.value("auc", 0.0)) << last;
}

}  // namespace
}  // namespace pawl
