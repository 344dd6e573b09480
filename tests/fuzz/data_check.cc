#include "tests/fuzz/data_check.h"

#include <algorithm>
#include <cmath>

namespace pawl {
namespace {

class PieceSource final : public ByteSource {
 public:
  PieceSource(absl::string_view bytes, size_t piece) : memory_(bytes), piece_(piece) {}
  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    return memory_.Read(out, std::min(size, piece_));
  }

 private:
  MemorySource memory_;
  const size_t piece_;
};

bool AllFinite(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
}

// Appends the output of the source to *out, at most kFuzzMaxBytes.
absl::Status Expand(absl::string_view compressed, OpenSource open, size_t compressed_piece,
                    size_t piece, std::string* out) {
  const std::unique_ptr<ByteSource> source = open(InPieces(compressed, compressed_piece));
  std::string buffer(piece, '\0');
  while (out->size() < kFuzzMaxBytes) {
    const absl::StatusOr<size_t> count =
        source->Read(buffer.data(), std::min(piece, kFuzzMaxBytes - out->size()));
    if (!count.ok()) return count.status();
    FuzzCheck(*count <= piece, "bytes of a read");
    if (*count == 0) break;
    out->append(buffer, 0, *count);
  }
  return absl::OkStatus();
}

}  // namespace

void CheckReaderResult(const absl::Status& status, const SampleStore& store) {
  if (!status.ok()) {
    FuzzCheck(absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status),
              "code of the refusal");
    const absl::string_view message = status.message();
    FuzzCheck(message.size() < 2000, "length of the message");
    FuzzCheck(
        std::all_of(message.begin(), message.end(), [](char c) { return c >= ' ' && c <= '~'; }),
        "characters of the message");
    return;
  }
  const uint64_t samples = store.size();
  const DataShape& shape = store.shape;
  FuzzCheck(AllFinite(store.labels) && AllFinite(store.numerics) && AllFinite(store.weights) &&
                AllFinite(store.sample_weights),
            "finite numbers");
  FuzzCheck(store.labels.size() == samples * shape.label_count, "labels of each sample");
  FuzzCheck(store.sample_weights.empty() || store.sample_weights.size() == samples,
            "weight of each sample");
  for (const float weight : store.sample_weights)
    FuzzCheck(weight >= 0, "weights are not negative");
  FuzzCheck(store.numerics.size() + store.pixels.size() == samples * shape.numeric_count,
            "numbers of each sample");
  FuzzCheck(store.weights.empty() || store.weights.size() == store.entries.size(),
            "weights of each entry");
  for (const uint32_t entry : store.entries)
    FuzzCheck(entry < store.keys().size(), "key of each entry");
  if (store.sample_begin.empty()) {
    FuzzCheck(store.entries.size() == samples * shape.field_count, "entries of each sample");
  } else {
    FuzzCheck(store.sample_begin.size() == samples + 1 && store.sample_begin[0] == 0,
              "starts of the samples");
    FuzzCheck(std::is_sorted(store.sample_begin.begin(), store.sample_begin.end()),
              "order of the samples");
    FuzzCheck(store.sample_begin.back() == store.entries.size(), "end of the samples");
    FuzzCheck(shape.field_count > 0, "fields for the entries");
  }
  if (!store.field_counts.empty()) {
    FuzzCheck(store.field_counts.size() == samples * shape.field_count, "counts of each field");
    for (uint64_t s = 0; s < samples; ++s) {
      uint64_t entries = 0;
      for (uint32_t f = 0; f < shape.field_count; ++f)
        entries += store.field_counts[s * shape.field_count + f];
      FuzzCheck(store.sample_begin[s] + entries == store.sample_begin[s + 1],
                "counts add up to the entries of the sample");
    }
  }
}

void CheckSame(const SampleStore& a, const SampleStore& b) {
  FuzzCheck(a.labels == b.labels && a.numerics == b.numerics && a.pixels == b.pixels &&
                a.entries == b.entries && a.sample_begin == b.sample_begin &&
                a.weights == b.weights && a.sample_weights == b.sample_weights &&
                a.field_counts == b.field_counts && a.keys() == b.keys(),
            "samples are equal");
}

std::unique_ptr<ByteSource> InPieces(absl::string_view bytes, size_t piece) {
  return std::make_unique<PieceSource>(bytes, piece);
}

void CheckDecompression(absl::string_view compressed, OpenSource open) {
  std::string whole;
  std::string pieces;
  const absl::Status status = Expand(compressed, open, size_t{1} << 16, size_t{1} << 16, &whole);
  FuzzCheck(status.ok() || absl::IsInvalidArgument(status), "code of the refusal");
  const absl::Status status_in_pieces = Expand(compressed, open, 3, 777, &pieces);
  FuzzCheck(status.code() == status_in_pieces.code(), "reading in pieces gives the same code");
  // Bytes before an error may be delivered or not.
  if (status.ok()) FuzzCheck(whole == pieces, "reading in pieces gives the same bytes");
}

}  // namespace pawl
