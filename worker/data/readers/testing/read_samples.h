// Whole files of a format, read into memory by its reader.
#ifndef PAWL_WORKER_DATA_READERS_TESTING_READ_SAMPLES_H_
#define PAWL_WORKER_DATA_READERS_TESTING_READ_SAMPLES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Appends the samples to *store. The first line is the header, unless spec.no_header.
// INVALID_ARGUMENT naming the spec's field for a bad spec, or file, line and column of malformed
// data.
absl::Status ReadCsv(ByteSource& source, const std::string& name, const CsvSpec& spec,
                     SampleStore* store);

// Appends the samples to *store.
//
// `fields` is the number of categorical fields of a sample; pairs beyond it belong to the last
// field. 0: as many as the longest line has pairs, at least 1. INVALID_ARGUMENT naming file, line
// and column of malformed data.
absl::Status ReadLibsvm(ByteSource& source, const std::string& name, uint32_t fields,
                        SampleStore* store);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_TESTING_READ_SAMPLES_H_
