#include "worker/data/records/record_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/text_input.h"

namespace pawl {
namespace {

// So few that they fit into the cache.
constexpr uint32_t kTileRows = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(ByteSource& source,
                                                                 const std::string& name,
                                                                 const RecordSpec& spec) {
  PAWL_ASSIGN_OR_RETURN(ColumnFeatures features, ColumnFeatures::Create(spec));
  auto reader =
      std::unique_ptr<RecordReader>(new RecordReader(std::move(features), source, name, {}));
  PAWL_RETURN_IF_ERROR(reader->ReadHead());
  PAWL_RETURN_IF_ERROR(reader->Bind());
  return reader;
}

absl::StatusOr<std::unique_ptr<RecordReader>> RecordReader::OpenBehind(absl::string_view head,
                                                                       ByteSource& source,
                                                                       const std::string& name,
                                                                       const RecordSpec& spec,
                                                                       const SourceStart& start) {
  MemorySource head_source(head);
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> first, Open(head_source, name, spec));
  auto reader = std::unique_ptr<RecordReader>(
      new RecordReader(std::move(first->features_), source, name, start));
  reader->columns_ = std::move(first->columns_);
  return reader;
}

RecordReader::RecordReader(ColumnFeatures features, ByteSource& source, const std::string& name,
                           const SourceStart& start)
    : features_(std::move(features)),
      name_(name),
      start_offset_(start.offset),
      needs_end_(start.offset == 0),
      bytes_(source),
      row_before_(start.lines),
      made_(features_.features().size()),
      tile_numbers_(features_.shape().label_count + 1 + features_.shape().numeric_count),
      tile_of_numbers_(kTileRows * tile_numbers_),
      tile_of_keys_(kTileRows * size_t{features_.shape().field_count}),
      is_bad_row_(kTileRows) {}

absl::Status RecordReader::MalformedBlock(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": block at byte ", block_offset_, ": ", what));
}

uint64_t RecordReader::memory_bytes() const {
  uint64_t bytes = bytes_.memory_bytes() + memory_.capacity() +
                   tile_of_numbers_.capacity() * sizeof(float) +
                   tile_of_keys_.capacity() * sizeof(uint64_t);
  for (const Made& made : made_)
    bytes += made.keys.capacity() * sizeof(uint64_t) + made.numbers.capacity() * sizeof(float);
  return bytes;
}

absl::Status RecordReader::ReadHead() {
  const auto malformed = [this](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": ", what));
  };
  PAWL_ASSIGN_OR_RETURN(const absl::string_view head, bytes_.Read(kRecordHeadBytes));
  uint32_t schema_crc = 0;
  const absl::StatusOr<uint32_t> size = ParseRecordHead(head, &schema_crc);
  if (!size.ok()) return malformed(size.status().message());
  PAWL_ASSIGN_OR_RETURN(const absl::string_view schema, bytes_.Read(*size));
  absl::StatusOr<std::vector<RecordColumn>> columns = ParseRecordSchema(schema, schema_crc);
  if (!columns.ok()) return malformed(columns.status().message());
  columns_ = *std::move(columns);
  offset_ = bytes_.offset();
  return absl::OkStatus();
}

