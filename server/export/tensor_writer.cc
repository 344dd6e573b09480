#include "server/export/tensor_writer.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little,
              "elements are written in their memory layout");

// The elements start at a multiple of this.
constexpr size_t kNpyAlignment = 64;
constexpr size_t kSafetensorsAlignment = 8;

uint64_t BytesOf(const TensorSpec& tensor) {
  uint64_t bytes = tensor.type == TensorType::kFloat32 ? sizeof(float) : sizeof(uint64_t);
  for (const uint64_t extent : tensor.shape) bytes *= extent;
  return bytes;
}

// Magic, version 1.0, the length of the rest, and a Python literal padded with spaces.
std::string NpyHeader(const TensorSpec& tensor) {
  std::string dictionary =
      absl::StrCat("{'descr': '", tensor.type == TensorType::kFloat32 ? "<f4" : "<u8",
                   "', 'fortran_order': False, 'shape': (", absl::StrJoin(tensor.shape, ", "),
                   tensor.shape.size() == 1 ? ",), }" : "), }");
  std::string header("\x93NUMPY\x01\x00", 8);
  const size_t unpadded = header.size() + 2 + dictionary.size() + 1;
  dictionary.append((kNpyAlignment - unpadded % kNpyAlignment) % kNpyAlignment, ' ');
  dictionary += '\n';
  const size_t length = dictionary.size();
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  return header + dictionary;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorWriter>> TensorWriter::Create(Env& env,
                                                                   const std::string& path,
                                                                   absl::string_view header,
                                                                   uint64_t bytes) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env.Create(path));
  PAWL_RETURN_IF_ERROR(file->Append(header));
  return std::unique_ptr<TensorWriter>(new TensorWriter(path, std::move(file), bytes));
}

absl::StatusOr<std::unique_ptr<TensorWriter>> TensorWriter::CreateNpy(Env& env,
                                                                      const std::string& path,
                                                                      const TensorSpec& tensor) {
  return Create(env, path, NpyHeader(tensor), BytesOf(tensor));
}

absl::StatusOr<std::unique_ptr<TensorWriter>> TensorWriter::CreateSafetensors(
    Env& env, const std::string& path, const std::string& table,
    absl::Span<const TensorSpec> tensors) {
  Json header = {{"__metadata__", {{"table", table}}}};
  uint64_t end = 0;
  for (const TensorSpec& tensor : tensors) {
    const uint64_t begin = std::exchange(end, end + BytesOf(tensor));
    header[tensor.name] = {{"dtype", tensor.type == TensorType::kFloat32 ? "F32" : "U64"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((kSafetensorsAlignment - text.size() % kSafetensorsAlignment) % kSafetensorsAlignment,
              ' ');
  const uint64_t length = text.size();
  const absl::string_view prefix(reinterpret_cast<const char*>(&length), sizeof(length));
  return Create(env, path, absl::StrCat(prefix, text), end);
}

absl::Status TensorWriter::Append(absl::string_view bytes) {
  if (bytes.size() > missing_) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": ", bytes.size(),
                                              " bytes are more than the ", missing_,
                                              " that its shapes still have"));
  }
  PAWL_RETURN_IF_ERROR(file_->Append(bytes));
  missing_ -= bytes.size();
  return absl::OkStatus();
}

absl::Status TensorWriter::Finish() {
  if (missing_ > 0)
    return absl::InternalError(
        absl::StrCat(path_, ": ", missing_, " bytes of its shapes are missing"));
  PAWL_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

}  // namespace pawl
