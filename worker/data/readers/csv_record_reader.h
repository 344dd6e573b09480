// Reads the records of a comma-separated file (RFC 4180).
#ifndef PAWL_WORKER_DATA_READERS_CSV_RECORD_READER_H_
#define PAWL_WORKER_DATA_READERS_CSV_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/readers/line_reader.h"

namespace pawl {

// Fields may be quoted, with "" for a quote; they may then contain commas and line breaks (which
// read as "\n"). Skips empty lines, and a byte order mark at the start of the file.
//
// Not thread-safe.
class CsvRecordReader {
 public:
  // `source` must outlive the reader. Errors name the file `name`.
  CsvRecordReader(ByteSource& source, std::string name) : lines_(source, std::move(name)) {}

  // Reads the next record; false after the last. INVALID_ARGUMENT for a misplaced or unclosed
  // quote, or a record above LineReader::kMaxLineBytes.
  absl::StatusOr<bool> Next();

  // The fields of the record, valid until the next call of Next.
  const std::vector<absl::string_view>& fields() const { return fields_; }

  // INVALID_ARGUMENT "file:line:column: what" for the start of field `field`.
  absl::Status MalformedField(size_t field, absl::string_view what) const;
  // The same for the line on which the record starts.
  absl::Status MalformedRecord(absl::string_view what) const;

 private:
  struct Place {
    uint64_t line;
    uint64_t column;
  };

  void SplitPlain(absl::string_view line);
  absl::Status SplitQuoted(absl::string_view line);

  LineReader lines_;
  std::vector<absl::string_view> fields_;
  uint64_t first_line_ = 0;
  // For a record with quotes: its text without them, and where its fields begin in the file.
  std::string unquoted_;
  std::vector<size_t> field_ends_;
  std::vector<Place> places_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_CSV_RECORD_READER_H_
