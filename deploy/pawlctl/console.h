// pawlctl's output: lines, and on a terminal one progress line that is redrawn in place.
#ifndef PAWL_DEPLOY_PAWLCTL_CONSOLE_H_
#define PAWL_DEPLOY_PAWLCTL_CONSOLE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/pawlctl/exit_code.h"

namespace pawl {

// Not thread-safe.
class Console {
 public:
  // A quiet console prints errors only.
  explicit Console(bool is_quiet = false);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Whether stdout is a terminal.
  bool is_terminal() const { return is_terminal_; }
  // The number of characters that fit into the progress line.
  size_t width() const;

  // Prints a line to stdout.
  void Line(absl::string_view text);
  // Prints text to stdout that ends with one line break, whether `text` has it or not.
  void Text(absl::string_view text);
  // Prints a line to stderr, after "pawlctl: ".
  void Error(absl::string_view text);
  // Replaces the progress line. Does nothing without a terminal.
  void Draw(absl::string_view text);
  // Removes the progress line.
  void Clear();

 private:
  const bool is_quiet_;
  const bool is_terminal_;
  bool drawn_ = false;
};

// Prints the error. Returns its exit code.
int ReportError(const absl::Status& error);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CONSOLE_H_
