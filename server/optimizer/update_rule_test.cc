#include "server/optimizer/update_rule.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/optimizer/math/isa.h"
#include "server/optimizer/rules.h"
#include "server/optimizer/testing/scalar_reference.h"

namespace pawl {
namespace {

Optimizer Parse(const std::string& text) {
  Optimizer spec;
  if (!google::protobuf::TextFormat::ParseFromString(text, &spec))
    ADD_FAILURE() << "not an Optimizer: " << text;
  return spec;
}

// One case of expected_updates.py, which describes the members.
struct Expected {
  std::string spec;
  size_t width;
  float scale;
  std::vector<double> steps;
  std::vector<double> weights;
  std::vector<double> gradients;
  std::vector<double> weights_after;
  std::vector<double> slots_after;
};

std::vector<double> ReadNumbers(std::istream& lines) {
  std::string line;
  std::getline(lines, line);
  std::istringstream words(line);
  return {std::istream_iterator<double>(words), std::istream_iterator<double>()};
}

std::vector<Expected> ExpectedUpdates() {
  std::vector<Expected> all;
  std::ifstream lines("server/optimizer/expected_updates.txt");
  Expected expected;
  while (std::getline(lines, expected.spec)) {
    const std::vector<double> width_and_scale = ReadNumbers(lines);
    expected.width = static_cast<size_t>(width_and_scale.at(0));
    expected.scale = static_cast<float>(width_and_scale.at(1));
    expected.steps = ReadNumbers(lines);
    expected.weights = ReadNumbers(lines);
    expected.gradients = ReadNumbers(lines);
    expected.weights_after = ReadNumbers(lines);
    expected.slots_after = ReadNumbers(lines);
    all.push_back(expected);
  }
  return all;
}

// Within 1e-5 of the value, or of `least` if the value is smaller.
void ExpectClose(const std::vector<float>& actual, const double* expected, double least,
                 const std::string& what) {
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-5 * std::max(std::fabs(expected[i]), least))
        << what << ", element " << i;
  }
}

TEST(UpdateRuleTest, AgreesWithDoublePrecisionFormulas) {
  const std::vector<Expected> all = ExpectedUpdates();
  ASSERT_GT(all.size(), 100u);
  for (const Expected& expected : all) {
    const auto rule = UpdateRule::Create(Parse(expected.spec));
    ASSERT_TRUE(rule.ok()) << rule.status();
    const size_t width = expected.width;
    const size_t slot_count = (*rule)->SlotCount(width);
    ASSERT_EQ(slot_count * expected.steps.size(), expected.slots_after.size()) << expected.spec;
    std::vector<float> weights(expected.weights.begin(), expected.weights.end());
    std::vector<float> slots(slot_count);
    (*rule)->InitializeSlots(width, slots.data());
    for (size_t t = 0; t < expected.steps.size(); ++t) {
      const std::vector<float> gradient(&expected.gradients[t * width],
                                        &expected.gradients[t * width] + width);
      (*rule)->Apply({static_cast<uint64_t>(expected.steps[t]), t}, expected.scale, gradient.data(),
                     width, 0, width, weights.data(), slots.data());
      // Terms of opposite signs cancel in weights and averages, most strongly in FTRL's difference
      // of two roots.
      const double least = expected.spec.rfind("ftrl", 0) == 0 ? 0.1 : 0.01;
      const std::string what = expected.spec + ", update " + std::to_string(t);
      ExpectClose(weights, &expected.weights_after[t * width], least, what + ", weights");
      ExpectClose(slots, expected.slots_after.data() + t * slot_count, least, what + ", slots");
    }
  }
}

const char* const kSpecs[] = {
    "sgd { learning_rate: 0.1 }",
    "momentum { learning_rate: 0.1 }",
    "momentum { learning_rate: 0.1 momentum: 0.7 nesterov: true }",
    "adagrad { learning_rate: 0.1 initial_accumulator: 0.1 }",
    "rowwise_adagrad { learning_rate: 0.1 initial_accumulator: 0.1 }",
    "rmsprop { learning_rate: 0.01 }",
    "adam { learning_rate: 0.001 }",
    "adamw { learning_rate: 0.001 }",
    "ftrl { learning_rate: 0.1 l1: 0.3 l2: 0.01 }",
};
const char* const kCommons[] = {
    "",
    "clip_value: 0.5",
    "clip_norm: 1",
    "l2: 0.01",
    "weight_decay: 0.1",
    ("clip_value: 0.5 clip_norm: 1 l1: 0.001 l2: 0.01 schedule { cosine { total_steps: 5000 } "
     "warmup_steps: 1000 }"),
};

