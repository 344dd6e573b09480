#include "worker/data/readers/line_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/text_input.h"

namespace pawl {

LineReader::LineReader(ByteSource& source, std::string name, uint64_t lines_before)
    : source_(source), name_(std::move(name)), buffer_(kBufferBytes), line_number_(lines_before) {}

absl::Status LineReader::Refill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  PAWL_ASSIGN_OR_RETURN(const size_t count,
                        source_.Read(buffer_.data() + end_, buffer_.size() - end_));
  end_ += count;
  read_ += count;
  at_end_ = count == 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> LineReader::Next(absl::string_view* line) {
  size_t searched = 0;
  for (;;) {
    const char* const begin = buffer_.data() + begin_;
    const size_t unread = end_ - begin_;
    const char* newline =
        unread == searched
            ? nullptr
            : static_cast<const char*>(std::memchr(begin + searched, '\n', unread - searched));
    if (newline == nullptr && at_end_) {
      if (unread == 0) return false;
      newline = begin + unread;
    }
    if (discards_) {
      if (newline == nullptr) {
        begin_ = end_;
      } else {
        discards_ = false;
        begin_ = std::min(end_, static_cast<size_t>(newline - buffer_.data()) + 1);
      }
      searched = 0;
      if (!discards_) continue;
      if (absl::Status status = Refill(); !status.ok()) {
        discards_ = false;
        return status;
      }
      continue;
    }
    // The end of a line takes at most two bytes.
    if (newline == nullptr && unread < kMaxLineBytes + 2) {
      searched = unread;
      PAWL_RETURN_IF_ERROR(Refill());
      continue;
    }
    ++line_number_;
    size_t length = newline == nullptr ? unread : static_cast<size_t>(newline - begin);
    if (length > 0 && begin[length - 1] == '\r') --length;
    if (newline == nullptr || length > kMaxLineBytes) {
      discards_ = true;
      return MalformedAt(name_, line_number_, 1,
                         absl::StrCat("the line is longer than ", kMaxLineBytes, " bytes"));
    }
    *line = absl::string_view(begin, length);
    begin_ =
        newline == buffer_.data() + end_ ? end_ : static_cast<size_t>(newline - buffer_.data()) + 1;
    return true;
  }
}

}  // namespace pawl
