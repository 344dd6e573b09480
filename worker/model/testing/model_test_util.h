// Jobs and parameters for tests of models.
#ifndef PAWL_WORKER_MODEL_TESTING_MODEL_TEST_UTIL_H_
#define PAWL_WORKER_MODEL_TESTING_MODEL_TEST_UTIL_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/device/cpu/device.h"
#include "worker/model/training_model.h"

namespace pawl {

// A job with plain SGD around a model in text form. Its fields are named by their numbers.
inline Job JobOf(const std::string& model) {
  Job job;
  job.mutable_data()->set_format(LIBSVM);
  job.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1f);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(model, job.mutable_model())) << model;
  return job;
}

// A vector of values for each table, and spans of them.
class TableValues {
 public:
  TableValues(const TrainingModel& model, const Batch& batch, float value) {
    for (size_t t = 0; t < model.tables().size(); ++t)
      values_.emplace_back(model.SpanSize(t, batch), value);
  }

  std::vector<float>& operator[](size_t table) { return values_[table]; }
  const std::vector<float>& operator[](size_t table) const { return values_[table]; }
  size_t size() const { return values_.size(); }
  bool operator==(const TableValues& other) const { return values_ == other.values_; }

  void Randomize(float stddev, std::mt19937& random) {
    for (std::vector<float>& table : values_) {
      for (float& value : table) value = std::normal_distribution<float>(0, stddev)(random);
    }
  }

  std::vector<absl::Span<const float>> spans() const {
    return std::vector<absl::Span<const float>>(values_.begin(), values_.end());
  }
  std::vector<absl::Span<float>> mutable_spans() {
    std::vector<absl::Span<float>> spans;
    for (std::vector<float>& table : values_) spans.push_back(absl::MakeSpan(table));
    return spans;
  }

 private:
  std::vector<std::vector<float>> values_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TESTING_MODEL_TEST_UTIL_H_
