#include "worker/data/readers/csv_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/text_input.h"

namespace pawl {
namespace {

// REQUIRES: the spec is valid.
CsvDialect DialectOf(const CsvSpec& spec) {
  CsvDialect dialect;
  if (!spec.delimiter().empty()) dialect.delimiter = spec.delimiter()[0];
  dialect.quotes = !spec.no_quotes();
  return dialect;
}

}  // namespace

CsvReader::CsvReader(ColumnFeatures features, const CsvSpec& spec, ByteSource& source,
                     const std::string& name, uint64_t lines_before)
    : features_(std::move(features)),
      shape_(features_.shape()),
      has_header_(!spec.no_header()),
      records_(source, name, DialectOf(spec), lines_before) {}

absl::StatusOr<std::unique_ptr<CsvReader>> CsvReader::Open(ByteSource& source,
                                                           const std::string& name,
                                                           const CsvSpec& spec) {
  PAWL_ASSIGN_OR_RETURN(ColumnFeatures features, ColumnFeatures::Create(spec));
  auto reader =
      std::unique_ptr<CsvReader>(new CsvReader(std::move(features), spec, source, name, 0));
  for (;;) {
    const absl::StatusOr<bool> more = reader->records_.Next();
    if (more.ok() && !*more) break;
    const absl::Status status = more.ok() ? reader->Bind() : more.status();
    if (status.ok()) {
      reader->has_record_ = spec.no_header();
      return reader;
    }
    // Without a header this is a malformed sample.
    const bool is_sample =
        spec.no_header() && (more.ok() || reader->records_.has_malformed_record());
    if (!is_sample) return status;
    reader->unbound_.push_back(status);
    if (reader->unbound_.size() == kMaxUnboundRecords) return reader->unbound_.front();
  }
  if (spec.no_header()) return reader;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": is empty; its first line must be a header"));
}

absl::StatusOr<std::unique_ptr<CsvReader>> CsvReader::OpenBehind(absl::string_view head,
                                                                 ByteSource& source,
                                                                 const std::string& name,
                                                                 const CsvSpec& spec,
                                                                 uint64_t lines_before) {
  MemorySource head_source(head);
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<CsvReader> first, Open(head_source, name, spec));
  auto reader = std::unique_ptr<CsvReader>(
      new CsvReader(std::move(first->features_), spec, source, name, lines_before));
  reader->bound_columns_ = first->bound_columns_;
  return reader;
}

absl::Status CsvReader::Bind() {
  bound_columns_ = records_.fields().size();
  for (ColumnFeatures::Feature& feature : features_.features())
    PAWL_RETURN_IF_ERROR(BindOne(&feature));
  return absl::OkStatus();
}

absl::Status CsvReader::BindOne(ColumnFeatures::Feature* feature) const {
  const std::vector<absl::string_view>& names = records_.fields();
  const Column& column = feature->column;
  if (column.position() != 0) {
    if (column.position() > names.size()) {
      return records_.MalformedRecord(absl::StrCat("column ", Quoted(column.name()),
                                                   " is at position ", column.position(),
                                                   ", but the line has ", names.size(), " fields"));
    }
    feature->source = column.position() - 1;
    return absl::OkStatus();
  }
  const std::string& source = feature->source_name();
  const auto found = std::find(names.begin(), names.end(), source);
  if (found == names.end()) {
    constexpr size_t kMaxShownNames = 20;
    const size_t shown = std::min(names.size(), kMaxShownNames);
    return records_.MalformedRecord(absl::StrCat(
        "column ", Quoted(source), " is not in the header, which has ",
        absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", ",
                      [](std::string* out, absl::string_view name) { *out += Quoted(name); }),
        shown < names.size() ? ", ..." : ""));
  }
  feature->source = static_cast<size_t>(found - names.begin());
  const auto again = std::find(found + 1, names.end(), source);
  if (again != names.end()) {
    return records_.MalformedField(
        static_cast<size_t>(again - names.begin()),
        absl::StrCat("column ", Quoted(source), " is in the header twice"));
  }
  return absl::OkStatus();
}

absl::Status CsvReader::Apply() {
  const std::vector<absl::string_view>& fields = records_.fields();
  if (fields.size() != bound_columns_) {
    return records_.MalformedRecord(
        absl::StrCat("the line has ", fields.size(), " fields, but ",
                     has_header_ ? "the header has " : "the first line has ", bound_columns_));
  }
  size_t bad = 0;
  const absl::Status status = features_.ApplyTexts(fields, &sample_, &bad);
  return status.ok() ? status : records_.MalformedField(bad, status.message());
}

absl::StatusOr<bool> CsvReader::Next(SampleStore* store) {
  is_at_sample_ = !unbound_.empty();
  if (is_at_sample_) {
    absl::Status status = std::move(unbound_.front());
    unbound_.pop_front();
    return status;
  }
  if (!has_record_) {
    const absl::StatusOr<bool> more = records_.Next();
    if (!more.ok()) is_at_sample_ = records_.has_malformed_record();
    if (!more.ok() || !*more) return more;
  }
  has_record_ = false;
  if (absl::Status status = Apply(); !status.ok()) {
    is_at_sample_ = true;
    return status;
  }
  features_.Append(sample_, store);
  return true;
}

absl::StatusOr<bool> CsvReader::Skip() {
  if (!unbound_.empty()) {
    unbound_.pop_front();
    return true;
  }
  if (has_record_) {
    has_record_ = false;
    return true;
  }
  const absl::StatusOr<bool> more = records_.Skip();
  if (!more.ok() && records_.has_malformed_record()) return true;
  return more;
}

}  // namespace pawl
