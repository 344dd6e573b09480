#include "worker/data/dataset.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/format_validation.h"
#include "worker/data/batch_assembler.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/readers/idx_reader.h"
#include "worker/data/readers/libsvm_reader.h"
#include "worker/data/sample_format.h"

namespace pawl {
namespace {

class MemoryRankBatches final : public RankBatches {
 public:
  MemoryRankBatches(const SampleStore& store, const Sampler& sampler, uint32_t rank,
                    const FieldLookup& lookup)
      : sampler_(sampler), rank_(rank), assembler_(store, lookup) {}

  absl::Status Assemble(uint64_t step, Batch* batch) override {
    sampler_.Indices(sampler_.epochs().PositionOf(step), rank_, &indices_);
    return assembler_.Assemble(indices_, batch);
  }

 private:
  const Sampler& sampler_;
  const uint32_t rank_;
  BatchAssembler assembler_;
  std::vector<uint64_t> indices_;
};

// Appends the samples of one file. LIBSVM sets *most_entries: the most pairs of a line.
absl::Status ReadFile(const Data& spec, const std::string& path, SampleStore* store,
                      uint64_t* most_entries, BadSamples* bad) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, OpenDataFile(path));
  if (spec.format() == IDX) {
    PAWL_ASSIGN_OR_RETURN(const std::string label_path, IdxLabelPath(path));
    PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> labels, OpenDataFile(label_path));
    return ReadIdx(*source, path, *labels, label_path, store);
  }
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<SampleReader> reader,
                        OpenSamples(spec, *source, path));
  PAWL_RETURN_IF_ERROR(ReadSamples(*reader, path, store, bad));
  *most_entries = reader->most_entries();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Load(const Data& spec,
                                                       const std::vector<std::string>& files,
                                                       const DatasetOptions& options) {
  PAWL_RETURN_IF_ERROR(ValidateFormat(spec).status());
  auto dataset = std::unique_ptr<Dataset>(new Dataset(options));
  SampleStore* const store = &dataset->store_;
  if (spec.format() != IDX) {
    PAWL_ASSIGN_OR_RETURN(const SampleLayout layout, LayoutOf(spec));
    store->shape = layout.shape;
  }
  uint32_t libsvm_fields = spec.libsvm_fields();
  if (libsvm_fields == 0 && options.shape.has_value()) libsvm_fields = options.shape->field_count;
  uint32_t most_fields = 0;
  for (const std::string& file : files) {
    const uint64_t before = store->size();
    uint64_t most_entries = 0;
    PAWL_RETURN_IF_ERROR(ReadFile(spec, file, store, &most_entries, &dataset->bad_samples_));
    if (store->size() == before)
      return absl::InvalidArgumentError(absl::StrCat(file, ": has no samples"));
    PAWL_ASSIGN_OR_RETURN(const uint32_t fields, LibsvmFields(libsvm_fields, most_entries, file));
    most_fields = std::max(most_fields, fields);
  }
  DataShape& shape = store->shape;
  if (spec.format() == LIBSVM) shape.field_count = most_fields;
  store->Finish();
  dataset->fingerprint_ = store->Fingerprint();
  if (options.shape.has_value() && (shape.numeric_count != options.shape->numeric_count ||
                                    shape.field_count != options.shape->field_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.front(), ": a sample has ", shape.numeric_count, " numbers and ",
                     shape.field_count, " categorical fields, but the training data has ",
                     options.shape->numeric_count, " and ", options.shape->field_count));
  }
  return dataset;
}

std::unique_ptr<RankBatches> Dataset::OpenRank(const Sampler& sampler, uint32_t rank,
                                               uint64_t /*end_step*/,
                                               const FieldLookup& lookup) const {
  return std::make_unique<MemoryRankBatches>(store_, sampler, rank, lookup);
}

uint64_t Dataset::GroupOf(uint64_t sample, const GroupKey& key) const {
  if (key.is_query_id) return store_.query_ids.empty() ? 0 : store_.query_ids[sample];
  const SampleRange entries = store_.EntriesOf(sample, key.field);
  return entries.size() == 0 ? 0 : store_.keys()[store_.entries[entries.begin]];
}

std::vector<uint64_t> Dataset::SamplesOfGroups(const GroupKey& key, uint32_t rank,
                                               uint32_t ranks) const {
  std::vector<uint64_t> samples;
  for (uint64_t sample = 0; sample < size(); ++sample) {
    if (Mix64(GroupOf(sample, key)) % ranks == rank) samples.push_back(sample);
  }
  return samples;
}

LabelSummary Dataset::labels(bool first_only) const {
  LabelSummary summary{store_.labels[0], store_.labels[0], true};
  const size_t step = first_only ? store_.shape.label_count : 1;
  for (size_t i = 0; i < store_.labels.size(); i += step) {
    const float label = store_.labels[i];
    summary.min = std::min(summary.min, label);
    summary.max = std::max(summary.max, label);
    summary.integers = summary.integers && label == std::floor(label);
  }
  return summary;
}

}  // namespace pawl
