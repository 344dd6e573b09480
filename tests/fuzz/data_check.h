// What must hold of every reader's result, whatever it was fed.
#ifndef PAWL_TESTS_FUZZ_DATA_CHECK_H_
#define PAWL_TESTS_FUZZ_DATA_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Small enough that an input of libFuzzer's size reaches it.
inline constexpr uint64_t kFuzzMaxBytes = 1 << 18;

// Aborts the process if `condition` is false.
void FuzzCheck(bool condition, const char* what);

// A refusal must be INVALID_ARGUMENT or RESOURCE_EXHAUSTED, with a message of
// decent length and without control characters; a success must leave what
// sample_store.h promises.
void CheckReaderResult(const absl::Status& status, const SampleStore& store);

// The same samples in both.
void CheckSame(const SampleStore& a, const SampleStore& b);

// Gives `piece` bytes at a time. REQUIRES: piece > 0.
std::unique_ptr<ByteSource> InPieces(absl::string_view bytes, size_t piece);

}  // namespace pawl

#endif  // PAWL_TESTS_FUZZ_DATA_CHECK_H_
