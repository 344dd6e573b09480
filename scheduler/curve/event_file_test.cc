#include "scheduler/curve/event_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client_lib/base/crc32c.h"
#include "gtest/gtest.h"
#include "proto/tensorboard.pb.h"

namespace pawl {
namespace {

// As TensorFlow's RecordReader.
uint32_t Unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

std::vector<TensorBoardEvent> ReadEvents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const std::string bytes = text.str();
  std::vector<TensorBoardEvent> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t head_crc = 0, crc = 0;
    std::memcpy(&length, &bytes.at(at), 8);
    std::memcpy(&head_crc, &bytes.at(at + 8), 4);
    EXPECT_EQ(Unmasked(head_crc), Crc32c(0, &bytes.at(at), 8));
    std::memcpy(&crc, &bytes.at(at + 12 + length), 4);
    EXPECT_EQ(Unmasked(crc), Crc32c(0, &bytes.at(at + 12), length));
    EXPECT_TRUE(events.emplace_back().ParseFromString(bytes.substr(at + 12, length)));
    at += 12 + length + 4;
  }
  return events;
}

TEST(EventFileTest, PointsAreRecordsOfTensorFlow) {
  const std::string folder = testing::TempDir() + "/event_file";
  auto file = EventFile::Create(Env::Real(), folder, 1700000000.25, "host.7");
  ASSERT_TRUE(file.ok()) << file.status();
  CurvePoint point;
  point.step = 12;
  point.values = {{"tables/rows", 0}, {"eval/auc", 0.75}};
  ASSERT_TRUE((*file)->Add(1700000005, point).ok());
  point.unix_s = 1700000003.5;
  ASSERT_TRUE((*file)->Add(1700000005, point).ok());
  const auto events = ReadEvents(folder + "/events.out.tfevents.1700000000.host.7");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1700000000.25);
  EXPECT_EQ(events[1].step(), 12);
  EXPECT_EQ(events[1].wall_time(), 1700000005);
  EXPECT_EQ(events[2].wall_time(), 1700000003.5);
  ASSERT_EQ(events[1].summary().value_size(), 2);
  EXPECT_TRUE(events[1].summary().value(0).has_simple_value());
  EXPECT_EQ(events[1].summary().value(1).tag(), "eval/auc");
  EXPECT_EQ(events[1].summary().value(1).simple_value(), 0.75f);
}

TEST(EventFileTest, FolderThatCannotBeMadeIsNamed) {
  const auto file = EventFile::Create(Env::Real(), "/proc/pawl/curve", 0, "x");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(std::string(file.status().message()).find("/proc/pawl/curve"), std::string::npos);
}

}  // namespace
}  // namespace pawl
