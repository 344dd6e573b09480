#include "worker/data/readers/idx_reader.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr int kUnsignedByte = 0x08;
constexpr size_t kChunkBytes = 64 * 1024;

struct IdxHeader {
  uint64_t count = 0;       // the first dimension
  uint64_t item_bytes = 1;  // the product of the others
};

absl::Status Malformed(const std::string& name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
}

// Reads until `out` is full or the source ends; returns the number of bytes.
absl::StatusOr<size_t> ReadFully(ByteSource& source, uint8_t* out, size_t size) {
  size_t filled = 0;
  while (filled < size) {
    PAWL_ASSIGN_OR_RETURN(const size_t count,
                          source.Read(reinterpret_cast<char*>(out) + filled, size - filled));
    if (count == 0) break;
    filled += count;
  }
  return filled;
}

absl::StatusOr<IdxHeader> ReadHeader(ByteSource& source, const std::string& name,
                                     int min_dimensions, int max_dimensions) {
  uint8_t magic[4];
  PAWL_ASSIGN_OR_RETURN(size_t count, ReadFully(source, magic, sizeof(magic)));
  if (count < sizeof(magic) || magic[0] != 0 || magic[1] != 0)
    return Malformed(name, "is not an IDX file");
  if (magic[2] != kUnsignedByte) {
    return Malformed(
        name, absl::StrFormat("its element type is 0x%02x; only unsigned bytes (0x08) are read",
                              magic[2]));
  }
  if (magic[3] < min_dimensions || magic[3] > max_dimensions) {
    return Malformed(
        name,
        absl::StrCat("has ", magic[3], " dimensions, not ", min_dimensions,
                     min_dimensions == max_dimensions ? "" : absl::StrCat(" to ", max_dimensions)));
  }
  IdxHeader header;
  for (int i = 0; i < magic[3]; ++i) {
    uint8_t bytes[4];
    PAWL_ASSIGN_OR_RETURN(count, ReadFully(source, bytes, sizeof(bytes)));
    if (count < sizeof(bytes)) return Malformed(name, "ends in its header");
    const uint64_t dimension = uint64_t{bytes[0]} << 24 | uint64_t{bytes[1]} << 16 |
                               uint64_t{bytes[2]} << 8 | uint64_t{bytes[3]};
    if (i == 0) {
      header.count = dimension;
      continue;
    }
    header.item_bytes *= dimension;
    if (header.item_bytes == 0 || header.item_bytes > SampleStore::kMaxNumerics) {
      return Malformed(name,
                       absl::StrCat("a sample has ", header.item_bytes == 0 ? "no" : "too many",
                                    " elements; the limit is ", SampleStore::kMaxNumerics));
    }
  }
  return header;
}

// Calls add(const uint8_t* bytes, size_t count) for consecutive pieces of the file's elements,
// whose number must match the header.
template <typename Add>
absl::Status ReadElements(ByteSource& source, const std::string& name, const IdxHeader& header,
                          Add add) {
  // The header may be wrong, so memory grows only with the actual data.
  std::vector<uint8_t> chunk(kChunkBytes);
  const uint64_t expected = header.count * header.item_bytes;
  uint64_t total = 0;
  for (;;) {
    PAWL_ASSIGN_OR_RETURN(const size_t count, ReadFully(source, chunk.data(), chunk.size()));
    total += count;
    if (total > expected) {
      return Malformed(
          name, absl::StrCat("is longer than the ", expected, " elements that its header says"));
    }
    if (count == 0) break;
    PAWL_RETURN_IF_ERROR(add(chunk.data(), count));
  }
  if (total < expected) {
    return Malformed(
        name, absl::StrCat("ends after ", total, " elements; its header says ", expected, ", i.e. ",
                           header.count, " samples of ", header.item_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> IdxLabelPath(const std::string& image_path) {
  constexpr absl::string_view kImages = "images-idx3";
  const size_t name_begin = image_path.rfind('/') + 1;  // npos + 1 is 0
  const size_t at = image_path.rfind(kImages.data());
  if (at == std::string::npos || at < name_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat(image_path, ": the name of an IDX file of images must have \"", kImages,
                     "\" in it, to find the labels beside it under \"labels-idx1\""));
  }
  std::string label_path = image_path;
  label_path.replace(at, kImages.size(), "labels-idx1");
  return label_path;
}

absl::Status ReadIdx(ByteSource& images, const std::string& image_name, ByteSource& labels,
                     const std::string& label_name, SampleStore* store) {
  PAWL_ASSIGN_OR_RETURN(const IdxHeader image_header, ReadHeader(images, image_name, 2, 4));
  PAWL_ASSIGN_OR_RETURN(const IdxHeader label_header, ReadHeader(labels, label_name, 1, 1));
  if (image_header.count != label_header.count) {
    return Malformed(image_name, absl::StrCat("has ", image_header.count, " images, but ",
                                              label_name, " has ", label_header.count, " labels"));
  }
  if (store->size() > 0 && store->shape.numeric_count != image_header.item_bytes) {
    return Malformed(image_name, absl::StrCat("a sample has ", image_header.item_bytes,
                                              " elements, but those of earlier files have ",
                                              store->shape.numeric_count));
  }
  store->shape.numeric_count = static_cast<uint32_t>(image_header.item_bytes);
  PAWL_RETURN_IF_ERROR(
      ReadElements(images, image_name, image_header, [&](const uint8_t* bytes, size_t count) {
        store->pixels.insert(store->pixels.end(), bytes, bytes + count);
        return store->CheckLimits(image_name);
      }));
  return ReadElements(labels, label_name, label_header, [&](const uint8_t* bytes, size_t count) {
    store->labels.insert(store->labels.end(), bytes, bytes + count);
    return store->CheckLimits(label_name);
  });
}

}  // namespace pawl
