// Assertions and fragmented inputs for fuzz targets.
#ifndef PAWL_TESTS_FUZZ_FUZZ_CHECK_H_
#define PAWL_TESTS_FUZZ_FUZZ_CHECK_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "client_lib/base/bytes.h"

namespace pawl {

// Aborts the process if `condition` is false.
void FuzzCheck(bool condition, const char* what);

// Bytes in fragments with memory of their own, so that reads beyond a fragment's end are detected.
class Fragments {
 public:
  // REQUIRES: fragment_size > 0.
  Fragments(std::string_view bytes, size_t fragment_size);

  // Valid while this object lives.
  const ByteView& view() const { return view_; }

 private:
  std::vector<std::unique_ptr<char[]>> memory_;
  ByteView view_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_FUZZ_FUZZ_CHECK_H_
