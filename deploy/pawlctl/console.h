// What pawlctl says while it works: lines, and on a terminal one line that is drawn anew in place.
#ifndef PAWL_DEPLOY_PAWLCTL_CONSOLE_H_
#define PAWL_DEPLOY_PAWLCTL_CONSOLE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace pawl {

// For one thread.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Whether stdout is a terminal.
  bool is_terminal() const { return is_terminal_; }
  // Characters that a line drawn in place may have.
  size_t width() const;

  // A whole line to stdout, or to stderr after "pawlctl: ".
  void Line(absl::string_view text);
  void Error(absl::string_view text);
  // Terminal: takes the place of what was drawn before.
  void Draw(absl::string_view text);
  // Takes away what was drawn.
  void Clear();

 private:
  const bool is_terminal_;
  bool drawn_ = false;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CONSOLE_H_
