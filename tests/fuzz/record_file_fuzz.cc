// Pawl's record files. The checksums of the input are corrected, so that mutations reach what they
// protect; the input is read as it is, too.
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "client_lib/base/crc32c.h"
#include "tests/fuzz/data_check.h"
#include "worker/data/records/record_reader.h"

namespace pawl {
namespace {

// The columns of the corpus, those of record_reader_test.cc.
constexpr char kSpec[] = R"(
  columns { name: "label" label {} }
  columns { name: "weight" weight {} }
  columns { name: "user" categorical { missing: "guest" } }
  columns { name: "price" numeric { missing: -1 } }
  columns { name: "level" source: "price" bucketized { width: 2 missing: 100 } }
  columns { name: "city" hashed { buckets: 50 } }
  columns { name: "items" list { max_length: 2 } categorical {} domain: "item" }
  columns { name: "hours" list {} hashed { buckets: 7 } }
  columns { name: "both" crossed { columns: "user" columns: "city" } }
)";

uint32_t Load(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

void Store(uint32_t value, size_t at, std::string* bytes) {
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}

// Corrects checksums as far as the sizes in the file lead.
void Sign(std::string* bytes) {
  if (bytes->size() < kRecordHeadBytes) return;
  bytes->replace(0, kRecordMagic.size(), kRecordMagic.data(), kRecordMagic.size());
  uint64_t at = kRecordHeadBytes + uint64_t{Load(*bytes, 8)};
  if (at > bytes->size()) return;
  Store(Crc32(0, bytes->data() + kRecordHeadBytes, at - kRecordHeadBytes), 12, bytes);
  while (at + kRecordBlockHeadBytes <= bytes->size()) {
    const uint64_t stored_at = at + kRecordBlockHeadBytes;
    const uint64_t stored = Load(*bytes, at + 8);
    if (stored > bytes->size() - stored_at) return;
    Store(Crc32(0, bytes->data() + stored_at, stored), at + 20, bytes);
    Store(Crc32(0, bytes->data() + at, kRecordBlockHeadBytes - 4), stored_at - 4, bytes);
    at = stored_at + stored;
  }
}

absl::Status Read(absl::string_view bytes, size_t piece, SampleStore* store) {
  RecordSpec spec;
  FuzzCheck(google::protobuf::TextFormat::ParseFromString(kSpec, &spec), "the target's own spec");
  const std::unique_ptr<ByteSource> source = InPieces(bytes, piece);
  const auto reader = RecordReader::Open(*source, "input", spec);
  if (!reader.ok()) return reader.status();
  store->shape = (*reader)->shape();
  BadSamples bad(2);
  return ReadSamples(**reader, "input", store, &bad);
}

void ReadBoth(absl::string_view bytes) {
  SampleStore store(kFuzzMaxBytes);
  SampleStore store_in_pieces(kFuzzMaxBytes);
  const absl::Status status = Read(bytes, size_t{1} << 16, &store);
  CheckReaderResult(status, store);
  FuzzCheck(Read(bytes, 3, &store_in_pieces) == status, "reading in pieces gives the same status");
  CheckSame(store, store_in_pieces);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  ReadBoth(bytes);
  Sign(&bytes);
  ReadBoth(bytes);
  return 0;
}

}  // namespace pawl
