#include "client_lib/c/error.h"

#include <string>

#include "client_lib/c/pawl.h"

namespace pawl::c {
namespace {

thread_local std::string last_error;

}  // namespace

int Fail(const absl::Status& status) {
  last_error = std::string(status.message());
  return static_cast<int>(status.code());
}

}  // namespace pawl::c

const char* pawl_error(void) { return pawl::c::last_error.c_str(); }
