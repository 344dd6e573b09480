// The text of the latest error of each thread, which pawl_error returns.
#ifndef PAWL_CLIENT_LIB_C_ERROR_H_
#define PAWL_CLIENT_LIB_C_ERROR_H_

#include "absl/status/status.h"

namespace pawl::c {

// Remembers the text for this thread and returns the status's pawl_code.
int Fail(const absl::Status& status);

}  // namespace pawl::c

#endif  // PAWL_CLIENT_LIB_C_ERROR_H_
