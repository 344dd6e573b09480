#include "tests/harness/reference/reference_table.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "client_lib/base/crc32c.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "tests/harness/reference/reference_initializer.h"

namespace pawl {
namespace {

template <typename T>
void AppendLittleEndian(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

absl::StatusOr<ReferenceTable> ReferenceTable::Create(const TableSpec& spec, uint64_t job_seed) {
  PAWL_ASSIGN_OR_RETURN(ReferenceOptimizer optimizer, ReferenceOptimizer::Create(spec.optimizer()));
  return ReferenceTable(spec, job_seed, std::move(optimizer));
}

ReferenceTable::ReferenceTable(const TableSpec& spec, uint64_t job_seed,
                               ReferenceOptimizer optimizer)
    : spec_(spec), job_seed_(job_seed), optimizer_(std::move(optimizer)) {
  width_ = spec.kind() == SPARSE ? spec.row_width() : 1;
  if (spec.kind() == DENSE) {
    for (const uint64_t extent : spec.shape()) width_ *= extent;
  }
}

size_t ReferenceTable::BlockWidth(uint64_t key) const {
  if (spec_.kind() == SPARSE) return width_;
  return std::min<size_t>(kBlockElements, width_ - key * kBlockElements);
}

void ReferenceTable::Read(uint64_t key, std::vector<float>& out) const {
  const auto read_block = [&](uint64_t block) {
    const auto row = rows_.find(block);
    const std::vector<float> weights =
        row == rows_.end() ? ReferenceInitialValues(spec_, job_seed_, block, BlockWidth(block))
                           : row->second.weights;
    out.insert(out.end(), weights.begin(), weights.end());
  };
  if (spec_.kind() == SPARSE) return read_block(key);
  for (uint64_t block = 0; block * kBlockElements < width_; ++block) read_block(block);
}

void ReferenceTable::Add(uint64_t key, const float* gradient) {
  const auto add_block = [&](uint64_t block, const float* values) {
    const size_t width = BlockWidth(block);
    const auto [sum, is_first] = sums_.try_emplace(block, values, values + width);
    if (is_first) return;
    for (size_t i = 0; i < width; ++i) sum->second[i] += values[i];
  };
  if (spec_.kind() == SPARSE) return add_block(key, gradient);
  for (uint64_t block = 0; block * kBlockElements < width_; ++block)
    add_block(block, gradient + block * kBlockElements);
}

std::map<uint32_t, double> ReferenceTable::Squares(uint32_t ranks, uint32_t partitions) const {
  constexpr size_t kLanes = 16;
  const float mean = 1.0f / static_cast<float>(ranks);
  std::map<uint32_t, double> squares;
  // In ascending order of the keys.
  for (const auto& [key, sum] : sums_) {
    std::vector<double> lanes(kLanes);
    for (size_t i = 0; i < sum.size(); ++i) {
      const double value = mean * sum[i];
      lanes[i % kLanes] += value * value;
    }
    for (size_t distance = kLanes / 2; distance > 0; distance /= 2) {
      for (size_t lane = 0; lane < distance; ++lane) lanes[lane] += lanes[lane + distance];
    }
    squares[PartitionOf(spec_.id(), key, partitions)] += lanes[0];
  }
  return squares;
}

float ReferenceClipScale(const std::vector<ReferenceTable>& tables, uint32_t ranks,
                         uint32_t partitions, float clip_global_norm) {
  if (clip_global_norm == 0) return 1.0f;
  std::map<uint32_t, double> by_partition;
  for (const ReferenceTable& table : tables) {
    for (const auto& [partition, squares] : table.Squares(ranks, partitions))
      by_partition[partition] += squares;
  }
  double sum = 0;
  for (const auto& [partition, squares] : by_partition) sum += squares;
  const double norm = std::sqrt(sum);
  return norm > clip_global_norm ? static_cast<float>(clip_global_norm / norm) : 1.0f;
}

void ReferenceTable::CloseStep(uint64_t step, uint32_t ranks, float clip_scale) {
  for (const auto& [key, sum] : sums_) {
    const auto [row, is_new] = rows_.try_emplace(key);
    if (is_new) {
      row->second.weights = ReferenceInitialValues(spec_, job_seed_, key, BlockWidth(key));
      optimizer_.Begin(row->second);
    }
    optimizer_.Apply(step, 1.0f / static_cast<float>(ranks) * clip_scale, sum, row->second);
  }
  sums_.clear();
}

std::map<uint32_t, ReferenceTable::PartitionRecord> ReferenceTable::Digests(
    uint32_t partitions) const {
  std::map<uint32_t, PartitionRecord> records;
  for (const auto& [key, row] : rows_) {
    PartitionRecord& record = records[PartitionOf(spec_.id(), key, partitions)];
    std::string key_bytes;
    AppendLittleEndian(key_bytes, key);
    record.crc32c = Crc32c(record.crc32c, key_bytes.data(), key_bytes.size());
    record.crc32c = Crc32c(record.crc32c, row.weights.data(), row.weights.size() * sizeof(float));
    ++record.rows;
  }
  return records;
}

uint32_t ReferenceDigest(const std::vector<ReferenceTable>& tables, uint32_t partitions) {
  std::map<std::string, const ReferenceTable*> by_name;
  for (const ReferenceTable& table : tables) by_name[table.spec().name()] = &table;
  std::string bytes;
  for (const auto& [name, table] : by_name) {
    for (const auto& [partition, record] : table->Digests(partitions)) {
      bytes += name;
      bytes.push_back('\0');
      AppendLittleEndian(bytes, partition);
      AppendLittleEndian(bytes, record.crc32c);
      AppendLittleEndian(bytes, record.rows);
    }
  }
  return Crc32c(0, bytes.data(), bytes.size());
}

}  // namespace pawl
