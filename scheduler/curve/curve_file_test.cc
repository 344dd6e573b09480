#include "scheduler/curve/curve_file.h"

#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

// The lines that parse.
std::vector<nlohmann::json> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) lines.push_back(std::move(json));
  }
  return lines;
}

CurvePoint PointAt(uint64_t step) {
  CurvePoint point;
  point.step = step;
  point.samples = 10 * step;
  point.train_s = 0.5;
  point.values = {{"train/loss", 0.25}, {"tables/rows", NAN}};
  return point;
}

TEST(CurveFileTest, EachPointIsALine) {
  const std::string path = PathOf("curve.jsonl");
  auto file = CurveFile::Open(Env::Real(), path, /*continues=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Add(1700000000.5, PointAt(3)).ok());
  CurvePoint evaluation;
  evaluation.kind = CurvePoint::Kind::kEvaluation;
  evaluation.step = 4;
  evaluation.unix_s = 1700000001.25;
  evaluation.values = {{"eval/auc", 0.75}, {"eval/buy/auc", 0.5}};
  ASSERT_TRUE((*file)->Add(1700000003, evaluation).ok());
  CurvePoint metrics;
  metrics.kind = CurvePoint::Kind::kMetrics;
  metrics.step = 5;
  metrics.values = {{"metrics/val/loss", 0.5}, {"metrics/step", 7}};
  ASSERT_TRUE((*file)->Add(1700000004, metrics).ok());
  const std::vector<nlohmann::json> lines = Lines(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], nlohmann::json::parse(R"({"kind": "train", "time": 1700000000.5,
      "train_s": 0.5, "step": 3, "samples": 30, "loss": 0.25, "rows": null})"));
  EXPECT_EQ(lines[1], nlohmann::json::parse(R"({"kind": "eval", "time": 1700000001.25,
      "train_s": 0.0, "step": 4, "samples": 0, "auc": 0.75, "buy/auc": 0.5})"));
  EXPECT_EQ(lines[2], nlohmann::json::parse(R"({"kind": "metrics", "time": 1700000004.0,
      "train_s": 0.0, "step": 5, "samples": 0, "metrics": {"val/loss": 0.5, "step": 7.0}})"));
}

TEST(CurveFileTest, ContinuedFileKeepsItsLinesAfterATornOne) {
  const std::string path = PathOf("continued.jsonl");
  std::ofstream(path) << "{\"step\": 1}\n{\"step\": 2";
  auto file = CurveFile::Open(Env::Real(), path, /*continues=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Add(5, PointAt(3)).ok());
  const std::vector<nlohmann::json> lines = Lines(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[1]["step"], 3);
}

TEST(CurveFileTest, LatestEvaluationOfTheFileIsKnown) {
  const std::string path = PathOf("evaluated.jsonl");
  const auto last = [&](bool continues) {
    return (*CurveFile::Open(Env::Real(), path, continues))->last_evaluation_step();
  };
  EXPECT_EQ(last(/*continues=*/true), 0u) << "there was no file";
  {
    const auto file = *CurveFile::Open(Env::Real(), path, /*continues=*/false);
    CurvePoint evaluation;
    evaluation.kind = CurvePoint::Kind::kEvaluation;
    for (const uint64_t step : {10, 20}) {
      evaluation.step = step;
      ASSERT_TRUE(file->Add(1, evaluation).ok());
      ASSERT_TRUE(file->Add(1, PointAt(step + 5)).ok());
    }
  }
  std::ofstream(path, std::ios::app) << R"({"kind":"eval","time":1,"st)";
  EXPECT_EQ(last(/*continues=*/true), 20u);
  std::ofstream(path, std::ios::app) << std::string(kCurveTailBytes, '\n');
  EXPECT_EQ(last(/*continues=*/true), std::nullopt);
  EXPECT_EQ(last(/*continues=*/false), 0u);
}

TEST(CurveFileTest, NewJobReplacesTheFile) {
  const std::string path = PathOf("replaced.jsonl");
  std::ofstream(path) << "{\"step\": 1}\n";
  auto file = CurveFile::Open(Env::Real(), path, /*continues=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Add(5, PointAt(3)).ok());
  EXPECT_EQ(Lines(path).size(), 1u);
}

TEST(CurveFileTest, FileThatCannotBeMadeIsNamed) {
  const auto file = CurveFile::Open(Env::Real(), "/proc/pawl/curve.jsonl", /*continues=*/true);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(std::string(file.status().message()).find("/proc/pawl/curve.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace pawl
