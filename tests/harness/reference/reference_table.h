// The tables of the reference trainer: plain maps in one process.
#ifndef PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_TABLE_H_
#define PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_TABLE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"
#include "tests/harness/reference/reference_optimizer.h"

namespace pawl {

// One table, its sum of the current step, and its digest. Implemented from the documents
// (proto/types.proto, server/shard/initializer.h, scheduler/status/digest.h), without code from
// server/.
class ReferenceTable {
 public:
  // `spec` includes the table's id.
  static absl::StatusOr<ReferenceTable> Create(const TableSpec& spec, uint64_t job_seed);

  const TableSpec& spec() const { return spec_; }
  // The number of floats in a row, or in the whole tensor.
  size_t width() const { return width_; }
  const std::map<uint64_t, ReferenceRow>& rows() const { return rows_; }

  // Appends the weights of row `key`. A dense tensor is read whole, as row 0.
  void Read(uint64_t key, std::vector<float>& out) const;
  // Adds a rank's gradient to the step's sum; the first gradient is copied. Ranks come in order.
  void Add(uint64_t key, const float* gradient);
  // The sums of the squares of the step's sum divided by `ranks`, by partition
  // (Job.clip_global_norm; server/optimizer/README.md, "The global norm").
  std::map<uint32_t, double> Squares(uint32_t ranks, uint32_t partitions) const;
  // Applies the sum divided by `ranks` and multiplied by `clip_scale`, and clears it.
  void CloseStep(uint64_t step, uint32_t ranks, float clip_scale = 1.0f);

  // The records of scheduler/status/digest.h: (crc32c, rows) by partition.
  struct PartitionRecord {
    uint32_t crc32c = 0;
    uint64_t rows = 0;
  };
  std::map<uint32_t, PartitionRecord> Digests(uint32_t partitions) const;

 private:
  ReferenceTable(const TableSpec& spec, uint64_t job_seed, ReferenceOptimizer optimizer);

  // The number of elements of the row or block on the servers.
  size_t BlockWidth(uint64_t key) const;

  TableSpec spec_;
  uint64_t job_seed_;
  ReferenceOptimizer optimizer_;
  size_t width_ = 0;
  // Sparse rows, or the blocks of a tensor, as on the servers.
  std::map<uint64_t, ReferenceRow> rows_;
  std::map<uint64_t, std::vector<float>> sums_;
};

// The factor of the step's gradients. `tables` are in ascending order of their ids.
float ReferenceClipScale(const std::vector<ReferenceTable>& tables, uint32_t ranks,
                         uint32_t partitions, float clip_global_norm);

// The digest of scheduler/status/digest.h over all tables.
uint32_t ReferenceDigest(const std::vector<ReferenceTable>& tables, uint32_t partitions);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_TABLE_H_
