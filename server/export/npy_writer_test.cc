#include "server/export/npy_writer.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/worked_bytes.h"

namespace pawl {
namespace {

absl::string_view BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

class NpyWriterTest : public testing::Test {
 protected:
  // The file of an array of zeros.
  std::string Zeros(NpyType type, const std::vector<uint64_t>& shape, size_t bytes) {
    const auto writer = NpyWriter::Create(env_, "/a.npy", type, shape).value();
    EXPECT_TRUE(writer->Append(std::string(bytes, '\0')).ok());
    const absl::Status finished = writer->Finish();
    EXPECT_TRUE(finished.ok()) << finished;
    return env_.Contents("/a.npy");
  }

  FaultEnv env_{1};
};

// The bytes that numpy.save writes for the same array.
TEST_F(NpyWriterTest, BytesMatchTheFormat) {
  const auto writer = NpyWriter::Create(env_, "/a.npy", NpyType::kFloat32, {3, 2}).value();
  ASSERT_TRUE(writer->Append(BytesOf({1, 2, 3})).ok());
  ASSERT_TRUE(writer->Append(BytesOf({4, 5, -6})).ok());
  ASSERT_TRUE(writer->Finish().ok());
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
  expected.append(58, ' ').append("\n");
  ASSERT_EQ(expected.size(), 128u);
  expected += std::string(
      "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40\x00\x00\xa0\x40\x00\x00\xc0"
      "\xc0",
      24);
  EXPECT_EQ(env_.Contents("/a.npy"), expected);
  EXPECT_EQ(writer->file_bytes(), expected.size());
  EXPECT_EQ(ReadWorkedBytes("server/export/model_format.md"), expected)
      << FormatWorkedBytes(expected);
}

TEST_F(NpyWriterTest, OneDimensionalShapeHasAComma) {
  const std::string file = Zeros(NpyType::kUint64, {5}, 40);
  EXPECT_NE(file.find("{'descr': '<u8', 'fortran_order': False, 'shape': (5,), }"),
            std::string::npos)
      << file;
}

TEST_F(NpyWriterTest, EmptyArrayIsValid) {
  const std::string file = Zeros(NpyType::kFloat32, {0, 4}, 0);
  EXPECT_NE(file.find("'shape': (0, 4), }"), std::string::npos) << file;
  EXPECT_EQ(file.size() % 64, 0u);
}

TEST_F(NpyWriterTest, ElementsStartAtAMultipleOf64) {
  uint64_t extent = 1;
  for (int digits = 1; digits < 20; ++digits, extent *= 10) {
    const auto writer =
        NpyWriter::Create(env_, "/a.npy", NpyType::kFloat32, {extent, 0, extent}).value();
    const std::string file = env_.Contents("/a.npy");
    EXPECT_EQ(file.size() % 64, 0u);
    EXPECT_EQ(file.back(), '\n');
    uint16_t length = 0;
    std::memcpy(&length, file.data() + 8, sizeof(length));
    EXPECT_EQ(length + 10u, file.size());
    EXPECT_TRUE(writer->Finish().ok());
  }
}

TEST_F(NpyWriterTest, ElementCountMustMatchTheShape) {
  auto writer = NpyWriter::Create(env_, "/a.npy", NpyType::kFloat32, {2}).value();
  EXPECT_EQ(writer->Append(BytesOf({1, 2, 3})).code(), absl::StatusCode::kOutOfRange);
  writer = NpyWriter::Create(env_, "/a.npy", NpyType::kFloat32, {2}).value();
  ASSERT_TRUE(writer->Append(BytesOf({1})).ok());
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kInternal);
}

TEST_F(NpyWriterTest, FinishedFileSurvivesPowerLoss) {
  const std::string file = Zeros(NpyType::kFloat32, {4}, 16);
  ASSERT_TRUE(env_.SyncFolder("/").ok());
  env_.CutPower();
  env_.RestorePower();
  EXPECT_EQ(env_.Contents("/a.npy"), file);
}

}  // namespace
}  // namespace pawl
