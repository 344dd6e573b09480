#include "server/export/safetensors_writer.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little,
              "elements are written in their memory layout");

// The header's length is a multiple of this, so that the elements are aligned.
constexpr size_t kAlignment = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    Env& env, const std::string& path, const std::string& table,
    absl::Span<const SafeTensor> tensors) {
  Json header = {{"__metadata__", {{"table", table}}}};
  uint64_t end = 0;
  for (const SafeTensor& tensor : tensors) {
    const bool is_float = tensor.type == NpyType::kFloat32;
    uint64_t bytes = is_float ? sizeof(float) : sizeof(uint64_t);
    for (const uint64_t extent : tensor.shape) bytes *= extent;
    header[tensor.name] = {{"dtype", is_float ? "F32" : "U64"},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const uint64_t length = text.size();
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env.Create(path));
  PAWL_RETURN_IF_ERROR(file->Append(absl::StrCat(
      absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)), text)));
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(path, std::move(file), end));
}

absl::Status SafetensorsWriter::Append(absl::string_view bytes) {
  if (bytes.size() > missing_) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": ", bytes.size(),
                                              " bytes are more than the ", missing_,
                                              " that its shapes still have"));
  }
  PAWL_RETURN_IF_ERROR(file_->Append(bytes));
  missing_ -= bytes.size();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish() {
  if (missing_ > 0)
    return absl::InternalError(
        absl::StrCat(path_, ": ", missing_, " bytes of its shapes are missing"));
  PAWL_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

}  // namespace pawl
