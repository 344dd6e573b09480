#include "server/export/npy_writer.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

static_assert(std::endian::native == std::endian::little,
              "elements are written in their memory layout");

// The elements start at a multiple of this.
constexpr size_t kAlignment = 64;

// Magic, version 1.0, the length of the rest, and a Python literal padded with spaces.
std::string Header(absl::string_view type, absl::Span<const uint64_t> shape) {
  std::string dictionary =
      absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  std::string header("\x93NUMPY\x01\x00", 8);
  const size_t unpadded = header.size() + 2 + dictionary.size() + 1;
  dictionary.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dictionary += '\n';
  const size_t length = dictionary.size();
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  return header + dictionary;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpyWriter>> NpyWriter::Create(Env& env, const std::string& path,
                                                             NpyType type,
                                                             absl::Span<const uint64_t> shape) {
  uint64_t bytes = type == NpyType::kFloat32 ? sizeof(float) : sizeof(uint64_t);
  for (const uint64_t extent : shape) bytes *= extent;
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env.Create(path));
  PAWL_RETURN_IF_ERROR(file->Append(Header(type == NpyType::kFloat32 ? "<f4" : "<u8", shape)));
  return std::unique_ptr<NpyWriter>(new NpyWriter(path, std::move(file), bytes));
}

absl::Status NpyWriter::Append(absl::string_view bytes) {
  if (bytes.size() > missing_) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": ", bytes.size(),
                                              " bytes are more than the ", missing_,
                                              " that its shape still has"));
  }
  PAWL_RETURN_IF_ERROR(file_->Append(bytes));
  missing_ -= bytes.size();
  return absl::OkStatus();
}

absl::Status NpyWriter::Finish() {
  if (missing_ > 0)
    return absl::InternalError(
        absl::StrCat(path_, ": ", missing_, " bytes of its shape are missing"));
  PAWL_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

}  // namespace pawl
