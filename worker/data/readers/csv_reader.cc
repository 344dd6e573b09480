#include "worker/data/readers/csv_reader.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<CsvReader>> CsvReader::Open(ByteSource& source,
                                                           const std::string& name,
                                                           const CsvSpec& spec) {
  PAWL_ASSIGN_OR_RETURN(CsvFeatures features, CsvFeatures::Create(spec));
  auto reader = std::unique_ptr<CsvReader>(new CsvReader(std::move(features), source, name, 0));
  PAWL_ASSIGN_OR_RETURN(const bool has_first, reader->records_.Next());
  if (!has_first) {
    if (spec.no_header()) return reader;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is empty; its first line must be a header"));
  }
  PAWL_RETURN_IF_ERROR(reader->features_.Bind(reader->records_));
  reader->has_record_ = spec.no_header();
  return reader;
}

absl::StatusOr<std::unique_ptr<CsvReader>> CsvReader::OpenBehind(absl::string_view head,
                                                                 ByteSource& source,
                                                                 const std::string& name,
                                                                 const CsvSpec& spec,
                                                                 uint64_t lines_before) {
  MemorySource head_source(head);
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<CsvReader> first, Open(head_source, name, spec));
  return std::unique_ptr<CsvReader>(
      new CsvReader(std::move(first->features_), source, name, lines_before));
}

absl::StatusOr<bool> CsvReader::Next(SampleStore* store) {
  is_at_sample_ = false;
  if (!has_record_) {
    const absl::StatusOr<bool> more = records_.Next();
    if (!more.ok()) is_at_sample_ = records_.has_malformed_record();
    if (!more.ok() || !*more) return more;
  }
  has_record_ = false;
  if (absl::Status status = features_.Apply(records_, &sample_); !status.ok()) {
    is_at_sample_ = true;
    return status;
  }
  store->labels.push_back(sample_.label);
  store->numerics.insert(store->numerics.end(), sample_.numerics.begin(), sample_.numerics.end());
  for (const uint64_t key : sample_.keys) store->AddEntry(key);
  return true;
}

absl::StatusOr<bool> CsvReader::Skip() {
  if (has_record_) {
    has_record_ = false;
    return true;
  }
  const absl::StatusOr<bool> more = records_.Skip();
  if (!more.ok() && records_.has_malformed_record()) return true;
  return more;
}

absl::Status ReadCsv(ByteSource& source, const std::string& name, const CsvSpec& spec,
                     SampleStore* store) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<CsvReader> reader,
                        CsvReader::Open(source, name, spec));
  store->shape = reader->shape();
  BadSamples bad;
  return ReadSamples(*reader, name, store, &bad);
}

}  // namespace pawl
