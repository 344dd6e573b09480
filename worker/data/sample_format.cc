#include "worker/data/sample_format.h"

#include "client_lib/base/status_macros.h"
#include "worker/data/readers/column_features.h"
#include "worker/data/readers/csv_reader.h"
#include "worker/data/readers/libsvm_reader.h"
#include "worker/data/records/record_reader.h"
#include "worker/data/records/tf_example_reader.h"

namespace pawl {

absl::StatusOr<SampleLayout> LayoutOf(const Data& spec) {
  if (spec.format() == LIBSVM) return SampleLayout{.shape = {}, .has_ragged_entries = true};
  PAWL_ASSIGN_OR_RETURN(const ColumnFeatures features,
                        spec.format() == CSV ? ColumnFeatures::Create(spec.csv())
                                             : ColumnFeatures::Create(spec.records()));
  return SampleLayout{.shape = features.shape(),
                      .has_weights = features.has_weights(),
                      .has_ragged_entries = features.has_lists(),
                      .has_lists = features.has_lists()};
}

absl::StatusOr<std::unique_ptr<SampleReader>> OpenSamples(const Data& spec, ByteSource& source,
                                                          const std::string& name) {
  switch (spec.format()) {
    case CSV:
      return CsvReader::Open(source, name, spec.csv());
    case TFRECORD:
      return TfExampleReader::Open(source, name, spec.records());
    case RECORDS:
      return RecordReader::Open(source, name, spec.records());
    default:
      return std::make_unique<LibsvmReader>(source, name);
  }
}

absl::StatusOr<std::unique_ptr<SampleReader>> OpenSamplesBehind(const Data& spec,
                                                                absl::string_view head,
                                                                ByteSource& source,
                                                                const std::string& name,
                                                                const SourceStart& start) {
  switch (spec.format()) {
    case CSV:
      return CsvReader::OpenBehind(head, source, name, spec.csv(), start.lines);
    case TFRECORD:
      return TfExampleReader::Open(source, name, spec.records(), start);
    case RECORDS:
      return RecordReader::OpenBehind(head, source, name, spec.records(), start);
    default:
      return std::make_unique<LibsvmReader>(source, name, start.lines);
  }
}

}  // namespace pawl