absl::Status RecordReader::Bind() {
  for (ColumnFeatures::Feature& feature : features_.features()) {
    const std::string& source = feature.source_name();
    const auto found =
        std::find_if(columns_.begin(), columns_.end(),
                     [&](const RecordColumn& column) { return column.name == source; });
    if (found == columns_.end()) {
      constexpr size_t kMaxShownNames = 20;
      const size_t shown = std::min(columns_.size(), kMaxShownNames);
      return absl::InvalidArgumentError(absl::StrCat(
          name_, ": column ", Quoted(source), " is not in the file, which has ",
          absl::StrJoin(
              columns_.begin(), columns_.begin() + static_cast<ptrdiff_t>(shown), ", ",
              [](std::string* out, const RecordColumn& column) { *out += Quoted(column.name); }),
          shown < columns_.size() ? ", ..." : ""));
    }
    if (!found->is_list && feature.is_list) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ": column ", Quoted(source),
                       " is not a list, but the job has `list` for it; convert it with --list, or "
                       "leave `list` out"));
    }
    if (found->is_list && !feature.is_list && !feature.IsField()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name_, ": column ", Quoted(source), " is a list, but the job reads it as one number"));
    }
    feature.source = static_cast<size_t>(found - columns_.begin());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RecordReader::ReadBlock() {
  block_offset_ = start_offset_ + bytes_.offset();
  PAWL_ASSIGN_OR_RETURN(const absl::string_view head_bytes, bytes_.Read(kRecordBlockHeadBytes));
  if (head_bytes.empty() && !needs_end_) return false;
  if (head_bytes.size() < kRecordBlockHeadBytes) {
    return MalformedBlock(
        "the file ends early: it was not written completely, or has been cut off");
  }
  const absl::StatusOr<RecordBlockHead> head = ParseRecordBlockHead(head_bytes);
  if (!head.ok()) return MalformedBlock(head.status().message());
  if (head->rows_before != row_before_ + rows_) {
    return MalformedBlock(absl::StrCat("it follows ", head->rows_before, " rows, but the file has ",
                                       row_before_ + rows_, " before it"));
  }
  row_before_ += rows_;
  rows_ = row_ = 0;
  if (head->rows == 0) {
    PAWL_ASSIGN_OR_RETURN(const absl::string_view more, bytes_.Read(1));
    if (more.empty()) return false;
    return MalformedBlock("the file has bytes behind its end; files cannot be joined");
  }
  PAWL_ASSIGN_OR_RETURN(const absl::string_view stored, bytes_.Read(head->stored_bytes));
  if (stored.size() < head->stored_bytes) return MalformedBlock("the file ends within the block");
  absl::string_view content;
  absl::Status status = UnpackRecordBlock(*head, stored, &memory_, &content);
  if (status.ok()) status = ParseRecordBlock(columns_, head->rows, content, &chunks_);
  if (!status.ok()) return MalformedBlock(status.message());
  rows_ = head->rows;
  offset_ = bytes_.offset();
  is_made_ = false;
  return true;
}

absl::StatusOr<bool> RecordReader::Advance() {
  is_at_sample_ = false;
  if (row_ < rows_) return true;
  return ReadBlock();
}

absl::StatusOr<bool> RecordReader::Skip() {
  const absl::StatusOr<bool> more = Advance();
  if (more.ok() && *more) ++row_;
  return more;
}

absl::StatusOr<bool> RecordReader::Next(SampleStore* store) {
  const absl::StatusOr<bool> more = Advance();
  if (!more.ok() || !*more) return more;
  if (!is_made_) Make();
  if (row_ < tile_begin_ || row_ >= tile_end_) FillTile();
  const absl::Status status = Apply(row_++);
  if (!status.ok()) {
    is_at_sample_ = true;
    return absl::InvalidArgumentError(absl::StrCat(name_, ": record ", lines(),
                                                   " in the block at byte ", block_offset_, ": ",
                                                   status.message()));
  }
  features_.Append(sample_, store);
  return true;
}

void RecordReader::Make() {
  const std::vector<ColumnFeatures::Feature>& features = features_.features();
  for (size_t f = 0; f < features.size(); ++f) MakeFeature(features[f], &made_[f]);
  is_made_ = true;
  tile_begin_ = tile_end_ = 0;
}

void RecordReader::MakeFeature(const ColumnFeatures::Feature& feature, Made* made) const {
  const RecordChunk& chunk = chunks_[feature.source];
  const uint32_t count = chunk.distinct();
  const auto note = [&](uint32_t value, const absl::Status& status) {
    if (status.ok()) return;
    made->is_bad.resize(count);
    made->is_bad[value] = true;
  };
  made->is_bad.clear();
  if (feature.IsField()) {
    made->keys.resize(count);
    for (uint32_t v = 0; v < count; ++v)
      note(v, features_.KeyOf(feature, chunk.At(v), &made->keys[v]));
    made->is_absent_bad = !features_.KeyOf(feature, ColumnValue(), &made->absent_key).ok();
  } else {
    made->numbers.resize(count);
    for (uint32_t v = 0; v < count; ++v)
      note(v, features_.NumberOf(feature, chunk.At(v), &made->numbers[v]));
    made->is_absent_bad = !features_.NumberOf(feature, ColumnValue(), &made->absent_number).ok();
  }
}

void RecordReader::FillTile() {
  tile_begin_ = row_;
  tile_end_ = std::min(rows_, row_ + kTileRows);
  std::fill(is_bad_row_.begin(), is_bad_row_.end(), 0);
  const std::vector<ColumnFeatures::Feature>& features = features_.features();
  for (size_t f = 0; f < features.size(); ++f) {
    if (!features[f].is_list) FillTile(features[f], made_[f]);
  }
}

