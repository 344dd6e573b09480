#include "worker/data/readers/libsvm_reader.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/line_reader.h"
#include "worker/data/readers/text_input.h"

namespace pawl {
namespace {

// Removes and returns the next word of *rest; empty if there is none.
absl::string_view NextWord(absl::string_view* rest) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const char* begin = std::find_if_not(rest->begin(), rest->end(), is_blank);
  const char* end = std::find_if(begin, rest->end(), is_blank);
  rest->remove_prefix(static_cast<size_t>(end - rest->begin()));
  return absl::string_view(begin, static_cast<size_t>(end - begin));
}

bool ParsePair(absl::string_view word, uint64_t* index, float* value) {
  const char* const end = word.data() + word.size();
  const std::from_chars_result result = std::from_chars(word.data(), end, *index);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != ':') return false;
  return ParseFloat(absl::string_view(result.ptr + 1, static_cast<size_t>(end - result.ptr - 1)),
                    value);
}

}  // namespace

absl::Status ReadLibsvm(ByteSource& source, const std::string& name, uint32_t fields,
                        SampleStore* store) {
  LineReader lines(source, name);
  absl::string_view line;
  uint64_t longest = 0;
  bool all_ones = true;
  if (store->sample_begin.empty()) store->sample_begin.push_back(0);
  for (;;) {
    PAWL_ASSIGN_OR_RETURN(const bool more, lines.Next(&line));
    if (!more) break;
    const auto malformed = [&](absl::string_view word, absl::string_view what) {
      return MalformedAt(name, lines.line_number(),
                         static_cast<uint64_t>(word.data() - line.data()) + 1, what);
    };
    absl::string_view rest = line.substr(0, line.find('#'));
    const absl::string_view label_word = NextWord(&rest);
    if (label_word.empty()) continue;
    float label = 0;
    if (!ParseFloat(label_word, &label)) {
      return malformed(label_word,
                       absl::StrCat("the label ", Quoted(label_word), " is not a number"));
    }
    store->labels.push_back(label);
    uint64_t pairs = 0;
    for (absl::string_view word = NextWord(&rest); !word.empty(); word = NextWord(&rest)) {
      uint64_t index = 0;
      float value = 0;
      if (!ParsePair(word, &index, &value)) {
        return malformed(word, absl::StrCat(Quoted(word), " is not an index:value pair"));
      }
      if (++pairs > kMaxLibsvmPairs) {
        return malformed(word, absl::StrCat("the line has more than ", kMaxLibsvmPairs, " pairs"));
      }
      store->entries.push_back(store->Intern(index));
      // Weights are stored only from the first one on that is not 1.
      if (all_ones && value != 1) {
        store->weights.assign(store->entries.size() - 1, 1);
        all_ones = false;
      }
      if (!all_ones) store->weights.push_back(value);
    }
    longest = std::max(longest, pairs);
    store->sample_begin.push_back(store->entries.size());
    PAWL_RETURN_IF_ERROR(store->CheckLimits(name));
  }
  if (fields == 0 && longest > SampleStore::kMaxFields) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": a line has ", longest,
                     " pairs, too many for one field each (the limit is ", SampleStore::kMaxFields,
                     "); set data.libsvm_fields: with 1 all pairs of a line are one field"));
  }
  store->shape.field_count =
      fields != 0 ? fields : static_cast<uint32_t>(std::max<uint64_t>(longest, 1));
  return absl::OkStatus();
}

}  // namespace pawl