std::vector<Optimizer> AllSpecs() {
  std::vector<Optimizer> specs;
  for (const char* spec : kSpecs) {
    for (const char* common : kCommons) {
      Optimizer parsed = Parse(std::string(spec) + " " + common);
      const bool decays = parsed.weight_decay() != 0;
      if (decays && (parsed.has_ftrl() || parsed.has_adamw())) continue;
      if (parsed.has_ftrl()) {
        parsed.clear_l1();
        parsed.clear_l2();
      }
      specs.push_back(parsed);
    }
  }
  specs.push_back(Parse("assign {}"));
  return specs;
}

// Numbers of both signs and many magnitudes, including zeros of both signs and subnormals.
std::vector<float> MixedNumbers(size_t count, std::mt19937& random) {
  std::vector<float> numbers(count);
  for (float& x : numbers) {
    x = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 1e-3f;
    switch (random() % 16) {
      case 0:
        x = 0.0f;
        break;
      case 1:
        x = -0.0f;
        break;
      case 2:
        x *= 1e-38f;
        break;
      case 3:
        x *= 1e6f;
        break;
      default:
        break;
    }
  }
  return numbers;
}

// Makes some updates of elements [begin, begin + count) of a row with a rule and with the scalar
// reference. The rows must be equal in every bit, inside and outside of the range.
void ExpectSameBits(const Optimizer& spec, Isa isa, size_t width, size_t begin, size_t count,
                    size_t misalignment, uint32_t seed) {
  const auto rule = MakeUpdateRule(spec, isa);
  ASSERT_TRUE(rule.ok()) << rule.status();
  std::mt19937 random(seed);
  const size_t slot_count = (*rule)->SlotCount(width);
  // One allocation with nothing after it, so that AddressSanitizer detects any access beyond a row.
  std::vector<float> row = MixedNumbers(width + slot_count, random);
  (*rule)->InitializeSlots(width, row.data() + width);
  std::vector<float> reference = row;
  std::vector<char> bytes(misalignment + count * sizeof(float));
  const std::vector<uint64_t> all_prior_updates = {0, 5000, 1, 2, 700, 100000};
  for (size_t t = 0; t < (count > 1000 ? 2 : all_prior_updates.size()); ++t) {
    const uint64_t prior_updates = all_prior_updates[t];
    const std::vector<float> gradient = MixedNumbers(count, random);
    if (count > 0) std::memcpy(bytes.data() + misalignment, gradient.data(), count * sizeof(float));
    const UpdatePosition position = {3 * prior_updates, prior_updates};
    (*rule)->Apply(position, 0.75f, bytes.data() + misalignment, width, begin, count, row.data(),
                   row.data() + width);
    ScalarApply(spec, position, 0.75f, gradient.data(), width, begin, count, reference.data(),
                reference.data() + width);
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_EQ(std::memcmp(&row[i], &reference[i], sizeof(float)), 0)
          << spec.ShortDebugString() << "\n"
          << IsaName(isa) << ", width " << width << ", [" << begin << ", " << begin + count
          << "), float " << i << " of weights and slots: " << row[i] << ", not " << reference[i];
    }
  }
}

class UpdateRuleIsaTest : public testing::TestWithParam<Isa> {};

