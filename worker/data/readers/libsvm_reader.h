// The LIBSVM format: one sample per line, "label index:value index:value ..." or "label:weight
// index:value ...".
#ifndef PAWL_WORKER_DATA_READERS_LIBSVM_READER_H_
#define PAWL_WORKER_DATA_READERS_LIBSVM_READER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/readers/line_reader.h"
#include "worker/data/readers/sample_reader.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Limit of pairs per line.
inline constexpr uint32_t kMaxLibsvmPairs = 1 << 16;

// Blanks and tabs separate; '#' starts a comment; empty lines are skipped. The index (0 to 2^64 -
// 1, in any order) is the key and the value is the entry's weight. Labels are stored unchanged. The
// weight of a sample is at least 0. A "qid:number" after the label, which groups samples of ranking
// tasks, is kept for evaluations.
class LibsvmReader final : public SampleReader {
 public:
  // `source` must outlive the reader. Errors name the file `name`. `lines_before`: the lines of the
  // file before the source's first one.
  LibsvmReader(ByteSource& source, std::string name, uint64_t lines_before = 0)
      : lines_(source, std::move(name), lines_before) {}

  absl::StatusOr<bool> Next(SampleStore* store) override;
  absl::StatusOr<bool> Skip() override;
  bool IsAtSample() const override { return is_at_sample_; }
  uint64_t offset() const override { return lines_.offset(); }
  uint64_t lines() const override { return lines_.line_number(); }
  bool IsAtBoundary() const override { return !lines_.discards(); }
  uint64_t most_entries() const override { return most_entries_; }

 private:
  // Sets *line to the next one with a sample. False after the last.
  absl::StatusOr<bool> NextLine(absl::string_view* line);
  absl::Status Parse(absl::string_view line, SampleStore* store);
  absl::Status Malformed(const char* at, const char* line, absl::string_view what) const;

  LineReader lines_;
  bool is_at_sample_ = false;
  uint64_t most_entries_ = 0;
};

// The number of fields of data whose setting is `fields` (data.libsvm_fields) and whose longest
// line has `most_entries` pairs. INVALID_ARGUMENT, naming `file`, beyond the limit.
absl::StatusOr<uint32_t> LibsvmFields(uint32_t fields, uint64_t most_entries,
                                      absl::string_view file);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_LIBSVM_READER_H_
