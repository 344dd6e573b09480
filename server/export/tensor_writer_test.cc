#include "server/export/tensor_writer.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/storage/testing/worked_bytes.h"

namespace pawl {
namespace {

template <typename T>
absl::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class NpyTest : public testing::Test {
 protected:
  // The file of an array of zeros.
  std::string Zeros(TensorType type, const std::vector<uint64_t>& shape, size_t bytes) {
    const auto writer = TensorWriter::CreateNpy(env_, "/a.npy", {"a", type, shape}).value();
    EXPECT_TRUE(writer->Append(std::string(bytes, '\0')).ok());
    const absl::Status finished = writer->Finish();
    EXPECT_TRUE(finished.ok()) << finished;
    return env_.Contents("/a.npy");
  }

  FaultEnv env_{1};
};

// The bytes that numpy.save writes for the same array.
TEST_F(NpyTest, BytesMatchTheFormat) {
  const auto writer =
      TensorWriter::CreateNpy(env_, "/a.npy", {"a", TensorType::kFloat32, {3, 2}}).value();
  ASSERT_TRUE(writer->Append(BytesOf<float>({1, 2, 3})).ok());
  ASSERT_TRUE(writer->Append(BytesOf<float>({4, 5, -6})).ok());
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

TEST_F(NpyTest, OneDimensionalShapeHasAComma) {
  const std::string file = Zeros(TensorType::kUint64, {5}, 40);
  EXPECT_NE(file.find("{'descr': '<u8', 'fortran_order': False, 'shape': (5,), }"),
            std::string::npos)
      << file;
}

TEST_F(NpyTest, EmptyArrayIsValid) {
  const std::string file = Zeros(TensorType::kFloat32, {0, 4}, 0);
  EXPECT_NE(file.find("'shape': (0, 4), }"), std::string::npos) << file;
  EXPECT_EQ(file.size() % 64, 0u);
}

TEST_F(NpyTest, ElementsStartAtAMultipleOf64) {
  uint64_t extent = 1;
  for (int digits = 1; digits < 20; ++digits, extent *= 10) {
    const auto writer =
        TensorWriter::CreateNpy(env_, "/a.npy", {"a", TensorType::kFloat32, {extent, 0, extent}})
            .value();
    const std::string file = env_.Contents("/a.npy");
    EXPECT_EQ(file.size() % 64, 0u);
    EXPECT_EQ(file.back(), '\n');
    uint16_t length = 0;
    std::memcpy(&length, file.data() + 8, sizeof(length));
    EXPECT_EQ(length + 10u, file.size());
    EXPECT_TRUE(writer->Finish().ok());
  }
}

TEST_F(NpyTest, ElementCountMustMatchTheShape) {
  auto writer = TensorWriter::CreateNpy(env_, "/a.npy", {"a", TensorType::kFloat32, {2}}).value();
  EXPECT_EQ(writer->Append(BytesOf<float>({1, 2, 3})).code(), absl::StatusCode::kOutOfRange);
  writer = TensorWriter::CreateNpy(env_, "/a.npy", {"a", TensorType::kFloat32, {2}}).value();
  ASSERT_TRUE(writer->Append(BytesOf<float>({1})).ok());
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kInternal);
}

TEST_F(NpyTest, FinishedFileSurvivesPowerLoss) {
  const std::string file = Zeros(TensorType::kFloat32, {4}, 16);
  ASSERT_TRUE(env_.SyncFolder("/").ok());
  env_.CutPower();
  env_.RestorePower();
  EXPECT_EQ(env_.Contents("/a.npy"), file);
}

class SafetensorsTest : public testing::Test {
 protected:
  std::unique_ptr<TensorWriter> Create(const std::vector<TensorSpec>& tensors,
                                       const std::string& table = "t") {
    return TensorWriter::CreateSafetensors(env_, "/a", table, tensors).value();
  }

  FaultEnv env_{1};
};

// The package `safetensors` of PyPI reads the same file in deploy/pawlctl/export_test.py.
TEST_F(SafetensorsTest, BytesMatchTheFormat) {
  const auto writer = Create(
      {{"keys", TensorType::kUint64, {2}}, {"rows", TensorType::kFloat32, {2, 1}}}, "linear");
  ASSERT_TRUE(writer->Append(BytesOf<uint64_t>({7, 258})).ok());
  ASSERT_TRUE(writer->Append(BytesOf<float>({1})).ok());
  ASSERT_TRUE(writer->Append(BytesOf<float>({-6})).ok());
  ASSERT_TRUE(writer->Finish().ok());
  std::string header =
      R"({"__metadata__":{"table":"linear"},"keys":{"dtype":"U64","shape":[2],)"
      R"("data_offsets":[0,16]},"rows":{"dtype":"F32","shape":[2,1],"data_offsets":[16,24]}})";
  header.append(7 - (header.size() + 7) % 8, ' ');
  std::string expected(1, static_cast<char>(header.size()));
  expected.append(7, '\0').append(header);
  expected += std::string(BytesOf<uint64_t>({7, 258}));
  expected += std::string(BytesOf<float>({1, -6}));
  EXPECT_EQ(env_.Contents("/a"), expected);
  EXPECT_EQ(writer->file_bytes(), expected.size());
  EXPECT_EQ(ReadWorkedBytes("server/export/safetensors_format.md"), expected)
      << FormatWorkedBytes(expected);
}

TEST_F(SafetensorsTest, ElementsStartAtAMultipleOf8) {
  for (int length = 0; length < 20; ++length) {
    const auto writer = Create({{"x", TensorType::kUint64, {0}}}, std::string(length, 'n'));
    EXPECT_EQ(writer->file_bytes() % 8, 0u) << length;
    EXPECT_TRUE(writer->Finish().ok());
  }
}

TEST_F(SafetensorsTest, NamesAreQuoted) {
  Create({}, "a\"b\\\n\xff");
  const std::string file = env_.Contents("/a");
  const auto header = nlohmann::json::parse(file.substr(8));
  EXPECT_EQ(header["__metadata__"]["table"], "a\"b\\\n\xef\xbf\xbd");
}

TEST_F(SafetensorsTest, ElementsMustBeAsManyAsTheShapesHave) {
  const auto writer = Create({{"x", TensorType::kFloat32, {2}}, {"y", TensorType::kFloat32, {1}}});
  EXPECT_TRUE(writer->Append(std::string(8, '\0')).ok());
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(writer->Append(std::string(5, '\0')).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(writer->Append(std::string(4, '\0')).ok());
  EXPECT_TRUE(writer->Finish().ok());
}

}  // namespace
}  // namespace pawl
