// Writes arrays in NumPy's format; model_format.md describes the bytes.
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

// The element types, little-endian.
enum class NpyType { kFloat32, kUint64 };

// Writes one array of known shape sequentially, in C order. Not thread-safe.
class NpyWriter {
 public:
  // `env` outlives this.
  static absl::StatusOr<std::unique_ptr<NpyWriter>> Create(Env& env, const std::string& path,
                                                           NpyType type,
                                                           absl::Span<const uint64_t> shape);

  // Appends bytes of elements. OUT_OF_RANGE: more than the shape has. After an error the file is
  // unusable.
  absl::Status Append(absl::string_view bytes);
  // Makes the file durable; its name is durable once the folder is synced. INTERNAL: elements are
  // missing.
  absl::Status Finish();

  uint64_t file_bytes() const { return file_->size(); }

 private:
  NpyWriter(std::string path, std::unique_ptr<WritableFile> file, uint64_t missing)
      : path_(std::move(path)), file_(std::move(file)), missing_(missing) {}

  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  // The bytes of elements still to be appended.
  uint64_t missing_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_NPY_WRITER_H_
