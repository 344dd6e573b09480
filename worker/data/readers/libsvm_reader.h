// The LIBSVM format: one sample per line, "label index:value index:value ...".
#ifndef PAWL_WORKER_DATA_READERS_LIBSVM_READER_H_
#define PAWL_WORKER_DATA_READERS_LIBSVM_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Limit of pairs per line.
inline constexpr uint32_t kMaxLibsvmPairs = 1 << 16;

// Appends the samples to *store. Blanks and tabs separate; '#' starts a comment; empty lines are
// skipped. The index (0 to 2^64 - 1, in any order) is the key and the value is the entry's weight.
// Labels are stored unchanged.
//
// `fields` is the number of categorical fields of a sample; pairs beyond it belong to the last
// field. 0: as many as the longest line has pairs, at least 1. INVALID_ARGUMENT naming file, line
// and column of malformed data.
absl::Status ReadLibsvm(ByteSource& source, const std::string& name, uint32_t fields,
                        SampleStore* store);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_LIBSVM_READER_H_
