#include "deploy/pawlctl/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/strip.h"

namespace pawl {
namespace {

constexpr size_t kUnknownWidth = 80;
// Without a terminal every line fits.
constexpr size_t kNoWidth = 4096;

void Put(std::FILE* file, absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace

Console::Console(bool is_quiet)
    : is_quiet_(is_quiet), is_terminal_(!is_quiet && isatty(STDOUT_FILENO) == 1) {}

Console::~Console() { Clear(); }

size_t Console::width() const {
  if (!is_terminal_) return kNoWidth;
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUnknownWidth - 1;
  // A full line would wrap on some terminals.
  return size.ws_col - 1;
}

void Console::Line(absl::string_view text) {
  if (is_quiet_) return;
  Clear();
  Put(stdout, text);
  Put(stdout, "\n");
  std::fflush(stdout);
}

void Console::Text(absl::string_view text) { Line(absl::StripSuffix(text, "\n")); }

void Console::Error(absl::string_view text) {
  Clear();
  Put(stderr, "pawlctl: ");
  Put(stderr, text);
  Put(stderr, "\n");
  std::fflush(stderr);
}

void Console::Draw(absl::string_view text) {
  if (!is_terminal_) return;
  Put(stdout, "\r");
  Put(stdout, text);
  Put(stdout, "\x1b[K");
  std::fflush(stdout);
  drawn_ = true;
}

void Console::Clear() {
  if (!drawn_) return;
  Put(stdout, "\r\x1b[K");
  std::fflush(stdout);
  drawn_ = false;
}

int ReportError(const absl::Status& error) {
  Console().Error(error.message());
  return ExitCodeOf(error);
}

}  // namespace pawl
