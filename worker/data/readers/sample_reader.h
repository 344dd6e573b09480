// Reads one sample after another from a file.
#ifndef PAWL_WORKER_DATA_READERS_SAMPLE_READER_H_
#define PAWL_WORKER_DATA_READERS_SAMPLE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Where the bytes of a source begin in their file.
struct SourceStart {
  uint64_t offset = 0;  // in the decompressed bytes
  uint64_t lines = 0;   // lines before it, or records
};

// Not thread-safe.
class SampleReader {
 public:
  virtual ~SampleReader() = default;

  // Appends the next sample to *store; false after the last. INVALID_ARGUMENT naming file, line and
  // column for a malformed sample: the samples in *store are unchanged then. If IsAtSample() is
  // then true, the next call continues behind it; otherwise, and after other errors, the reader is
  // unusable.
  virtual absl::StatusOr<bool> Next(SampleStore* store) = 0;
  // Passes over the next sample, malformed or not, in less time. False after the last. Errors are
  // those of the source.
  virtual absl::StatusOr<bool> Skip() = 0;

  // After an error of Next: it concerns one sample only.
  virtual bool IsAtSample() const = 0;
  // The position behind the last sample, or behind the head of the file (a header line, a schema)
  // before the first: bytes of the source, and lines of the file, or records.
  virtual uint64_t offset() const = 0;
  virtual uint64_t lines() const = 0;
  // Whether another reader can begin at offset(). Otherwise it is within a block of samples.
  virtual bool IsAtBoundary() const { return true; }
  // The largest number of entries of a sample so far, for formats in which it varies; otherwise 0.
  virtual uint64_t most_entries() const { return 0; }
  // The memory of what the reader keeps, if that grows with the data; otherwise 0.
  virtual uint64_t memory_bytes() const { return 0; }
};

// Counts malformed samples, up to a limit.
class BadSamples {
 public:
  // So many are kept to be shown.
  static constexpr size_t kMaxShown = 5;

  // The remedy for training data, whose malformed samples can be skipped.
  static constexpr absl::string_view kTrainingRemedy =
      "; correct it, or set data.max_bad_samples to skip malformed samples";

  // `remedy` ends the description of a sample that is refused.
  explicit BadSamples(uint64_t limit = 0, absl::string_view remedy = "")
      : limit_(limit), remedy_(remedy) {}

  // Counts samples; `example` describes one of them. Returns the first example once they exceed
  // the limit.
  absl::Status Add(uint64_t count, const std::string& example);

  uint64_t count() const { return count_; }
  const std::vector<std::string>& shown() const { return shown_; }

 private:
  const uint64_t limit_;
  const std::string remedy_;
  uint64_t count_ = 0;
  std::vector<std::string> shown_;
};

// Reads all samples. RESOURCE_EXHAUSTED, naming `file`, beyond a limit of the store.
absl::Status ReadSamples(SampleReader& reader, absl::string_view file, SampleStore* store,
                         BadSamples* bad);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_SAMPLE_READER_H_
