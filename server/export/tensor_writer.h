// Writes files of tensors: NumPy's (model_format.md) and safetensors' (safetensors_format.md).
#ifndef PAWL_SERVER_EXPORT_TENSOR_WRITER_H_
#define PAWL_SERVER_EXPORT_TENSOR_WRITER_H_

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

namespace pawl {

// The element types, little-endian.
enum class TensorType { kFloat32, kUint64 };

struct TensorSpec {
  std::string name;
  TensorType type = TensorType::kFloat32;
  std::vector<uint64_t> shape;
};

// Writes a file of tensors of known shapes sequentially, each in C order. Not thread-safe.
class TensorWriter {
 public:
  // A file of NumPy, which has one tensor and not its name. `env` outlives this.
  static absl::StatusOr<std::unique_ptr<TensorWriter>> CreateNpy(Env& env, const std::string& path,
                                                                 const TensorSpec& tensor);
  // A safetensors file with `tensors` in this order: put those of larger elements first, so that
  // all are aligned. `table` is the metadata of this name. `env` outlives this.
  static absl::StatusOr<std::unique_ptr<TensorWriter>> CreateSafetensors(
      Env& env, const std::string& path, const std::string& table,
      absl::Span<const TensorSpec> tensors);

  // Appends bytes of elements, which may be of several tensors. OUT_OF_RANGE: more than the shapes
  // have. After an error the file is unusable.
  absl::Status Append(absl::string_view bytes);
  // Makes the file durable; its name is durable once the folder is synced. INTERNAL: elements are
  // missing.
  absl::Status Finish();

  // The size of the whole file.
  uint64_t file_bytes() const { return file_->size(); }

 private:
  TensorWriter(std::string path, std::unique_ptr<WritableFile> file, uint64_t missing)
      : path_(std::move(path)), file_(std::move(file)), missing_(missing) {}
  // A file that begins with `header`, and is to have `bytes` of elements.
  static absl::StatusOr<std::unique_ptr<TensorWriter>> Create(Env& env, const std::string& path,
                                                              absl::string_view header,
                                                              uint64_t bytes);

  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  // The bytes of elements still to be appended.
  uint64_t missing_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_EXPORT_TENSOR_WRITER_H_
