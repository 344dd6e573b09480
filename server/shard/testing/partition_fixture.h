// Fixtures for partition tests: a partition with one table of each kind, and its senders.
#ifndef PAWL_SERVER_SHARD_TESTING_PARTITION_FIXTURE_H_
#define PAWL_SERVER_SHARD_TESTING_PARTITION_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "server/shard/partition.h"

namespace pawl {

inline constexpr uint32_t kRows = 1;    // sparse, width 2
inline constexpr uint32_t kBlocks = 2;  // dense

inline PartitionOptions Options(ConsistencyMode mode, uint32_t logical_workers,
                                uint32_t staleness = 0, uint32_t backup = 0) {
  return {.job_seed = 7,
          .partitions = 1,
          .logical_workers = logical_workers,
          .consistency = ConsistencyOf(mode, staleness, backup)};
}

inline std::shared_ptr<const TableSchema> Schema(uint32_t id, uint64_t dense_elements = 0) {
  const std::string name = "t" + std::to_string(id);
  TableSpec spec = WithSgd(dense_elements > 0 ? DenseTableSpec(name, {dense_elements}, id)
                                              : SparseTableSpec(name, 2, id));
  spec.mutable_initializer()->mutable_constant()->set_value(10);
  auto schema = TableSchema::Create(spec, 7);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return *schema;
}

inline Partition MakePartition(const PartitionOptions& options) {
  Partition partition(0, options);
  EXPECT_TRUE(partition.CreateTable(Schema(kRows)).ok());
  EXPECT_TRUE(partition.CreateTable(Schema(kBlocks, kBlockElements + 3)).ok());
  return partition;
}

// Owns keys and values, as a received message does.
struct GradientData {
  std::vector<uint64_t> keys;
  std::vector<float> values;
};

inline Gradient MakeGradient(std::vector<uint64_t> keys, std::vector<float> values) {
  auto data = std::make_shared<GradientData>(GradientData{std::move(keys), std::move(values)});
  return {ByteView(data->keys.data(), data->keys.size() * 8),
          ByteView(data->values.data(), data->values.size() * 4), data};
}

inline Sender Worker(uint32_t rank, uint64_t step, uint64_t incarnation = 1) {
  return {Sender::Kind::kLogicalWorker, rank, incarnation, step};
}
inline Sender Client(uint32_t number, uint64_t incarnation = 1) {
  return {Sender::Kind::kClient, number, incarnation, 0};
}

inline std::vector<float> Row(Partition& partition, uint64_t key) {
  std::vector<float> row(2);
  partition.Pull(kRows, ByteView(&key, sizeof(key)), reinterpret_cast<char*>(row.data()));
  return row;
}

using Floats = std::vector<float>;

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TESTING_PARTITION_FIXTURE_H_
