// Writes tensors in the safetensors format; safetensors_format.md describes the bytes.
#ifndef PAWL_SERVER_EXPORT_SAFETENSORS_WRITER_H_
#define PAWL_SERVER_EXPORT_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/env.h"
#include "server/export/npy_writer.h"

namespace pawl {

// A tensor of a safetensors file.
struct SafeTensor {
  std::string name;
  NpyType type = NpyType::kFloat32;
  std::vector<uint64_t> shape;
};

// Writes a file of tensors of known shapes sequentially, each in C order. Not thread-safe.
class SafetensorsWriter {
 public:
  // The file has `tensors` in this order: put those of larger elements first, so that all are
  // aligned. `table` is the metadata of this name. `env` outlives this.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      Env& env, const std::string& path, const std::string& table,
      absl::Span<const SafeTensor> tensors);

  // Appends bytes of elements, which may be of several tensors. OUT_OF_RANGE: more than the shapes
  // have. After an error the file is unusable.
  absl::Status Append(absl::string_view bytes);
  // Makes the file durable; its name is durable once the folder is synced. INTERNAL: elements are
  // missing.
  absl::Status Finish();

  // The size of the whole file.
  uint64_t file_bytes() const { return file_->size(); }

 private:
  SafetensorsWriter(std::string path, std::unique_ptr<WritableFile> file, uint64_t missing)
      : path_(std::move(path)), file_(std::move(file)), missing_(missing) {}

  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  // The bytes of elements still to be appended.
  uint64_t missing_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_SAFETENSORS_WRITER_H_
