// Reads samples from a comma-separated file.
#ifndef PAWL_WORKER_DATA_READERS_CSV_READER_H_
#define PAWL_WORKER_DATA_READERS_CSV_READER_H_

#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Appends the samples to *store. The first line is the header. INVALID_ARGUMENT naming the spec's
// field for a bad spec, or file, line and column of malformed data.
absl::Status ReadCsv(ByteSource& source, const std::string& name, const CsvSpec& spec,
                     SampleStore* store);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_CSV_READER_H_
