// The formats whose samples are read one after another: all but IDX.
#ifndef PAWL_WORKER_DATA_SAMPLE_FORMAT_H_
#define PAWL_WORKER_DATA_SAMPLE_FORMAT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/readers/sample_reader.h"

namespace pawl {

// The layout of every sample of the data.
struct SampleLayout {
  // LIBSVM: without its fields, whose number depends on the files.
  DataShape shape;
  bool has_weights = false;
  // The number of entries differs between samples.
  bool has_ragged_entries = false;
  // Fields are lists, so each has a count.
  bool has_lists = false;
};

// INVALID_ARGUMENT naming the field of a bad spec. REQUIRES: the format is not IDX.
absl::StatusOr<SampleLayout> LayoutOf(const Data& spec);

// A reader of a file from its start. Its errors name the file `name`. INVALID_ARGUMENT naming the
// field of a bad spec, or the file if its head (a header line, a schema) is not as the spec needs
// it. `source` outlives the reader. REQUIRES: the format is not IDX.
absl::StatusOr<std::unique_ptr<SampleReader>> OpenSamples(const Data& spec, ByteSource& source,
                                                          const std::string& name);

// A reader of samples from the midst of a file, whose first bytes are `head`: at least those before
// its first sample.
absl::StatusOr<std::unique_ptr<SampleReader>> OpenSamplesBehind(const Data& spec,
                                                                absl::string_view head,
                                                                ByteSource& source,
                                                                const std::string& name,
                                                                const SourceStart& start);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_SAMPLE_FORMAT_H_