TEST_P(UpdateRuleIsaTest, RowsEqualTheScalarReference) {
  for (const Optimizer& spec : AllSpecs()) {
    for (size_t width = 1; width <= 67; ++width) {
      ExpectSameBits(spec, GetParam(), width, 0, width, width % 4, static_cast<uint32_t>(width));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(UpdateRuleIsaTest, BlocksEqualTheScalarReference) {
  const std::vector<Optimizer> specs = AllSpecs();
  // For each optimizer the first and the last spec: everything switched off, and everything on.
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i % std::size(kCommons) != 0 && i % std::size(kCommons) != std::size(kCommons) - 1)
      continue;
    ExpectSameBits(specs[i], GetParam(), 65536 + 3, 0, 65536 + 3, 1, 5);
    if (HasFatalFailure()) return;
  }
}

TEST_P(UpdateRuleIsaTest, PartialUpdatesEqualTheScalarReference) {
  for (const Optimizer& spec : AllSpecs()) {
    if (!(*MakeUpdateRule(spec, GetParam()))->IsElementwise()) continue;
    for (const size_t begin : {0, 1, 7, 16, 50, 99}) {
      for (const size_t count : {0, 1, 3, 17, 49}) {
        if (begin + count > 100) continue;
        ExpectSameBits(spec, GetParam(), 100, begin, count, begin % 4,
                       static_cast<uint32_t>(begin * 100 + count));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A run of rows with a repeated one equals updates one by one.
TEST_P(UpdateRuleIsaTest, RunsOfRowsEqualSingleRows) {
  for (const Optimizer& spec : AllSpecs()) {
    const auto rule = *MakeUpdateRule(spec, GetParam());
    for (const size_t width : {1, 2, 15, 16, 17, 32, 67}) {
      std::mt19937 random(static_cast<uint32_t>(width));
      const std::vector<size_t> order = {2, 0, 1, 0, 3};
      const std::vector<uint32_t> counts = {0, 5, 2000, UINT32_MAX};
      const size_t slot_count = rule->SlotCount(width);
      const size_t floats = width + slot_count;
      std::vector<std::vector<float>> rows;
      std::vector<std::vector<float>> single;
      for (const uint32_t count : counts) {
        rows.push_back(MixedNumbers(floats, random));
        rule->InitializeSlots(width, rows.back().data() + width);
        single.push_back(rows.back());
        if (!rule->CountsUpdates()) continue;
        rows.back().resize(floats + 1);
        std::memcpy(&rows.back()[floats], &count, sizeof(count));
      }
      std::vector<uint32_t> expected_counts = counts;
      std::vector<float*> run;
      std::vector<const char*> gradients;
      const std::vector<float> values = MixedNumbers(order.size() * width, random);
      std::vector<char> misaligned(1 + values.size() * sizeof(float));
      std::memcpy(&misaligned[1], values.data(), values.size() * sizeof(float));
      for (size_t i = 0; i < order.size(); ++i) {
        gradients.push_back(&misaligned[1 + i * width * sizeof(float)]);
        run.push_back(rows[order[i]].data());
      }
      rule->ApplyRows({.step = 9}, 0.75f, width, run.size(), gradients.data(), run.data());
      for (size_t i = 0; i < order.size(); ++i) {
        uint32_t& count = expected_counts[order[i]];
        float* const row = single[order[i]].data();
        rule->Apply({9, count}, 0.75f, gradients[i], width, 0, width, row, row + width);
        if (count < UINT32_MAX) ++count;
      }
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(std::memcmp(rows[i].data(), single[i].data(), floats * sizeof(float)), 0)
            << spec.ShortDebugString() << ", width " << width << ", row " << i;
        if (!rule->CountsUpdates()) continue;
        ASSERT_EQ(std::memcmp(&rows[i][floats], &expected_counts[i], sizeof(uint32_t)), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, UpdateRuleIsaTest, testing::ValuesIn(SupportedIsas()),
                         [](const testing::TestParamInfo<Isa>& info) {
                           std::string name = IsaName(info.param);
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

// The bits of updates by the specs that `is_meant` chooses.
uint32_t BitsOf(const std::function<bool(const Optimizer&)>& is_meant) {
  constexpr size_t kWidth = 100;
  std::mt19937 random(13);
  uint32_t crc = 0;
  for (const Optimizer& spec : AllSpecs()) {
    if (!is_meant(spec)) continue;
    const auto rule = *UpdateRule::Create(spec);
    const size_t floats = kWidth + rule->SlotCount(kWidth);
    std::vector<float> row = MixedNumbers(floats, random);
    rule->InitializeSlots(kWidth, row.data() + kWidth);
    for (const uint64_t prior_updates : {0, 1, 20, 3000}) {
      const std::vector<float> gradient = MixedNumbers(kWidth, random);
      rule->Apply({2 * prior_updates, prior_updates}, 0.3f, gradient.data(), kWidth, 0, kWidth,
                  row.data(), row.data() + kWidth);
    }
    crc = Crc32c(crc, row.data(), floats * sizeof(float));
  }
  return crc;
}

// If these bits change, replicas of different versions, machines or compilers diverge.
TEST(UpdateRuleTest, BitsArePinned) {
  // FTRL's schedule ends before the last update of BitsOf, whose rate is 0.
  const auto ends = [](const Optimizer& spec) { return spec.has_ftrl() && spec.has_schedule(); };
  // Assignment has no arithmetic. It and the weight decay were added later.
  EXPECT_EQ(BitsOf([&](const Optimizer& spec) {
              return !spec.has_assign() && spec.weight_decay() == 0 && !ends(spec);
            }),
            2529051816u);
  EXPECT_EQ(BitsOf([](const Optimizer& spec) { return spec.weight_decay() != 0; }), 2526459773u);
  EXPECT_EQ(BitsOf(ends), 737201453u);
}

TEST(UpdateRuleTest, AssignmentStoresThePushedValues) {
  const auto rule = *UpdateRule::Create(Parse("assign {}"));
  EXPECT_EQ(rule->SlotCount(3), 0u);
  std::vector<float> weights = {1, 2, 3};
  const std::vector<float> pushed = {0.1f, -0.0f, 1e-40f};
  // The number of ranks does not matter.
  rule->Apply({5, 2}, 1.0f / 3, pushed.data(), 3, 0, 3, weights.data(), nullptr);
  EXPECT_EQ(std::memcmp(weights.data(), pushed.data(), 3 * sizeof(float)), 0);
  for (const char* spec :
       {"assign {} clip_value: 1", "assign {} clip_norm: 1", "assign {} l1: 1",
        "assign {} weight_decay: 1", "assign {} l2: 1", "assign {} schedule { warmup_steps: 5 }"}) {
    EXPECT_EQ(UpdateRule::Create(Parse(spec)).status().code(), absl::StatusCode::kInvalidArgument)
        << spec;
  }
}

TEST(UpdateRuleTest, UpdateInPartsEqualsUpdateAtOnce) {
  std::mt19937 random(11);
  for (const Optimizer& spec : AllSpecs()) {
    const auto rule = *UpdateRule::Create(spec);
    if (!rule->IsElementwise()) continue;
    constexpr size_t kWidth = 1000;
    const size_t floats = kWidth + rule->SlotCount(kWidth);
    std::vector<float> whole = MixedNumbers(floats, random);
    rule->InitializeSlots(kWidth, whole.data() + kWidth);
    std::vector<float> parts = whole;
    const std::vector<float> gradient = MixedNumbers(kWidth, random);
    rule->Apply({4, 2}, 0.5f, gradient.data(), kWidth, 0, kWidth, whole.data(),
                whole.data() + kWidth);
    for (size_t begin = 0; begin < kWidth;) {
      const size_t count = std::min<size_t>(kWidth - begin, random() % 150);
      rule->Apply({4, 2}, 0.5f, gradient.data() + begin, kWidth, begin, count, parts.data(),
                  parts.data() + kWidth);
      begin += count;
    }
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), floats * sizeof(float)), 0)
        << spec.ShortDebugString();
  }
}

TEST(UpdateRuleTest, OnlyWholeRowRulesAreNotElementwise) {
  EXPECT_TRUE((*UpdateRule::Create(Parse("adam { learning_rate: 1 } clip_value: 1 l2: 1")))
                  ->IsElementwise());
  EXPECT_FALSE(
      (*UpdateRule::Create(Parse("sgd { learning_rate: 1 } clip_norm: 1")))->IsElementwise());
  EXPECT_FALSE(
      (*UpdateRule::Create(Parse("rowwise_adagrad { learning_rate: 1 }")))->IsElementwise());
}

TEST(UpdateRuleTest, SlotsHaveTheirInitialValues) {
  const struct {
    const char* spec;
    std::vector<float> slots;  // for a row of 2
  } kCases[] = {
      {"sgd { learning_rate: 1 }", {}},
      {"momentum { learning_rate: 1 }", {0, 0}},
      {"adagrad { learning_rate: 1 }", {0, 0}},
      {"rowwise_adagrad { learning_rate: 1 }", {0}},
      {"adagrad { learning_rate: 1 initial_accumulator: 0.5 }", {0.5, 0.5}},
      {"rowwise_adagrad { learning_rate: 1 initial_accumulator: 0.5 }", {0.5}},
      {"rmsprop { learning_rate: 1 }", {0, 0}},
      {"adam { learning_rate: 1 }", {0, 0, 0, 0}},
      {"adamw { learning_rate: 1 }", {0, 0, 0, 0}},
      {"ftrl { learning_rate: 1 initial_accumulator: 0.5 }", {0.5, 0.5, 0, 0}},
  };
  for (const auto& test : kCases) {
    const auto rule = *UpdateRule::Create(Parse(test.spec));
    std::vector<float> slots(rule->SlotCount(2), -1.0f);
    rule->InitializeSlots(2, slots.data());
    EXPECT_EQ(slots, test.slots) << test.spec;
  }
}

TEST(UpdateRuleTest, FtrlWithinL1IsExactlyZero) {
  const auto rule = *UpdateRule::Create(Parse("ftrl { learning_rate: 0.1 l1: 10 }"));
  float weight = 0.0f;
  float slots[2];
  rule->InitializeSlots(1, slots);
  const float gradient = 3.0f;
  rule->Apply({}, 1.0f, &gradient, 1, 0, 1, &weight, slots);
  EXPECT_EQ(weight, 0.0f);
  EXPECT_EQ(slots[1], 3.0f);
}

TEST_P(UpdateRuleIsaTest, FtrlKeepsItsRowsAtRate0) {
  // `step` reaches 0 by way of rates that are too small to divide by: 1e-32 at step 16, which is
  // below the least rate, and subnormals.
  for (const char* schedule :
       {"cosine { total_steps: 16 }", "polynomial { total_steps: 16 power: 1 }",
        "step { every_steps: 1 gamma: 0.01 }"}) {
    const Optimizer spec =
        Parse(absl::StrCat("ftrl { learning_rate: 1 l2: 0.01 } schedule { ", schedule, " }"));
    const auto rule = *MakeUpdateRule(spec, GetParam());
    constexpr size_t kFloats = 19;
    std::mt19937 random(7);
    std::vector<float> row = MixedNumbers(3 * kFloats, random);
    rule->InitializeSlots(kFloats, row.data() + kFloats);
    const std::vector<float> gradient = MixedNumbers(kFloats, random);
    const auto update = [&](uint64_t step) {
      rule->Apply({step, step}, 1.0f, gradient.data(), kFloats, 0, kFloats, row.data(),
                  row.data() + kFloats);
    };
    update(0);
    update(8);
    const std::vector<float> before = row;
    for (const float x : before) ASSERT_TRUE(std::isfinite(x)) << schedule;
    for (const uint64_t step : {16, 19, 20, 21, 22, 1000000}) update(step);
    EXPECT_EQ(std::memcmp(row.data(), before.data(), row.size() * sizeof(float)), 0) << schedule;
  }
}

TEST(UpdateRuleTest, InvalidHyperParametersAreRefusedNamingTheField) {
  const struct {
    const char* spec;
    const char* field;
  } kCases[] = {
      {"", "optimizer has no kind"},
      {"sgd {}", "optimizer.sgd.learning_rate"},
      {"sgd { learning_rate: -1 }", "optimizer.sgd.learning_rate"},
      {"sgd { learning_rate: inf }", "optimizer.sgd.learning_rate"},
      {"sgd { learning_rate: nan }", "optimizer.sgd.learning_rate"},
      {"momentum { learning_rate: 0 }", "optimizer.momentum.learning_rate"},
      {"momentum { learning_rate: 1 momentum: 1 }", "optimizer.momentum.momentum"},
      {"adagrad {}", "optimizer.adagrad.learning_rate"},
      {"adagrad { learning_rate: 1 initial_accumulator: -1 }",
       "optimizer.adagrad.initial_accumulator"},
      {"adagrad { learning_rate: 1 epsilon: 0 }", "optimizer.adagrad.epsilon"},
      {"rowwise_adagrad {}", "optimizer.rowwise_adagrad.learning_rate"},
      {"rowwise_adagrad { learning_rate: 1 initial_accumulator: nan }",
       "optimizer.rowwise_adagrad.initial_accumulator"},
      {"rowwise_adagrad { learning_rate: 1 epsilon: -1 }", "optimizer.rowwise_adagrad.epsilon"},
      {"rmsprop {}", "optimizer.rmsprop.learning_rate"},
      {"rmsprop { learning_rate: 1 rho: 1.5 }", "optimizer.rmsprop.rho"},
      {"rmsprop { learning_rate: 1 epsilon: 0 }", "optimizer.rmsprop.epsilon"},
      {"adam {}", "optimizer.adam.learning_rate"},
      {"adam { learning_rate: 1 beta1: 1 }", "optimizer.adam.beta1"},
      {"adam { learning_rate: 1 beta2: -0.1 }", "optimizer.adam.beta2"},
      {"adam { learning_rate: 1 epsilon: 0 }", "optimizer.adam.epsilon"},
      {"adamw {}", "optimizer.adamw.learning_rate"},
      {"adamw { learning_rate: 1 beta1: nan }", "optimizer.adamw.beta1"},
      {"adamw { learning_rate: 1 beta2: 2 }", "optimizer.adamw.beta2"},
      {"adamw { learning_rate: 1 epsilon: inf }", "optimizer.adamw.epsilon"},
      {"adamw { learning_rate: 1 weight_decay: -1 }", "optimizer.adamw.weight_decay"},
      {"ftrl {}", "optimizer.ftrl.learning_rate"},
      {"ftrl { learning_rate: 1 beta: -1 }", "optimizer.ftrl.beta"},
      {"ftrl { learning_rate: 1 l1: -1 }", "optimizer.ftrl.l1"},
      {"ftrl { learning_rate: 1 l2: inf }", "optimizer.ftrl.l2"},
      {"ftrl { learning_rate: 1 initial_accumulator: -1 }", "optimizer.ftrl.initial_accumulator"},
      {"ftrl { learning_rate: 1 beta: 0 initial_accumulator: 0 }", "optimizer.ftrl"},
      {"ftrl { learning_rate: 1 } l1: 0.1", "optimizer.l1"},
      {"ftrl { learning_rate: 1 } l2: 0.1", "optimizer.l2"},
      {"sgd { learning_rate: 1 } clip_value: -1", "optimizer.clip_value"},
      {"sgd { learning_rate: 1 } clip_norm: nan", "optimizer.clip_norm"},
      {"sgd { learning_rate: 1 } l1: -1", "optimizer.l1"},
      {"sgd { learning_rate: 1 } l2: inf", "optimizer.l2"},
      {"sgd { learning_rate: 1 } weight_decay: -1", "optimizer.weight_decay"},
      {"adamw { learning_rate: 1 } weight_decay: 0.1", "optimizer.weight_decay"},
      {"ftrl { learning_rate: 1 } weight_decay: 0.1", "optimizer.weight_decay"},
      {"sgd { learning_rate: 1 } schedule { step { gamma: 0.5 } }",
       "optimizer.schedule.step.every_steps"},
      {"sgd { learning_rate: 1 } schedule { step { every_steps: 1 gamma: 1.5 } }",
       "optimizer.schedule.step.gamma"},
      {"sgd { learning_rate: 1 } schedule { step { every_steps: 1 } }",
       "optimizer.schedule.step.gamma"},
      {"sgd { learning_rate: 1 } schedule { cosine {} }", "optimizer.schedule.cosine.total_steps"},
      {"sgd { learning_rate: 1 } schedule { cosine { total_steps: 1 floor: 2 } }",
       "optimizer.schedule.cosine.floor"},
  };
  for (const auto& test : kCases) {
    const auto rule = UpdateRule::Create(Parse(test.spec));
    ASSERT_FALSE(rule.ok()) << test.spec;
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument) << test.spec;
    EXPECT_NE(std::string(rule.status().message()).find(test.field), std::string::npos)
        << rule.status();
  }
}

}  // namespace
}  // namespace pawl
