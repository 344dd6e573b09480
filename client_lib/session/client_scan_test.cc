#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/testing/client_fixture.h"

namespace pawl {
namespace {

constexpr uint32_t kWidth = 2;
constexpr size_t kRows = 200;

class ScanTest : public ClientTest {
 protected:
  void MakeRows(const TableSpec& spec) {
    Connect();
    table_ = *client_->CreateTable(spec).get();
    std::vector<uint64_t> keys(kRows);
    std::iota(keys.begin(), keys.end(), 1000);
    std::vector<float> values(kRows * kWidth);
    std::iota(values.begin(), values.end(), 0.f);
    std::vector<float> slots(kRows * table_.SlotFloats(kWidth));
    std::iota(slots.begin(), slots.end(), 1.f);
    ASSERT_TRUE(client_->free_running()
                    .Assign({{.table = table_, .keys = keys, .values = values, .slots = slots}})
                    .get()
                    .ok());
  }

  // Reads all pages of `rows` rows. `between` runs after each. Fails if a key comes twice.
  template <typename Between>
  std::map<uint64_t, std::vector<float>> Scan(size_t rows, Between between) {
    std::map<uint64_t, std::vector<float>> found;
    const size_t slot_floats = with_slots_ ? table_.SlotFloats(kWidth) : 0;
    std::vector<uint64_t> keys(rows);
    std::vector<float> values(rows * kWidth);
    std::vector<float> slots(rows * slot_floats);
    for (uint32_t partition = 0; partition < kPartitions; ++partition) {
      std::optional<uint64_t> next = 0;
      while (next) {
        const absl::StatusOr<ScanPage> page = client_
                                                  ->Scan({.table = table_,
                                                          .partition = partition,
                                                          .first_key = *next,
                                                          .keys = absl::MakeSpan(keys),
                                                          .values = absl::MakeSpan(values),
                                                          .slots = absl::MakeSpan(slots)})
                                                  .get();
        EXPECT_TRUE(page.ok()) << page.status();
        if (!page.ok()) return found;
        for (size_t i = 0; i < page->rows; ++i) {
          EXPECT_EQ(PartitionOf(table_.id(), keys[i], kPartitions), partition);
          std::vector<float> row(&values[i * kWidth], &values[(i + 1) * kWidth]);
          row.insert(row.end(), slots.begin() + i * slot_floats,
                     slots.begin() + (i + 1) * slot_floats);
          EXPECT_TRUE(found.emplace(keys[i], row).second) << keys[i] << " came twice";
        }
        next = page->next_key;
        between();
      }
    }
    return found;
  }
  std::map<uint64_t, std::vector<float>> Scan(size_t rows) {
    return Scan(rows, [] {});
  }

  std::map<uint64_t, std::vector<float>> Expected() {
    std::map<uint64_t, std::vector<float>> rows;
    for (uint64_t key = 1000; key < 1000 + kRows; ++key) {
      rows[key] = cluster_.Row(table_.id(), key);
      if (!with_slots_) continue;
      const std::vector<float> slots = cluster_.Slots(table_.id(), key);
      rows[key].insert(rows[key].end(), slots.begin(), slots.end());
    }
    return rows;
  }

  absl::Status StatusOf(const ScanItem& item) { return client_->Scan(item).get().status(); }

  Table table_;
  bool with_slots_ = false;
};

TableSpec Momentum() {
  TableSpec spec = SparseTableSpec("a", kWidth);
  spec.mutable_optimizer()->mutable_momentum()->set_learning_rate(0.1f);
  return spec;
}

TEST_F(ScanTest, PagesOfAnySizeGiveEachRowOnce) {
  MakeRows(SparseTableSpec("a", kWidth));
  for (const size_t rows : {1, 3, 1000}) EXPECT_EQ(Scan(rows), Expected()) << rows;
}

TEST_F(ScanTest, SlotsComeWithTheirRows) {
  MakeRows(Momentum());
  with_slots_ = true;
  EXPECT_EQ(Scan(7), Expected());
}

TEST_F(ScanTest, PartitionsThatMoveDuringTheScanGiveEachRowOnce) {
  MakeRows(SparseTableSpec("a", kWidth));
  uint32_t pages = 0;
  EXPECT_EQ(Scan(4, [&] { cluster_.MovePartitions(++pages); }), Expected());
  EXPECT_GT(client_->counters().routing_changes, 10u);
}

TEST_F(ScanTest, LostAnswersAreRequestedAgain) {
  MakeRows(SparseTableSpec("a", kWidth));
  std::atomic<int> calls = 0;
  cluster_.SetIntercept([&](const std::string&, Method method) {
    if (method == Method::kScan && ++calls % 5 == 0) return absl::UnavailableError("lost");
    return absl::OkStatus();
  });
  EXPECT_EQ(Scan(4), Expected());
  EXPECT_GT(client_->counters().retries, 3u);
}

TEST_F(ScanTest, ItemsThatCannotBeSentAreRefused) {
  MakeRows(Momentum());
  std::vector<uint64_t> keys(3);
  std::vector<float> values(3 * kWidth);
  const ScanItem good = {
      .table = table_, .keys = absl::MakeSpan(keys), .values = absl::MakeSpan(values)};
  EXPECT_TRUE(StatusOf(good).ok());
  ScanItem bad = good;
  bad.partition = kPartitions;
  EXPECT_EQ(StatusOf(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.table = Dense("d", 10);
  EXPECT_EQ(StatusOf(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.values = bad.values.subspan(1);
  EXPECT_EQ(StatusOf(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.slots = absl::MakeSpan(values).subspan(1);
  EXPECT_EQ(StatusOf(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.keys = {};
  bad.values = {};
  EXPECT_EQ(StatusOf(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.table = Table();
  EXPECT_EQ(StatusOf(bad).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pawl
