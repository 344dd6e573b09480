// A program with one failpoint, for failpoint_binary_test: linked once as production is and once as
// tests are.
#include <cstdio>

#include "client_lib/base/failpoint.h"

int main() {
  std::printf("%s\n", PAWL_FAILPOINT("probe.here") ? "failed" : "passed");
  return 0;
}
