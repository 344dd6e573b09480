// Used with LD_PRELOAD: answers OpenBLAS's query of OPENBLAS_CORETYPE, before main, with the
// kernels that it uses on an unknown processor model. All other queries, and a variable that is
// set, get the true answer.
#include <cstring>

extern "C" char** environ;

extern "C" char* getenv(const char* name) {
  static bool has_asked = false;
  static char fallback[] = "Prescott";
  const size_t length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
      return *entry + length + 1;
  }
  if (has_asked || std::strcmp(name, "OPENBLAS_CORETYPE") != 0) return nullptr;
  has_asked = true;
  return fallback;
}