void RecordReader::FillTile(const ColumnFeatures::Feature& feature, const Made& made) {
  const RecordChunk& chunk = chunks_[feature.source];
  const uint32_t count = tile_end_ - tile_begin_;
  const size_t fields = features_.shape().field_count;
  // Whether a row has a value, and its number.
  const auto look_up = [&](uint32_t row, uint32_t* number) {
    const uint32_t begin = chunk.is_list() ? chunk.Begin(row) : row;
    const uint32_t end =
        chunk.is_list() ? chunk.Begin(row + 1) : row + (chunk.HasValue(row) ? 1 : 0);
    if (end - begin > 1) is_bad_row_[row - tile_begin_] = 1;
    if (end == begin) return false;
    *number = chunk.NumberOf(begin);
    return true;
  };
  const auto fill = [&](auto* out, size_t stride, const auto* values, auto absent) {
    const bool is_simple = !chunk.is_list() && !chunk.HasAbsent() && made.is_bad.empty();
    if (is_simple) return chunk.Gather(values, tile_begin_, count, stride, out);
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t number = 0;
      const bool has_value = look_up(tile_begin_ + i, &number);
      out[i * stride] = has_value ? values[number] : absent;
      if (has_value ? !made.is_bad.empty() && made.is_bad[number] : made.is_absent_bad)
        is_bad_row_[i] = 1;
    }
  };
  if (feature.IsField()) {
    fill(&tile_of_keys_[feature.field], fields, made.keys.data(), made.absent_key);
    return;
  }
  const size_t labels = features_.shape().label_count;
  const size_t place = feature.kind == Column::kLabel    ? feature.field
                       : feature.kind == Column::kWeight ? labels
                                                         : labels + 1 + feature.field;
  fill(&tile_of_numbers_[place], tile_numbers_, made.numbers.data(), made.absent_number);
}

absl::Status RecordReader::Apply(uint32_t row) {
  features_.Clear(&sample_);
  const std::vector<ColumnFeatures::Feature>& features = features_.features();
  const size_t place = row - tile_begin_;
  const bool is_bad = is_bad_row_[place] != 0;
  const float* const numbers = &tile_of_numbers_[place * tile_numbers_];
  std::copy_n(numbers, sample_.labels.size(), sample_.labels.begin());
  sample_.weight = numbers[sample_.labels.size()];
  std::copy_n(numbers + sample_.labels.size() + 1, sample_.numerics.size(),
              sample_.numerics.begin());
  std::copy_n(tile_of_keys_.begin() + static_cast<ptrdiff_t>(place * sample_.keys.size()),
              sample_.keys.size(), sample_.keys.begin());
  for (size_t f = 0; f < features.size() && (is_bad || features_.has_lists()); ++f) {
    // Only applying a malformed value again tells what is wrong.
    if (is_bad || features[f].is_list)
      PAWL_RETURN_IF_ERROR(ApplyFeature(features[f], made_[f], row));
  }
  features_.Cross(&sample_);
  return absl::OkStatus();
}

absl::Status RecordReader::ApplyFeature(const ColumnFeatures::Feature& feature, const Made& made,
                                        uint32_t row) {
  const RecordChunk& chunk = chunks_[feature.source];
  const bool has_lists = chunk.is_list();
  const uint32_t begin = has_lists ? chunk.Begin(row) : row;
  const uint32_t end = has_lists ? chunk.Begin(row + 1) : row + (chunk.HasValue(row) ? 1 : 0);
  const auto is_bad = [&made](uint32_t number) {
    return !made.is_bad.empty() && made.is_bad[number];
  };
  if (feature.is_list) {
    ColumnSample::List& list = sample_.lists[feature.list];
    list.begin = sample_.list_keys.size();
    const auto used = static_cast<uint32_t>(std::min<size_t>(end - begin, feature.max_length));
    for (uint32_t i = end - used; i < end; ++i) {
      const uint32_t number = chunk.NumberOf(i);
      if (is_bad(number)) {
        uint64_t key = 0;
        return features_.KeyOf(feature, chunk.At(number), &key);
      }
      sample_.list_keys.push_back(made.keys[number]);
    }
    list.end = sample_.list_keys.size();
    return absl::OkStatus();
  }
  if (end - begin > 1) {
    return MalformedColumn(
        feature, absl::StrCat("the sample has ", end - begin, " values; set `list` of the column"));
  }
  const bool is_absent = begin == end;
  const uint32_t number = is_absent ? 0 : chunk.NumberOf(begin);
  if (is_absent ? made.is_absent_bad : is_bad(number))
    return features_.Set(feature, is_absent ? ColumnValue() : chunk.At(number), &sample_);
  if (feature.IsField()) {
    sample_.keys[feature.field] = is_absent ? made.absent_key : made.keys[number];
  } else {
    *ColumnFeatures::PlaceOf(feature, &sample_) =
        is_absent ? made.absent_number : made.numbers[number];
  }
  return absl::OkStatus();
}

}  // namespace pawl
