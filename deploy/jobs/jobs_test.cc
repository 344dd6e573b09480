// Tests that the example jobs are valid and read the columns that deploy/data/fetch writes.
#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "client_lib/job/format_validation.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace pawl {
namespace {

Job ReadJob(const std::string& name) {
  std::ifstream file("deploy/jobs/" + name + ".pbtxt");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << name;
  return job;
}

TEST(JobsTest, FlightsJobsReadFlightsFiles) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/flights.csv";
  std::ofstream(path) << "delay,hour,weekday,origin,destination,distance\n33,0,1,LAS,PHL,2176\n15,"
                         "23,6,ATL,SAV,215\n";
  for (const char* name : {"flights-deepfm", "flights-fm", "flights-lr"}) {
    const Job job = ReadJob(name);
    EXPECT_EQ(job.name(), name);
    const auto dataset = Dataset::Load(job.data(), path);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->shape().field_count, 8u);
    EXPECT_EQ((*dataset)->distinct_keys(), 16u);
    EXPECT_EQ((*dataset)->labels().min, 0);
    EXPECT_EQ((*dataset)->labels().max, 1);
  }
}

// This job reads the distance as a number, the others as a category.
TEST(JobsTest, FlightsDlrmJobReadsFlightsFiles) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/flights-dlrm.csv";
  std::ofstream(path) << "delay,hour,weekday,origin,destination,distance\n33,0,1,LAS,PHL,2176\n15,"
                         "23,6,ATL,SAV,215\n";
  const Job job = ReadJob("flights-dlrm");
  EXPECT_EQ(job.name(), "flights-dlrm");
  const auto dataset = Dataset::Load(job.data(), path);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->shape().field_count, 7u);
  EXPECT_EQ((*dataset)->shape().numeric_count, 1u);
}

TEST(JobsTest, CriteoJobReadsCriteoLines) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/day_0";
  std::string counts, categories;
  for (int i = 0; i < 13; ++i) counts += i % 3 == 0 ? "\t" : "\t" + std::to_string(i * i);
  for (int i = 0; i < 26; ++i)
    categories += i % 5 == 0 ? "\t" : "\t68fd1e6" + std::to_string(i % 10);
  std::ofstream(path) << "0" << counts << categories << "\n1" << counts << categories << "\n";
  const Job job = ReadJob("criteo");
  EXPECT_EQ(job.name(), "criteo");
  EXPECT_GT(job.data().window_samples(), 0u);
  const auto dataset = Dataset::Load(job.data(), path);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->shape().numeric_count, 13u);
  EXPECT_EQ((*dataset)->shape().field_count, 26u);
  EXPECT_EQ((*dataset)->distinct_keys(), 26u);
}

TEST(JobsTest, FashionMnistJobHasPublishedNetwork) {
  const Job job = ReadJob("fashion-mnist");
  EXPECT_EQ(job.name(), "fashion-mnist");
  EXPECT_TRUE(ValidateFormat(job.data()).ok());
  EXPECT_EQ(job.model().mlp().classes(), 10u);
  ASSERT_EQ(job.model().mlp().hidden_size(), 2);
  EXPECT_EQ(job.model().mlp().hidden(0), 256u);
  EXPECT_EQ(job.model().mlp().hidden(1), 128u);
}

}  // namespace
}  // namespace pawl
