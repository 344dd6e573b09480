// Reads the records of a file of separated values (RFC 4180).
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

struct CsvDialect {
  char delimiter = ',';
  // Whether fields may be quoted, with "" for a quote. They may then contain delimiters and line
  // breaks (which read as "\n").
  bool quotes = true;
};

// Skips empty lines, and a byte order mark at the start of the file.
//
// Not thread-safe.
class CsvRecordReader {
 public:
  // `source` must outlive the reader. Errors name the file `name`. `lines_before`: as in
  // LineReader.
  CsvRecordReader(ByteSource& source, std::string name, CsvDialect dialect = {},
                  uint64_t lines_before = 0)
      : dialect_(dialect), lines_(source, std::move(name), lines_before) {}

  // Reads the next record; false after the last. INVALID_ARGUMENT for a misplaced or unclosed
  // quote, or a record above LineReader::kMaxLineBytes; the next call continues with the line after
  // the one where it was noticed. Other errors are those of the source.
  absl::StatusOr<bool> Next();

  // Passes over the next record, with the same errors, in less time.
  absl::StatusOr<bool> Skip();

  // After an error of Next or Skip: it concerns one record, and not the source.
  bool has_malformed_record() const { return has_malformed_record_; }

  // The fields of the record, valid until the next call of Next.
  const std::vector<absl::string_view>& fields() const { return fields_; }

  // The number of the record's last line, and the bytes of the source up to its end.
  uint64_t line_number() const { return lines_.line_number(); }
  uint64_t offset() const { return lines_.offset(); }
  // Whether offset() is the start of a line that is too long, whose rest the next call passes over.
  bool is_within_line() const { return lines_.discards(); }

  // INVALID_ARGUMENT "file:line:column: what" for the start of field `field`.
  absl::Status MalformedField(size_t field, absl::string_view what) const;
  // The same for the line on which the record starts.
  absl::Status MalformedRecord(absl::string_view what) const;

 private:
  struct Place {
    uint64_t line;
    uint64_t column;
  };

  // Reads the first line of the next record. False after the last.
  absl::StatusOr<bool> NextLine(absl::string_view* line);
  bool IsPlain(absl::string_view line) const;
  void SplitPlain(absl::string_view line);
  absl::Status SplitQuoted(absl::string_view line);

  const CsvDialect dialect_;
  LineReader lines_;
  std::vector<absl::string_view> fields_;
  uint64_t first_line_ = 0;
  bool has_malformed_record_ = false;
  // For a record with quotes: its text without them, and where its fields begin in the file.
  std::string unquoted_;
  std::vector<size_t> field_ends_;
  std::vector<Place> places_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_CSV_RECORD_READER_H_
