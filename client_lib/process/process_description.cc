#include "client_lib/process/process_description.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"

namespace pawl {

std::string ProcessDescription() {
  char host[256] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(BoundedText(host, sizeof(host)), ":", getpid());
}

}  // namespace pawl
