// NumPy's format for one array: model_format.md has its bytes.
#ifndef PAWL_SERVER_EXPORT_NPY_WRITER_H_
#define PAWL_SERVER_EXPORT_NPY_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/env.h"

namespace pawl {

// The elements of the arrays that there are, little-endian.
enum class NpyType { kFloat32, kUint64 };

// Writes one array of a known shape from its first element to its last, in C order. Not
// thread-safe.
class NpyWriter {
 public:
  // `env` outlives this.
  static absl::StatusOr<std::unique_ptr<NpyWriter>> Create(Env& env, const std::string& path,
                                                           NpyType type,
                                                           absl::Span<const uint64_t> shape);

  // The next elements, whole or not. OUT_OF_RANGE beyond what the shape holds. After an error the
  // file is of no use.
  absl::Status Append(absl::string_view bytes);
  // All elements are there: the file is durable, its name once its folder is synced. INTERNAL if
  // some are missing.
  absl::Status Finish();

  // Of the whole file.
  uint64_t file_bytes() const { return file_->size(); }

 private:
  NpyWriter(std::string path, std::unique_ptr<WritableFile> file, uint64_t missing)
      : path_(std::move(path)), file_(std::move(file)), missing_(missing) {}

  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  // Bytes of elements that are still to come.
  uint64_t missing_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_NPY_WRITER_H_
