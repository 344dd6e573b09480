// Data files in memory.
#ifndef PAWL_WORKER_DATA_DATASET_H_
#define PAWL_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/job/group_field.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/readers/sample_reader.h"
#include "worker/data/sample_store.h"
#include "worker/data/sampler.h"
#include "worker/data/training_data.h"

namespace pawl {

struct DatasetOptions {
  // Data that needs more memory is refused with RESOURCE_EXHAUSTED.
  uint64_t max_bytes = uint64_t{64} << 30;
  // The shape of the training data, for the evaluation file. LIBSVM with automatic fields takes its
  // number of fields from it. Data of another shape is refused.
  std::optional<DataShape> shape = std::nullopt;
  // Malformed samples that are skipped.
  uint64_t max_bad_samples = 0;
  // The job can raise max_bad_samples, and errors say so.
  bool is_training = false;
};

// All samples of some files: labels, numbers, and the numbers of their keys. A BatchAssembler makes
// batches from it.
//
//   PAWL_ASSIGN_OR_RETURN(auto train, Dataset::Load(job.data(), train_files));
//   PAWL_ASSIGN_OR_RETURN(auto eval, Dataset::Load(job.data(), eval_files,
//                                                  {.shape = train->shape()}));
//
// Immutable, hence thread-safe.
class Dataset final : public TrainingData {
 public:
  // Reads the plain, gzip or zstd files, one after another, as spec.format says, ignoring
  // spec.train and spec.eval. NOT_FOUND naming a missing file; INVALID_ARGUMENT naming file, line
  // and column of malformed data, the file if it has no samples, or the field of a bad spec;
  // RESOURCE_EXHAUSTED beyond a limit. REQUIRES: there is a file.
  static absl::StatusOr<std::unique_ptr<Dataset>> Load(const Data& spec,
                                                       const std::vector<std::string>& files,
                                                       const DatasetOptions& options = {});
  static absl::StatusOr<std::unique_ptr<Dataset>> Load(const Data& spec, const std::string& file,
                                                       const DatasetOptions& options = {}) {
    return Load(spec, std::vector<std::string>{file}, options);
  }

  // Number of samples, at least 1.
  uint64_t size() const override { return store_.size(); }
  const DataShape& shape() const override { return store_.shape; }
  uint64_t fingerprint() const override { return fingerprint_; }
  // For a BatchAssembler.
  const SampleStore& store() const { return store_; }
  uint64_t distinct_keys() const { return store_.keys().size(); }
  // All labels, or the first of each sample.
  LabelSummary labels(bool first_only = false) const;
  // The batches that the sampler says, in the sampler's order.
  std::unique_ptr<RankBatches> OpenRank(const Sampler& sampler, uint32_t rank, uint64_t end_step,
                                        const FieldLookup& lookup) const override;
  // The malformed samples that were skipped.
  const BadSamples& bad_samples() const { return bad_samples_; }
  // The group of a sample: its query id, or its first category in the field; 0 without one.
  // REQUIRES: key.field < shape().field_count, unless key.is_query_id.
  uint64_t GroupOf(uint64_t sample, const GroupKey& key) const;
  // The samples that `rank` of `ranks` evaluates if all samples of a group go to one rank,
  // ascending. A function of the data alone. REQUIRES: as for GroupOf.
  std::vector<uint64_t> SamplesOfGroups(const GroupKey& key, uint32_t rank, uint32_t ranks) const;
  uint64_t memory_bytes() const { return store_.memory_bytes(); }

 private:
  explicit Dataset(const DatasetOptions& options)
      : store_(options.max_bytes),
        bad_samples_(options.max_bad_samples,
                     options.is_training ? BadSamples::kTrainingRemedy : "") {}

  SampleStore store_;
  uint64_t fingerprint_ = 0;
  BadSamples bad_samples_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_DATASET_H_
