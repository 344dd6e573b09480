#include "worker/data/readers/libsvm_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/text_input.h"

namespace pawl {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

const char* SkipBlanks(const char* at, const char* end) {
  while (at != end && IsBlank(*at)) ++at;
  return at;
}

const char* EndOfWord(const char* at, const char* end) {
  while (at != end && !IsBlank(*at)) ++at;
  return at;
}

absl::string_view Word(const char* begin, const char* end) {
  return absl::string_view(begin, static_cast<size_t>(end - begin));
}

// Parses the pair that begins at *at, and moves *at to its end.
bool ParsePair(const char** at, const char* end, uint64_t* index, float* value) {
  const std::from_chars_result result = std::from_chars(*at, end, *index);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != ':') return false;
  const char* const begin = result.ptr + 1;
  // Most values are a single "1".
  if (begin != end && *begin == '1' && (begin + 1 == end || IsBlank(begin[1]))) {
    *value = 1;
    *at = begin + 1;
    return true;
  }
  *at = EndOfWord(begin, end);
  return ParseFloat(Word(begin, *at), value);
}

// "qid:" and a number.
bool ParseQueryId(absl::string_view word, uint64_t* id) {
  if (!absl::StartsWith(word, "qid:")) return false;
  const char* const end = word.data() + word.size();
  const std::from_chars_result result = std::from_chars(word.data() + 4, end, *id);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

absl::Status LibsvmReader::Malformed(const char* at, const char* line,
                                     absl::string_view what) const {
  return MalformedAt(lines_.name(), lines_.line_number(), static_cast<uint64_t>(at - line) + 1,
                     what);
}

absl::StatusOr<bool> LibsvmReader::NextLine(absl::string_view* line) {
  for (;;) {
    const absl::StatusOr<bool> more = lines_.Next(line);
    if (!more.ok() || !*more) return more;
    const char* const begin = line->data();
    const char* const end = begin + line->size();
    const char* const first = SkipBlanks(begin, end);
    if (first != end && *first != '#') return true;
  }
}

absl::StatusOr<bool> LibsvmReader::Skip() {
  absl::string_view line;
  const absl::StatusOr<bool> more = NextLine(&line);
  if (!more.ok() && lines_.discards()) return true;
  return more;
}

absl::StatusOr<bool> LibsvmReader::Next(SampleStore* store) {
  if (store->sample_begin.empty()) store->sample_begin.push_back(0);
  is_at_sample_ = false;
  absl::string_view line;
  const absl::StatusOr<bool> more = NextLine(&line);
  if (!more.ok()) {
    is_at_sample_ = lines_.discards();
    return more;
  }
  if (!*more) return false;
  const uint64_t entries = store->entry_count();
  const bool has_weights = !store->weights.empty();
  const absl::Status status = Parse(line, store);
  if (!status.ok()) {
    store->TruncateEntries(entries);
    if (!has_weights) store->weights.clear();
    is_at_sample_ = true;
    return status;
  }
  return true;
}

absl::Status LibsvmReader::Parse(absl::string_view line, SampleStore* store) {
  const char* const begin = line.data();
  const void* const comment = std::memchr(begin, '#', line.size());
  const char* const end =
      comment == nullptr ? begin + line.size() : static_cast<const char*>(comment);
  const char* at = SkipBlanks(begin, end);
  const char* word_end = EndOfWord(at, end);
  float label = 0;
  absl::string_view word = Word(at, word_end);
  float sample_weight = 1;
  if (const size_t colon = word.find(':'); colon != absl::string_view::npos) {
    const absl::string_view weight = word.substr(colon + 1);
    if (!ParseFloat(weight, &sample_weight) || sample_weight < 0) {
      return Malformed(at + colon + 1, begin,
                       absl::StrCat("the weight ", Quoted(weight),
                                    " of the sample is not a number of at least 0"));
    }
    word = word.substr(0, colon);
  }
  if (!ParseFloat(word, &label))
    return Malformed(at, begin, absl::StrCat("the label ", Quoted(word), " is not a number"));
  at = SkipBlanks(word_end, end);
  uint64_t query_id = 0;
  if (at != end && *at == 'q') {
    word_end = EndOfWord(at, end);
    if (ParseQueryId(Word(at, word_end), &query_id)) at = SkipBlanks(word_end, end);
  }
  uint64_t pairs = 0;
  while (at != end) {
    const char* const word = at;
    uint64_t index = 0;
    float value = 0;
    if (!ParsePair(&at, end, &index, &value)) {
      return Malformed(
          word, begin,
          absl::StrCat(Quoted(Word(word, EndOfWord(word, end))), " is not an index:value pair"));
    }
    if (++pairs > kMaxLibsvmPairs) {
      return Malformed(word, begin,
                       absl::StrCat("the line has more than ", kMaxLibsvmPairs, " pairs"));
    }
    store->AddEntry(index);
    // Weights are stored only from the first one on that is not 1.
    if (!store->weights.empty()) {
      store->weights.push_back(value);
    } else if (value != 1) {
      store->weights.assign(store->entry_count() - 1, 1);
      store->weights.push_back(value);
    }
    at = SkipBlanks(at, end);
  }
  most_entries_ = std::max(most_entries_, pairs);
  // Stored only from the first one on that is not 0.
  if (query_id != 0 || !store->query_ids.empty()) {
    store->query_ids.resize(store->labels.size());
    store->query_ids.push_back(query_id);
  }
  // As those of entries.
  if (!store->sample_weights.empty()) {
    store->sample_weights.push_back(sample_weight);
  } else if (sample_weight != 1) {
    store->sample_weights.assign(store->labels.size(), 1);
    store->sample_weights.push_back(sample_weight);
  }
  store->labels.push_back(label);
  store->sample_begin.push_back(store->entry_count());
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> LibsvmFields(uint32_t fields, uint64_t most_entries,
                                      absl::string_view file) {
  if (fields != 0) return fields;
  if (most_entries > SampleStore::kMaxFields) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": a line has ", most_entries,
                     " pairs, too many for one field each (the limit is ", SampleStore::kMaxFields,
                     "); set data.libsvm_fields: with 1 all pairs of a line are one field"));
  }
  return static_cast<uint32_t>(std::max<uint64_t>(most_entries, 1));
}

}  // namespace pawl
