#include "server/export/safetensors_writer.h"

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

class SafetensorsWriterTest : public testing::Test {
 protected:
  std::unique_ptr<SafetensorsWriter> Create(const std::vector<SafeTensor>& tensors,
                                            const std::string& table = "t") {
    return SafetensorsWriter::Create(env_, "/a", table, tensors).value();
  }

  FaultEnv env_{1};
};

// The package `safetensors` of PyPI reads the same file in deploy/pawlctl/export_test.py.
TEST_F(SafetensorsWriterTest, BytesMatchTheFormat) {
  const auto writer =
      Create({{"keys", NpyType::kUint64, {2}}, {"rows", NpyType::kFloat32, {2, 1}}}, "linear");
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

TEST_F(SafetensorsWriterTest, ElementsStartAtAMultipleOf8) {
  for (int length = 0; length < 20; ++length) {
    const auto writer = Create({{"x", NpyType::kUint64, {0}}}, std::string(length, 'n'));
    EXPECT_EQ(writer->file_bytes() % 8, 0u) << length;
    EXPECT_TRUE(writer->Finish().ok());
  }
}

TEST_F(SafetensorsWriterTest, NamesAreQuoted) {
  Create({}, "a\"b\\\n\xff");
  const std::string file = env_.Contents("/a");
  const auto header = nlohmann::json::parse(file.substr(8));
  EXPECT_EQ(header["__metadata__"]["table"], "a\"b\\\n\xef\xbf\xbd");
}

TEST_F(SafetensorsWriterTest, ElementsMustBeAsManyAsTheShapesHave) {
  const auto writer = Create({{"x", NpyType::kFloat32, {2}}, {"y", NpyType::kFloat32, {1}}});
  EXPECT_TRUE(writer->Append(std::string(8, '\0')).ok());
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(writer->Append(std::string(5, '\0')).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(writer->Append(std::string(4, '\0')).ok());
  EXPECT_TRUE(writer->Finish().ok());
}

}  // namespace
}  // namespace pawl
