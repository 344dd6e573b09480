// LD_PRELOADed: answers OpenBLAS's question for OPENBLAS_CORETYPE, which it asks before main, with
// the kernels that it takes on a processor model that it does not know. Everything else, and a
// variable that is set, is answered truly.
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
