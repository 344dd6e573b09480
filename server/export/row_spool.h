// Collects the rows of partitions, which have no order, and merges them into ascending order of
// their keys.
#ifndef PAWL_SERVER_EXPORT_ROW_SPOOL_H_
#define PAWL_SERVER_EXPORT_ROW_SPOOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/env.h"

namespace pawl {

// The memory of Merge for all runs together, and the size of one write or output.
inline constexpr size_t kMergeBytes = size_t{64} << 20;
inline constexpr size_t kSpoolChunkBytes = size_t{1} << 20;

// A temporary file that is first written and then read, so that a table of any size needs memory
// only for its largest partition. Call Add and AddRun first, then EndAdding, then Copy and Merge.
// Not thread-safe.
class RowSpool {
 public:
  // Rows in ascending order of their keys.
  struct Run {
    uint64_t keys_begin = 0;
    uint64_t rows_begin = 0;
    uint64_t count = 0;
  };
  using Sink = absl::FunctionRef<absl::Status(absl::string_view bytes)>;

  // `env` outlives this. The owner of the folder deletes the file.
  static absl::StatusOr<std::unique_ptr<RowSpool>> Create(Env& env, const std::string& path);

  // Appends the bytes and returns their offset.
  absl::StatusOr<uint64_t> Add(absl::string_view bytes);
  // `read` copies the rows of a range of `keys` to `out`. REQUIRES: the keys ascend.
  absl::StatusOr<Run> AddRun(
      absl::Span<const uint64_t> keys, size_t row_bytes,
      absl::FunctionRef<void(absl::Span<const uint64_t> keys, char* out)> read);
  absl::Status EndAdding();

  absl::Status Copy(uint64_t begin, uint64_t bytes, Sink sink) const;
  // Emits the rows of all runs in ascending order of the key, piece by piece: `keys` gets the keys
  // and `rows` the rows. No two runs may have a key in common.
  absl::Status Merge(absl::Span<const Run> runs, size_t row_bytes, Sink keys, Sink rows) const;

 private:
  RowSpool(Env& env, std::string path, std::unique_ptr<WritableFile> file)
      : env_(env), path_(std::move(path)), file_(std::move(file)) {}
  absl::Status Read(uint64_t begin, absl::Span<char> out) const;

  Env& env_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::unique_ptr<ReadableFile> reader_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_ROW_SPOOL_H_
