// The bytes that a format's document shows, for the test that they are true.
#ifndef PAWL_SERVER_STORAGE_TESTING_WORKED_BYTES_H_
#define PAWL_SERVER_STORAGE_TESTING_WORKED_BYTES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// All lines of the document `file` (of this folder, or a path from the workspace's root) that begin
// with an offset of 8 hex digits, put together: " 00000010  50 41 57 4c   what it is". Fails the
// test process if an offset is wrong.
std::string ReadWorkedBytes(absl::string_view file);

// The bytes as lines of such a document.
std::string FormatWorkedBytes(absl::string_view bytes);

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_TESTING_WORKED_BYTES_H_
