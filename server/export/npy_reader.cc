#include "server/export/npy_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

static_assert(std::endian::native == std::endian::little,
              "elements are read in their memory layout");

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr uint64_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kMaxDimensions = 32;

class Reader {
 public:
  Reader(std::string path, std::unique_ptr<ReadableFile> file, uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}

  absl::Status Invalid(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", problem));
  }

  template <typename T>
  absl::StatusOr<NpyArray<T>> Read(const std::vector<absl::string_view>& types) {
    NpyArray<T> array;
    PAWL_RETURN_IF_ERROR(ReadHeader(types, array.shape));
    uint64_t count = 1;
    for (const uint64_t extent : array.shape) {
      if (extent != 0 && count > std::numeric_limits<uint64_t>::max() / sizeof(T) / extent)
        return Invalid("its shape is too large");
      count *= extent;
    }
    if (count * sizeof(T) != size_ - position_) {
      return Invalid(absl::StrCat("it has ", size_ - position_, " bytes of elements; the shape (",
                                  absl::StrJoin(array.shape, ", "), ") takes ", count * sizeof(T)));
    }
    array.elements.resize(count);
    PAWL_RETURN_IF_ERROR(ReadBytes(reinterpret_cast<char*>(array.elements.data()),
                                   static_cast<size_t>(count * sizeof(T))));
    return array;
  }

 private:
  absl::Status ReadBytes(char* out, size_t bytes) {
    PAWL_ASSIGN_OR_RETURN(const size_t read, file_->Read(position_, absl::MakeSpan(out, bytes)));
    if (read != bytes) return Invalid("the file is truncated");
    position_ += bytes;
    return absl::OkStatus();
  }

  absl::Status ReadHeader(const std::vector<absl::string_view>& types,
                          std::vector<uint64_t>& shape) {
    std::string start(kMagic.size() + 2, '\0');
    if (size_ < start.size()) return Invalid("it is not a NumPy file (.npy)");
    PAWL_RETURN_IF_ERROR(ReadBytes(start.data(), start.size()));
    const int version = start[kMagic.size()];
    if (!absl::StartsWith(start, kMagic) || version < 1 || version > 3)
      return Invalid("it is not a NumPy file (.npy)");
    uint32_t length = 0;
    PAWL_RETURN_IF_ERROR(ReadBytes(reinterpret_cast<char*>(&length), version == 1 ? 2 : 4));
    if (length > kMaxHeaderBytes || length > size_ - position_)
      return Invalid("its header is too long");
    std::string header(length, '\0');
    PAWL_RETURN_IF_ERROR(ReadBytes(header.data(), header.size()));
    const absl::string_view type = ValueOf(header, "descr");
    if (std::find(types.begin(), types.end(),
                  absl::StripSuffix(absl::StripPrefix(type, "'"), "'")) == types.end()) {
      return Invalid(
          absl::StrCat("its elements are ", type, "; they must be ", absl::StrJoin(types, " or ")));
    }
    if (ValueOf(header, "fortran_order") != "False")
      return Invalid("its elements are in Fortran order; save numpy.ascontiguousarray(array)");
    return ReadShape(ValueOf(header, "shape"), shape);
  }

  // The value of a key of the Python dictionary; empty if it is missing.
  static absl::string_view ValueOf(absl::string_view dictionary, absl::string_view key) {
    const std::string quoted = absl::StrCat("'", key, "':");
    const size_t at = dictionary.find(quoted);
    if (at == absl::string_view::npos) return "";
    absl::string_view value = dictionary.substr(at + quoted.size());
    value = absl::StripLeadingAsciiWhitespace(value);
    const size_t end = absl::StartsWith(value, "(") ? value.find(')') : value.find_first_of(",}");
    return end == absl::string_view::npos ? "" : value.substr(0, end);
  }

  absl::Status ReadShape(absl::string_view text, std::vector<uint64_t>& shape) const {
    if (!absl::ConsumePrefix(&text, "(")) return Invalid("its header has no shape");
    for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
      uint64_t extent;
      if (shape.size() == kMaxDimensions || !absl::SimpleAtoi(part, &extent))
        return Invalid(absl::StrCat("its shape is (", text, ")"));
      shape.push_back(extent);
    }
    return absl::OkStatus();
  }

  const std::string path_;
  const std::unique_ptr<ReadableFile> file_;
  const uint64_t size_;
  uint64_t position_ = 0;
};

template <typename T>
absl::StatusOr<NpyArray<T>> ReadNpy(Env& env, const std::string& path,
                                    const std::vector<absl::string_view>& types) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, env.OpenForRead(path));
  PAWL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  return Reader(path, std::move(file), size).Read<T>(types);
}

}  // namespace

absl::StatusOr<NpyArray<float>> ReadNpyFloats(Env& env, const std::string& path) {
  return ReadNpy<float>(env, path, {"<f4"});
}

absl::StatusOr<NpyArray<uint64_t>> ReadNpyKeys(Env& env, const std::string& path) {
  return ReadNpy<uint64_t>(env, path, {"<u8", "<i8"});
}

}  // namespace pawl
