// TFRecord files. The first byte selects what the rest is: a file, or the messages of its records,
// between which there is a line "---", so that mutations reach the parser of messages.
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_split.h"
#include "client_lib/base/crc32c.h"
#include "tests/fuzz/data_check.h"
#include "worker/data/records/tf_example_reader.h"

namespace pawl {
namespace {

constexpr char kSpec[] = R"(
  columns { name: "y" label { greater_than: 15 } }
  columns { name: "w" weight {} }
  columns { name: "n" numeric { mean: 3 scale: 0.5 missing: 1 } }
  columns { name: "b" source: "n" bucketized { boundaries: [-1, 0, 1.5] missing: 0 } }
  columns { name: "c" categorical { missing: "none" } }
  columns { name: "l" list { max_length: 3 } hashed { buckets: 7 } }
  columns { name: "x" crossed { columns: "c" columns: "b" } }
)";

template <typename T>
void Append(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendRecord(absl::string_view message, std::string* bytes) {
  const uint64_t length = message.size();
  Append(bytes, length);
  Append(bytes, MaskedCrc32c(&length, sizeof(length)));
  bytes->append(message.data(), message.size());
  Append(bytes, MaskedCrc32c(message.data(), message.size()));
}

absl::Status Read(absl::string_view bytes, size_t piece, SampleStore* store) {
  RecordSpec spec;
  FuzzCheck(google::protobuf::TextFormat::ParseFromString(kSpec, &spec), "the target's own spec");
  const std::unique_ptr<ByteSource> source = InPieces(bytes, piece);
  const auto reader = TfExampleReader::Open(*source, "input", spec);
  FuzzCheck(reader.ok(), "open");
  store->shape = (*reader)->shape();
  BadSamples bad(2);
  return ReadSamples(**reader, "input", store, &bad);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string bytes;
  if (data[0] == 'm') {
    for (const absl::string_view message : absl::StrSplit(rest, "\n---\n"))
      AppendRecord(message, &bytes);
  } else {
    bytes = std::string(rest);
  }
  SampleStore store(kFuzzMaxBytes);
  SampleStore store_in_pieces(kFuzzMaxBytes);
  const absl::Status status = Read(bytes, size_t{1} << 16, &store);
  CheckReaderResult(status, store);
  FuzzCheck(Read(bytes, 3, &store_in_pieces) == status, "reading in pieces gives the same status");
  CheckSame(store, store_in_pieces);
  return 0;
}

}  // namespace pawl
