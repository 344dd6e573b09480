// A data file in memory.
#ifndef PAWL_WORKER_DATA_DATASET_H_
#define PAWL_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Checks the part of the `data` message of a job file that needs no files. INVALID_ARGUMENT naming
// the field.
absl::Status ValidateData(const Data& spec);

struct DatasetOptions {
  // A file that needs more memory is refused with RESOURCE_EXHAUSTED.
  uint64_t max_bytes = uint64_t{64} << 30;
  // The shape of the training data, for the evaluation file. LIBSVM with automatic fields takes its
  // number of fields from it. A file of another shape is refused.
  std::optional<DataShape> shape = std::nullopt;
};

// All samples of one file: labels, numbers, and the numbers of their keys. A BatchAssembler makes
// batches from it.
//
//   PAWL_ASSIGN_OR_RETURN(auto train, Dataset::Load(job.data(), job.data().train()));
//   PAWL_ASSIGN_OR_RETURN(auto eval, Dataset::Load(job.data(), job.data().eval(),
//                                                  {.shape = train->shape()}));
//
// Immutable, hence thread-safe.
class Dataset {
 public:
  // Reads the plain or gzip file at `path` as spec.format says, ignoring spec.train and spec.eval.
  // NOT_FOUND naming a missing file; INVALID_ARGUMENT naming file, line and column of malformed
  // data, the file if it has no samples, or the field of a bad spec; RESOURCE_EXHAUSTED beyond a
  // limit.
  static absl::StatusOr<std::unique_ptr<Dataset>> Load(const Data& spec, const std::string& path,
                                                       const DatasetOptions& options = {});

  // Number of samples, at least 1.
  uint64_t size() const { return store_.size(); }
  const DataShape& shape() const { return store_.shape; }
  uint64_t distinct_keys() const { return store_.keys().size(); }
  LabelSummary labels() const;
  // The samples that `rank` of `ranks` evaluates if all samples of a group (GroupOf in batch.h) go
  // to one rank, ascending. A function of the data alone. REQUIRES: field < shape().field_count.
  std::vector<uint64_t> SamplesOfGroups(uint32_t field, uint32_t rank, uint32_t ranks) const;
  uint64_t memory_bytes() const { return store_.memory_bytes(); }

 private:
  friend class BatchAssembler;

  explicit Dataset(uint64_t max_bytes) : store_(max_bytes) {}

  SampleStore store_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_DATASET_H_
