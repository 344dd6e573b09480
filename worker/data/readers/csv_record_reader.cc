#include "worker/data/readers/csv_record_reader.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <bit>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/text_input.h"

namespace pawl {

absl::StatusOr<bool> CsvRecordReader::NextLine(absl::string_view* line) {
  fields_.clear();
  places_.clear();
  has_malformed_record_ = false;
  do {
    const absl::StatusOr<bool> more = lines_.Next(line);
    has_malformed_record_ = !more.ok() && lines_.discards();
    first_line_ = lines_.line_number();
    if (!more.ok() || !*more) return more;
    if (lines_.line_number() == 1) absl::ConsumePrefix(line, "\xef\xbb\xbf");
  } while (line->empty());
  return true;
}

bool CsvRecordReader::IsPlain(absl::string_view line) const {
  return !dialect_.quotes || std::memchr(line.data(), '"', line.size()) == nullptr;
}

absl::StatusOr<bool> CsvRecordReader::Next() {
  absl::string_view line;
  const absl::StatusOr<bool> more = NextLine(&line);
  if (!more.ok() || !*more) return more;
  if (IsPlain(line)) {
    SplitPlain(line);
  } else {
    PAWL_RETURN_IF_ERROR(SplitQuoted(line));
  }
  return true;
}

absl::StatusOr<bool> CsvRecordReader::Skip() {
  absl::string_view line;
  const absl::StatusOr<bool> more = NextLine(&line);
  if (!more.ok() || !*more) return more;
  if (!IsPlain(line)) PAWL_RETURN_IF_ERROR(SplitQuoted(line));
  return true;
}

void CsvRecordReader::SplitPlain(absl::string_view line) {
  const char* begin = line.data();
  const char* const end = begin + line.size();
  const char delimiter = dialect_.delimiter;
  const char* at = begin;
#ifdef __SSE2__
  const __m128i delimiters = _mm_set1_epi8(delimiter);
  for (; end - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    auto found = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, delimiters)));
    for (; found != 0; found &= found - 1) {
      const char* const field_end = at + std::countr_zero(found);
      fields_.emplace_back(begin, static_cast<size_t>(field_end - begin));
      begin = field_end + 1;
    }
  }
#endif
  // Fields are a few bytes long: a plain loop is faster than memchr for each.
  for (; at != end; ++at) {
    if (*at != delimiter) continue;
    fields_.emplace_back(begin, static_cast<size_t>(at - begin));
    begin = at + 1;
  }
  fields_.emplace_back(begin, static_cast<size_t>(end - begin));
}

absl::Status CsvRecordReader::SplitQuoted(absl::string_view line) {
  unquoted_.clear();
  field_ends_.clear();
  size_t at = 0;
  const auto malformed = [&](size_t column, absl::string_view what) {
    has_malformed_record_ = true;
    return MalformedAt(lines_.name(), lines_.line_number(), column + 1, what);
  };
  for (;;) {  // once per field
    places_.push_back({lines_.line_number(), at + 1});
    if (at < line.size() && line[at] == '"') {
      ++at;
      for (;;) {  // once per character or line end
        if (at == line.size()) {
          const absl::StatusOr<bool> more = lines_.Next(&line);
          if (!more.ok()) {
            has_malformed_record_ = lines_.discards();
            return more.status();
          }
          if (!*more) {
            has_malformed_record_ = true;
            return MalformedAt(lines_.name(), places_.back().line, places_.back().column,
                               "the quote is never closed");
          }
          unquoted_.push_back('\n');
          at = 0;
          if (unquoted_.size() + line.size() > LineReader::kMaxLineBytes) {
            has_malformed_record_ = true;
            return MalformedRecord(absl::StrCat("the record that starts here is longer than ",
                                                LineReader::kMaxLineBytes, " bytes"));
          }
          continue;
        }
        if (line[at] != '"') {
          unquoted_.push_back(line[at++]);
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          unquoted_.push_back('"');
          at += 2;
        } else {
          ++at;
          break;
        }
      }
      if (at < line.size() && line[at] != dialect_.delimiter)
        return malformed(at, "text after the closing quote");
    } else {
      for (; at < line.size() && line[at] != dialect_.delimiter; ++at) {
        if (line[at] == '"') return malformed(at, "a quote in an unquoted field");
        unquoted_.push_back(line[at]);
      }
    }
    field_ends_.push_back(unquoted_.size());
    if (at == line.size()) break;
    ++at;  // the delimiter
  }
  size_t begin = 0;
  for (const size_t end : field_ends_) {
    fields_.push_back(absl::string_view(unquoted_).substr(begin, end - begin));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status CsvRecordReader::MalformedField(size_t field, absl::string_view what) const {
  if (!places_.empty())
    return MalformedAt(lines_.name(), places_[field].line, places_[field].column, what);
  return MalformedAt(lines_.name(), first_line_,
                     static_cast<uint64_t>(fields_[field].data() - fields_[0].data()) + 1, what);
}

absl::Status CsvRecordReader::MalformedRecord(absl::string_view what) const {
  return MalformedAt(lines_.name(), first_line_, 1, what);
}

}  // namespace pawl
