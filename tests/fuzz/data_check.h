// Properties that every reader's result must have for any input.
#ifndef PAWL_TESTS_FUZZ_DATA_CHECK_H_
#define PAWL_TESTS_FUZZ_DATA_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_check.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/sample_store.h"

namespace pawl {

// Small enough for libFuzzer's inputs to reach it.
inline constexpr uint64_t kFuzzMaxBytes = 1 << 18;

// A refusal must be INVALID_ARGUMENT or RESOURCE_EXHAUSTED with a message of bounded length without
// control characters. A success must keep the promises of sample_store.h.
void CheckReaderResult(const absl::Status& status, const SampleStore& store);

// Checks that both hold the same samples.
void CheckSame(const SampleStore& a, const SampleStore& b);

// Checks that what a source made by `open` gives does not depend on the sizes of reads and writes.
using OpenSource = std::unique_ptr<ByteSource> (*)(std::unique_ptr<ByteSource> compressed);
void CheckDecompression(absl::string_view compressed, OpenSource open);

// Returns `piece` bytes at a time. REQUIRES: piece > 0.
std::unique_ptr<ByteSource> InPieces(absl::string_view bytes, size_t piece);

}  // namespace pawl

#endif  // PAWL_TESTS_FUZZ_DATA_CHECK_H_
