// A program with one failpoint for failpoint_binary_test, linked once as in production and once as
// in tests.
#include <cstdio>

#include "client_lib/base/failpoint.h"

int main() {
  std::printf("%s\n", PAWL_FAILPOINT("probe.here") ? "failed" : "passed");
  return 0;
}
