// Reads the worked bytes in the document of a format, so that a test can compare them with the
// code.
#ifndef PAWL_SERVER_STORAGE_TESTING_WORKED_BYTES_H_
#define PAWL_SERVER_STORAGE_TESTING_WORKED_BYTES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// Joins all lines of the document `file` (a path from the workspace's root) that begin with an
// offset of 8 hex digits: " 00000010  50 41 57 4c   comment". Fails the test process if an offset
// is wrong.
std::string ReadWorkedBytes(absl::string_view file);

// Formats the bytes as lines of such a document.
std::string FormatWorkedBytes(absl::string_view bytes);

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_TESTING_WORKED_BYTES_H_
