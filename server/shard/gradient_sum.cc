#include "server/shard/gradient_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client_lib/base/compiler.h"
#include "server/optimizer/gradient_pass.h"
#include "server/optimizer/update_formula.h"

namespace pawl {
namespace {

// The floats that the sums of a run take at most, unless one row is larger.
constexpr size_t kRunFloats = 4096;
constexpr uint32_t kNone = UINT32_MAX;

// A row's share of one gradient. The parts of a row are a list.
struct Part {
  const char* values;
  uint32_t next;
};
struct Row {
  uint64_t key;
  uint32_t first;
  uint32_t last;
};

void AddFloats(float* sum, const char* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, values + i * sizeof(float), sizeof(float));
    sum[i] += value;
  }
}

// Finds the parts of each row.
class RowParts {
 public:
  RowParts(size_t part_count, size_t row_bytes) : row_bytes_(row_bytes) {
    rows_.reserve(part_count);
    parts_.reserve(part_count);
    row_of_.reserve(part_count);
  }

  absl::Span<const Row> rows() const { return rows_; }
  const Part& part(uint32_t number) const { return parts_[number]; }

  void Add(uint64_t key, const char* values) {
    const auto part = static_cast<uint32_t>(parts_.size());
    parts_.push_back({values, kNone});
    const auto [entry, is_new] = row_of_.try_emplace(key, static_cast<uint32_t>(rows_.size()));
    if (is_new) {
      rows_.push_back({key, part, part});
    } else {
      parts_[std::exchange(rows_[entry->second].last, part)].next = part;
    }
  }
  void Add(const Gradient& gradient) {
    const std::vector<uint64_t> keys = CopyKeys(gradient.keys);
    auto scratch = std::make_unique_for_overwrite<char[]>(row_bytes_);
    size_t next = 0;
    gradient.values.ForEachRun(row_bytes_, scratch.get(), [&](const char* data, size_t count) {
      const bool is_split = data == scratch.get();
      for (; count > 0; --count, data += row_bytes_)
        Add(keys[next++], is_split ? Copy(data) : data);
    });
  }

 private:
  // For rows that are split between fragments of a message.
  const char* Copy(const char* values) {
    copies_.push_back(std::make_unique_for_overwrite<char[]>(row_bytes_));
    std::memcpy(copies_.back().get(), values, row_bytes_);
    return copies_.back().get();
  }

  const size_t row_bytes_;
  std::vector<Row> rows_;
  std::vector<Part> parts_;
  absl::flat_hash_map<uint64_t, uint32_t> row_of_;
  std::vector<std::unique_ptr<char[]>> copies_;
};

}  // namespace

GradientSum::GradientSum(std::shared_ptr<const TableSchema> table)
    : table_(std::move(table)), rows_(table_->is_dense() ? 0 : table_->MaxRowWidth()) {}

void GradientSum::AddToRows(const Gradient& gradient) const {
  const std::vector<uint64_t> keys = CopyKeys(gradient.keys);
  float* row = nullptr;
  bool first = false;
  ForEachPart(*table_, keys, gradient.values,
              [&](size_t i, size_t begin, size_t count, const char* data) {
                if (begin == 0) row = rows_.FindOrInsert(keys[i], table_->RowWidth(keys[i]), first);
                if (first) {
                  std::memcpy(row + begin, data, count * sizeof(float));
                } else {
                  AddFloats(row + begin, data, count);
                }
              });
}

void GradientSum::AddNow(const Gradient& gradient) {
  AddWaiting();
  AddToRows(gradient);
}

void GradientSum::AddWaiting() const {
  for (const Gradient& gradient : waiting_) AddToRows(gradient);
  waiting_.clear();
}

HeldRows GradientSum::Hold() const {
  AddWaiting();
  return rows_.Hold();
}

double GradientSum::Squares(float scale) const {
  AddWaiting();
  GradientPass pass = {};
  pass.scale = scale;
  std::vector<std::pair<uint64_t, double>> rows;
  rows.reserve(rows_.size());
  rows_.ForEach([&](uint64_t key, const float* row) {
    rows.emplace_back(
        key, SumOfSquares<GradientMode::kPlain, /*kPrepared=*/false>(
                 pass, reinterpret_cast<const char*>(row), table_->RowWidth(key), nullptr));
  });
  std::sort(rows.begin(), rows.end());
  double sum = 0;
  for (const auto& [key, squares] : rows) sum += squares;
  return sum;
}

void GradientSum::ForEachRun(Prepare prepare, Visit visit) const {
  // Two runs, which take turns.
  struct Run {
    uint64_t keys[kRowsInRun];
    const char* sums[kRowsInRun];
    size_t rows = 0;
  };
  Run runs[2];
  size_t turn = 0;
  const auto finish = [&] {
    visit({runs[turn].keys, runs[turn].rows}, runs[turn].sums);
    turn ^= 1;
    runs[turn].rows = 0;
  };
  if (rows_.size() > 0 || waiting_.empty()) {
    AddWaiting();
    const HeldRows held = rows_.Hold();
    const auto prepare_and_finish = [&] {
      prepare({runs[turn].keys, runs[turn].rows});
      finish();
    };
    held.ForEach([&](uint64_t key, const float* sum) {
      Run& run = runs[turn];
      run.keys[run.rows] = key;
      run.sums[run.rows] = reinterpret_cast<const char*>(sum);
      if (++run.rows == kRowsInRun) prepare_and_finish();
    });
    if (runs[turn].rows > 0) prepare_and_finish();
    visit({}, nullptr);
    return;
  }
  const size_t width = table_->MaxRowWidth();
  size_t part_count = 0;
  for (const Gradient& gradient : waiting_) part_count += gradient.keys.size() / sizeof(uint64_t);
  RowParts parts(part_count, width * sizeof(float));
  for (const Gradient& gradient : waiting_) parts.Add(gradient);

  const size_t run_rows = std::clamp<size_t>(kRunFloats / width, 1, kRowsInRun);
  const auto added = std::make_unique_for_overwrite<float[]>(2 * run_rows * width);
  for (absl::Span<const Row> rest = parts.rows(); !rest.empty(); finish()) {
    const absl::Span<const Row> rows = rest.subspan(0, run_rows);
    rest.remove_prefix(rows.size());
    Run& run = runs[turn];
    run.rows = rows.size();
    for (size_t i = 0; i < rows.size(); ++i) run.keys[i] = rows[i].key;
    prepare({run.keys, run.rows});
    // The first parts lie one after another, the others do not.
    for (const Row& row : rows) {
      if (row.first == row.last) continue;
      for (uint32_t at = parts.part(row.first).next; at != kNone; at = parts.part(at).next) {
        const char* const values = parts.part(at).values;
        for (size_t byte = 0; byte < width * sizeof(float); byte += 64) Prefetch(values + byte);
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const Part& first = parts.part(rows[i].first);
      run.sums[i] = first.values;
      if (first.next == kNone) continue;
      float* const sum = &added[(turn * run_rows + i) * width];
      std::memcpy(sum, first.values, width * sizeof(float));
      for (uint32_t at = first.next; at != kNone; at = parts.part(at).next)
        AddFloats(sum, parts.part(at).values, width);
      run.sums[i] = reinterpret_cast<const char*>(sum);
    }
  }
  visit({}, nullptr);
}

}  // namespace pawl
