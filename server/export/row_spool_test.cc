#include "server/export/row_spool.h"

#include <cstring>
#include <string>
#include <vector>

#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

// A row of `width` floats repeats its key.
void ReadRows(size_t width, absl::Span<const uint64_t> keys, char* out) {
  for (const uint64_t key : keys) {
    for (size_t i = 0; i < width; ++i, out += sizeof(float)) {
      const auto value = static_cast<float>(key);
      std::memcpy(out, &value, sizeof(value));
    }
  }
}

class RowSpoolTest : public testing::Test {
 protected:
  RowSpool::Run AddRun(const std::vector<uint64_t>& keys, size_t width) {
    return spool_
        ->AddRun(keys, width * sizeof(float),
                 [&](absl::Span<const uint64_t> some, char* out) { ReadRows(width, some, out); })
        .value();
  }
  // Returns the keys, and checks their rows.
  std::vector<uint64_t> Merge(const std::vector<RowSpool::Run>& runs, size_t width) {
    std::string keys;
    std::string rows;
    const absl::Status merged = spool_->Merge(
        runs, width * sizeof(float),
        [&](absl::string_view bytes) {
          keys.append(bytes.data(), bytes.size());
          return absl::OkStatus();
        },
        [&](absl::string_view bytes) {
          rows.append(bytes.data(), bytes.size());
          return absl::OkStatus();
        });
    EXPECT_TRUE(merged.ok()) << merged;
    std::vector<uint64_t> merged_keys(keys.size() / sizeof(uint64_t));
    if (!keys.empty()) std::memcpy(merged_keys.data(), keys.data(), keys.size());
    std::string expected(merged_keys.size() * width * sizeof(float), '\0');
    ReadRows(width, merged_keys, expected.data());
    EXPECT_TRUE(rows == expected);
    return merged_keys;
  }

  FaultEnv env_{1};
  std::unique_ptr<RowSpool> spool_ = RowSpool::Create(env_, "/spool").value();
};

TEST_F(RowSpoolTest, RunsOfEachTableAreMergedInOrder) {
  std::vector<RowSpool::Run> narrow = {AddRun({3, 9, uint64_t{1} << 63}, 1)};
  const std::vector<RowSpool::Run> wide = {AddRun({1, 2}, 5)};
  narrow.push_back(AddRun({}, 1));
  narrow.push_back(AddRun({0, 4, 5}, 1));
  ASSERT_TRUE(spool_->EndAdding().ok());
  EXPECT_EQ(Merge(narrow, 1), (std::vector<uint64_t>{0, 3, 4, 5, 9, uint64_t{1} << 63}));
  EXPECT_EQ(Merge(wide, 5), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(Merge({}, 5), std::vector<uint64_t>());
}

// Larger than the buffers, so that it is read in many pieces.
TEST_F(RowSpoolTest, TableLargerThanTheBuffersIsMerged) {
  constexpr size_t kWidth = 64;
  constexpr size_t kRuns = 5;
  constexpr uint64_t kRows = 4 * kMergeBytes / 3 / (kWidth * sizeof(float));
  std::vector<std::vector<uint64_t>> keys(kRuns);
  for (uint64_t key = 0; key < kRows; ++key) keys[(key * key / 7) % kRuns].push_back(key);
  std::vector<RowSpool::Run> runs;
  for (const std::vector<uint64_t>& of_run : keys) runs.push_back(AddRun(of_run, kWidth));
  ASSERT_TRUE(spool_->EndAdding().ok());
  const std::vector<uint64_t> merged = Merge(runs, kWidth);
  ASSERT_EQ(merged.size(), kRows);
  for (uint64_t key = 0; key < kRows; ++key) ASSERT_EQ(merged[key], key);
}

TEST_F(RowSpoolTest, CopyReturnsTheAddedBytes) {
  ASSERT_EQ(spool_->Add("abc").value(), 0u);
  const uint64_t begin = spool_->Add(std::string(3 * kSpoolChunkBytes / 2, 'x')).value();
  ASSERT_TRUE(spool_->EndAdding().ok());
  std::string copied;
  ASSERT_TRUE(spool_
                  ->Copy(begin, 3 * kSpoolChunkBytes / 2,
                         [&](absl::string_view bytes) {
                           copied.append(bytes.data(), bytes.size());
                           return absl::OkStatus();
                         })
                  .ok());
  EXPECT_TRUE(copied == std::string(3 * kSpoolChunkBytes / 2, 'x'));
}

TEST_F(RowSpoolTest, TruncatedFileIsAnError) {
  const uint64_t begin = spool_->Add("abc").value();
  env_.SetContents("/spool", "a");
  ASSERT_TRUE(spool_->EndAdding().ok());
  const absl::Status status =
      spool_->Copy(begin, 3, [](absl::string_view) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

}  // namespace
}  // namespace pawl
