#include "worker/data/records/tf_example_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"
#include "proto/tf_example.pb.h"

namespace pawl {
namespace {

constexpr size_t kHeadBytes = 12;
constexpr size_t kCrcBytes = 4;

uint32_t LoadCrc(const char* bytes) {
  uint32_t crc = 0;
  std::memcpy(&crc, bytes, sizeof(crc));
  return crc;
}

int CountOf(const TfFeature* values) {
  if (values == nullptr) return 0;
  if (values->has_bytes_list()) return values->bytes_list().value_size();
  if (values->has_float_list()) return values->float_list().value_size();
  return values->int64_list().value_size();
}

// REQUIRES: index < CountOf(&values).
ColumnValue ValueOf(const TfFeature& values, int index) {
  if (values.has_bytes_list()) return ColumnValue::Text(values.bytes_list().value(index));
  if (values.has_float_list()) return ColumnValue::Float32(values.float_list().value(index));
  return ColumnValue::Integer(values.int64_list().value(index));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TfExampleReader>> TfExampleReader::Open(ByteSource& source,
                                                                       const std::string& name,
                                                                       const RecordSpec& spec,
                                                                       const SourceStart& start) {
  PAWL_ASSIGN_OR_RETURN(ColumnFeatures features, ColumnFeatures::Create(spec));
  return std::unique_ptr<TfExampleReader>(
      new TfExampleReader(std::move(features), source, name, start));
}

TfExampleReader::TfExampleReader(ColumnFeatures features, ByteSource& source,
                                 const std::string& name, const SourceStart& start)
    : features_(std::move(features)),
      name_(name),
      start_offset_(start.offset),
      bytes_(source),
      example_(std::make_unique<TfExample>()),
      records_(start.lines) {
  for (ColumnFeatures::Feature& feature : features_.features())
    feature.source = places_.emplace(feature.source_name(), places_.size()).first->second;
  found_.resize(places_.size());
}

TfExampleReader::~TfExampleReader() = default;

uint64_t TfExampleReader::memory_bytes() const {
  return bytes_.memory_bytes() + example_->SpaceUsedLong();
}

absl::Status TfExampleReader::Malformed(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": record ", records_, " at byte ", record_offset_, ": ", what));
}

absl::StatusOr<bool> TfExampleReader::NextRecord(absl::string_view* message) {
  is_at_sample_ = false;
  record_offset_ = start_offset_ + bytes_.offset();
  PAWL_ASSIGN_OR_RETURN(const absl::string_view head, bytes_.Read(kHeadBytes));
  if (head.empty()) return false;
  ++records_;
  if (head.size() < kHeadBytes) return Malformed("the file ends within the record");
  uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  if (LoadCrc(head.data() + sizeof(length)) != MaskedCrc32c(head.data(), sizeof(length))) {
    return Malformed(
        "the checksum of its length is wrong: the file is damaged, or is not a TFRecord file");
  }
  if (length > kMaxRecordBytes) {
    return Malformed(absl::StrCat("the record has ", length, " bytes; at most ", kMaxRecordBytes,
                                  " are possible"));
  }
  PAWL_ASSIGN_OR_RETURN(*message, bytes_.Read(length + kCrcBytes));
  if (message->size() < length + kCrcBytes) return Malformed("the file ends within the record");
  return true;
}

absl::Status TfExampleReader::CheckMessage(absl::string_view message) const {
  const size_t length = message.size() - kCrcBytes;
  if (LoadCrc(message.data() + length) == MaskedCrc32c(message.data(), length))
    return absl::OkStatus();
  return Malformed("the checksum of its content is wrong: the record is damaged");
}

absl::StatusOr<bool> TfExampleReader::Skip() {
  absl::string_view message;
  return NextRecord(&message);
}

absl::StatusOr<bool> TfExampleReader::Next(SampleStore* store) {
  absl::string_view message;
  const absl::StatusOr<bool> more = NextRecord(&message);
  if (!more.ok() || !*more) return more;
  absl::Status status = CheckMessage(message);
  if (status.ok()) status = Apply(message.substr(0, message.size() - kCrcBytes));
  if (!status.ok()) {
    is_at_sample_ = true;
    return status;
  }
  features_.Append(sample_, store);
  return true;
}

absl::Status TfExampleReader::Apply(absl::string_view message) {
  if (!example_->ParseFromArray(message.data(), static_cast<int>(message.size())))
    return Malformed("it is not a tf.Example message");
  std::fill(found_.begin(), found_.end(), nullptr);
  for (const TfFeatureEntry& entry : example_->features().feature()) {
    const auto place = places_.find(entry.name());
    if (place != places_.end()) found_[place->second] = &entry.value();
  }
  features_.Clear(&sample_);
  for (const ColumnFeatures::Feature& feature : features_.features()) {
    const absl::Status status = ApplyFeature(feature, found_[feature.source]);
    if (!status.ok()) return Malformed(status.message());
  }
  features_.Cross(&sample_);
  return absl::OkStatus();
}

absl::Status TfExampleReader::ApplyFeature(const ColumnFeatures::Feature& feature,
                                           const TfFeature* values) {
  const int count = CountOf(values);
  if (feature.is_list) {
    return features_.SetList(
        feature, static_cast<size_t>(count),
        [values](size_t i) { return ValueOf(*values, static_cast<int>(i)); }, &sample_);
  }
  if (count > 1) {
    return MalformedColumn(
        feature, absl::StrCat("the sample has ", count, " values; ",
                              feature.IsField() ? "set `list` of the column, or store one value"
                                                : "a number has one"));
  }
  return features_.Set(feature, count == 0 ? ColumnValue() : ValueOf(*values, 0), &sample_);
}

}  // namespace pawl
