// A column spec as protobuf text, a line "---", and a CSV file for that spec. Without such a line
// the whole input is the file, read with a spec that has every kind of column.
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <string>

#include "proto/job.pb.h"
#include "tests/fuzz/data_check.h"
#include "worker/data/readers/testing/read_samples.h"

namespace pawl {
namespace {

constexpr char kSpec[] = R"(
  columns { name: "y" label { greater_than: 15 } }
  columns { name: "n" numeric { mean: 3 scale: 0.5 } }
  columns { name: "b" bucketized { width: 100 } }
  columns { name: "n_bucket" source: "n" bucketized { boundaries: [-1, 0, 1.5] } }
  columns { name: "c" categorical {} }
  columns { name: "h" hashed { buckets: 7 } }
  columns { name: "x" crossed { columns: "c" columns: "b" } }
  columns { name: "z" crossed { columns: "h" columns: "c" buckets: 5 } }
)";
constexpr absl::string_view kSeparator = "\n---\n";

class Silent final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

bool ParseSpec(const std::string& text, CsvSpec* spec) {
  Silent silent;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silent);
  return parser.ParseFromString(text, spec);
}

void ReadBoth(const CsvSpec& spec, absl::string_view text) {
  SampleStore store(kFuzzMaxBytes);
  SampleStore store_in_pieces(kFuzzMaxBytes);
  const absl::Status status = ReadCsv(*InPieces(text, size_t{1} << 16), "input", spec, &store);
  CheckReaderResult(status, store);
  FuzzCheck(ReadCsv(*InPieces(text, 3), "input", spec, &store_in_pieces) == status,
            "reading in pieces gives the same status");
  CheckSame(store, store_in_pieces);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t separator = input.find(kSeparator);
  CsvSpec spec;
  if (separator == absl::string_view::npos) {
    FuzzCheck(ParseSpec(kSpec, &spec), "the target's own spec");
    ReadBoth(spec, input);
  } else if (ParseSpec(std::string(input.substr(0, separator)), &spec)) {
    ReadBoth(spec, input.substr(separator + kSeparator.size()));
  }
  return 0;
}

}  // namespace pawl
