#include "server/export/npy_reader.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "gtest/gtest.h"
#include "server/export/tensor_writer.h"

namespace pawl {
namespace {

std::string Path() { return JoinPath(testing::TempDir(), "array.npy"); }

void Write(absl::string_view header, absl::string_view elements) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  absl::StrAppend(&text, header, elements);
  ASSERT_TRUE(WriteFileDurably(Env::Real(), Path(), text).ok());
}

std::string FloatsRefusal() {
  const auto array = ReadNpyFloats(Env::Real(), Path());
  EXPECT_EQ(array.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(array.status().message()).find("array.npy: "), std::string::npos);
  return std::string(array.status().message());
}

TEST(NpyReaderTest, ReadsWhatTheWriterWrites) {
  const std::vector<float> floats = {1, 2, 3, 4, 5, -6};
  auto writer = TensorWriter::CreateNpy(Env::Real(), Path(), {"a", TensorType::kFloat32, {3, 2}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append({reinterpret_cast<const char*>(floats.data()), 24}).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto array = ReadNpyFloats(Env::Real(), Path());
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->shape, (std::vector<uint64_t>{3, 2}));
  EXPECT_EQ(array->elements, floats);

  const std::vector<uint64_t> keys = {7, UINT64_MAX};
  writer = TensorWriter::CreateNpy(Env::Real(), Path(), {"a", TensorType::kUint64, {2}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append({reinterpret_cast<const char*>(keys.data()), 16}).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto read = ReadNpyKeys(Env::Real(), Path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->shape, (std::vector<uint64_t>{2}));
  EXPECT_EQ(read->elements, keys);
  EXPECT_NE(FloatsRefusal().find("'<u8'; they must be <f4"), std::string::npos);
}

TEST(NpyReaderTest, ReadsSignedKeysAndScalars) {
  const int64_t key = -1;
  Write("{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n",
        {reinterpret_cast<const char*>(&key), sizeof(key)});
  const auto keys = ReadNpyKeys(Env::Real(), Path());
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->elements, std::vector<uint64_t>{UINT64_MAX});
  Write("{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", std::string(4, '\0'));
  const auto scalar = ReadNpyFloats(Env::Real(), Path());
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_TRUE(scalar->shape.empty());
  EXPECT_EQ(scalar->elements, std::vector<float>{0});
}

TEST(NpyReaderTest, OtherFilesAreRefusedWithTheReason) {
  Write("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }\n", "abcd");
  EXPECT_NE(FloatsRefusal().find("Fortran"), std::string::npos);
  Write("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n", "abcdefgh");
  EXPECT_NE(FloatsRefusal().find("'<f8'"), std::string::npos);
  Write("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", "abcd");
  EXPECT_NE(FloatsRefusal().find("it has 4 bytes"), std::string::npos);
  Write("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n", "");
  EXPECT_NE(FloatsRefusal().find("too large"), std::string::npos);
  Write("{'descr': '<f4', 'fortran_order': False, 'shape': (1, -1), }\n", "abcd");
  EXPECT_NE(FloatsRefusal().find("its shape is"), std::string::npos);
  Write("{'descr': '<f4', 'fortran_order': False}\n", "abcd");
  EXPECT_NE(FloatsRefusal().find("no shape"), std::string::npos);
  ASSERT_TRUE(WriteFileDurably(Env::Real(), Path(), "1,2,3\n").ok());
  EXPECT_NE(FloatsRefusal().find("not a NumPy file"), std::string::npos);
  EXPECT_EQ(ReadNpyFloats(Env::Real(), Path() + "x").status().code(), absl::StatusCode::kNotFound);
}

// Every truncation is refused.
TEST(NpyReaderTest, TruncatedFilesAreRefused) {
  Write("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", "abcdefgh");
  const std::string whole = *ReadWholeFile(Env::Real(), Path(), 1000);
  ASSERT_TRUE(ReadNpyFloats(Env::Real(), Path()).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(WriteFileDurably(Env::Real(), Path(), whole.substr(0, size)).ok());
    EXPECT_EQ(ReadNpyFloats(Env::Real(), Path()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
}

}  // namespace
}  // namespace pawl
