#include "worker/data/records/record_file.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <bit>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/limits.h"
#include "worker/data/readers/text_input.h"

namespace pawl {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kBlockMagic = 0x314b4c42;  // "BLK1"

absl::Status Malformed(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Takes parts from the front of bytes. Once a part is missing, all parts are.
class Parts {
 public:
  explicit Parts(absl::string_view bytes) : rest_(bytes) {}

  absl::string_view Take(uint64_t size) {
    if (size > rest_.size()) is_short_ = true;
    if (is_short_) return {};
    const absl::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }
  template <typename T>
  T Number() {
    T number = 0;
    const absl::string_view part = Take(sizeof(T));
    if (part.size() == sizeof(T)) std::memcpy(&number, part.data(), sizeof(T));
    return number;
  }

  bool is_short() const { return is_short_; }
  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
  bool is_short_ = false;
};

size_t BytesOf(RecordType type) {
  return type == RecordType::kFloat32 || type == RecordType::kBytes ? 4 : 8;
}

}  // namespace

absl::StatusOr<uint32_t> ParseRecordHead(absl::string_view head, uint32_t* schema_crc) {
  Parts parts(head);
  if (parts.Take(kRecordMagic.size()) != kRecordMagic)
    return Malformed("is not a record file; `python -m pawl convert` writes them");
  const auto size = parts.Number<uint32_t>();
  *schema_crc = parts.Number<uint32_t>();
  if (parts.is_short() || size > kMaxSchemaBytes) return Malformed("the head is damaged");
  return size;
}

absl::StatusOr<std::vector<RecordColumn>> ParseRecordSchema(absl::string_view schema,
                                                            uint32_t schema_crc) {
  if (Crc32(0, schema.data(), schema.size()) != schema_crc)
    return Malformed("the checksum of the schema is wrong: the file is damaged");
  Parts parts(schema);
  std::vector<RecordColumn> columns;
  absl::flat_hash_set<std::string> names;
  for (uint32_t left = parts.Number<uint32_t>(); left > 0 && !parts.is_short(); --left) {
    RecordColumn& column = columns.emplace_back();
    const auto type = parts.Number<uint8_t>();
    const auto flags = parts.Number<uint8_t>();
    column.name = std::string(parts.Take(parts.Number<uint16_t>()));
    if (type < 1 || type > static_cast<uint8_t>(RecordType::kBytes) || flags > 1) {
      return Malformed(absl::StrCat("the schema has a column ", Quoted(column.name),
                                    " of a type that this version of Pawl does not know"));
    }
    column.type = static_cast<RecordType>(type);
    column.is_list = flags == 1;
    if (!names.insert(column.name).second)
      return Malformed(absl::StrCat("the schema has the column ", Quoted(column.name), " twice"));
  }
  if (parts.is_short() || !parts.rest().empty()) return Malformed("the schema is malformed");
  return columns;
}

absl::StatusOr<RecordBlockHead> ParseRecordBlockHead(absl::string_view bytes) {
  Parts parts(bytes);
  RecordBlockHead head;
  const auto magic = parts.Number<uint32_t>();
  head.rows = parts.Number<uint32_t>();
  head.stored_bytes = parts.Number<uint32_t>();
  head.content_bytes = parts.Number<uint32_t>();
  const auto compression = parts.Number<uint32_t>();
  head.crc = parts.Number<uint32_t>();
  head.rows_before = parts.Number<uint64_t>();
  const auto head_crc = parts.Number<uint32_t>();
  if (parts.is_short() || magic != kBlockMagic ||
      Crc32(0, bytes.data(), kRecordBlockHeadBytes - sizeof(head_crc)) != head_crc) {
    return Malformed("there is no block: the file is damaged");
  }
  head.compression = static_cast<RecordBlockHead::Compression>(compression);
  if (compression > static_cast<uint32_t>(RecordBlockHead::Compression::kZstd) ||
      head.rows > kMaxRecordBlockRows || head.stored_bytes > kMaxRecordBlockBytes ||
      head.content_bytes > kMaxRecordBlockBytes ||
      (head.rows == 0 && head.stored_bytes + head.content_bytes > 0)) {
    return Malformed(absl::StrCat("the block has ", head.rows, " rows in ", head.stored_bytes,
                                  " bytes (", head.content_bytes,
                                  " without compression, which is number ", compression,
                                  "), beyond what this version of Pawl reads"));
  }
  return head;
}

absl::Status UnpackRecordBlock(const RecordBlockHead& head, absl::string_view stored,
                               std::string* memory, absl::string_view* content) {
  if (Crc32(0, stored.data(), stored.size()) != head.crc)
    return Malformed("the checksum of the block is wrong: the file is damaged");
  bool is_good = false;
  switch (head.compression) {
    case RecordBlockHead::Compression::kNone:
      *content = stored;
      is_good = stored.size() == head.content_bytes;
      break;
    case RecordBlockHead::Compression::kZlib: {
      memory->resize(head.content_bytes);
      uLongf size = head.content_bytes;
      is_good = uncompress(reinterpret_cast<Bytef*>(memory->data()), &size,
                           reinterpret_cast<const Bytef*>(stored.data()), stored.size()) == Z_OK &&
                size == head.content_bytes;
      *content = *memory;
      break;
    }
    case RecordBlockHead::Compression::kZstd:
      memory->resize(head.content_bytes);
      is_good = ZSTD_decompress(memory->data(), memory->size(), stored.data(), stored.size()) ==
                head.content_bytes;
      *content = *memory;
      break;
  }
  return is_good ? absl::OkStatus() : Malformed("the block cannot be decompressed");
}

absl::Status ParseRecordBlock(const std::vector<RecordColumn>& columns, uint32_t rows,
                              absl::string_view content, std::vector<RecordChunk>* chunks) {
  chunks->assign(columns.size(), RecordChunk());
  for (size_t c = 0; c < columns.size(); ++c) {
    if (!(*chunks)[c].Parse(columns[c], rows, &content)) {
      return Malformed(
          absl::StrCat("column ", Quoted(columns[c].name), " of the block is malformed"));
    }
  }
  return content.empty() ? absl::OkStatus() : Malformed("the block has bytes behind its columns");
}

bool RecordChunk::IsAscending(const char* ends, uint32_t count) {
  uint32_t last = 0;
  bool is_ascending = true;
  for (uint32_t i = 0; i < count; ++i) {
    const auto end = Load<uint32_t>(ends, i);
    is_ascending &= end >= last;
    last = end;
  }
  return is_ascending;
}

bool RecordChunk::Parse(const RecordColumn& column, uint32_t rows, absl::string_view* content) {
  Parts parts(*content);
  type_ = column.type;
  const auto encoding = parts.Number<uint8_t>();
  number_bytes_ = parts.Number<uint8_t>();
  const auto has_presence = parts.Number<uint8_t>();
  const auto reserved = parts.Number<uint8_t>();
  const auto count = parts.Number<uint32_t>();
  distinct_ = parts.Number<uint32_t>();
  const bool has_dictionary = encoding == 1;
  const bool has_numbers = number_bytes_ == 1 || number_bytes_ == 2 || number_bytes_ == 4;
  if (parts.is_short() || encoding > 1 || has_presence > 1 || reserved != 0 ||
      has_dictionary != has_numbers || (!has_dictionary && number_bytes_ != 0) ||
      count > kMaxRecordBlockValues || (has_presence == 1 && column.is_list) ||
      (!column.is_list && count != rows) ||
      // A dictionary must not make a block larger than its values.
      (has_dictionary ? distinct_ > count : distinct_ != 0)) {
    return false;
  }
  if (!has_dictionary) distinct_ = count;
  if (has_presence == 1) presence_ = parts.Take((uint64_t{rows} + 7) / 8).data();
  if (column.is_list) {
    ends_ = parts.Take(uint64_t{rows} * 4).data();
    if (parts.is_short() || !IsAscending(ends_, rows) ||
        (rows > 0 ? Load<uint32_t>(ends_, rows - 1) : 0) != count) {
      return false;
    }
  }
  values_ = parts.Take(distinct_ * uint64_t{BytesOf(type_)}).data();
  if (parts.is_short()) return false;
  if (type_ == RecordType::kBytes && distinct_ > 0) {
    if (!IsAscending(values_, distinct_)) return false;
    texts_ = parts.Take(Load<uint32_t>(values_, distinct_ - 1)).data();
  }
  if (has_dictionary) {
    numbers_ = parts.Take(uint64_t{count} * number_bytes_).data();
    if (parts.is_short()) return false;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; ++i) largest = std::max(largest, NumberOf(i));
    if (count > 0 && largest >= distinct_) return false;
  }
  *content = parts.rest();
  return !parts.is_short();
}

ColumnValue RecordChunk::At(uint32_t number) const {
  switch (type_) {
    case RecordType::kFloat32:
      return ColumnValue::Float32(Load<float>(values_, number));
    case RecordType::kFloat64:
      return ColumnValue::Float64(Load<double>(values_, number));
    case RecordType::kInt64:
      return ColumnValue::Integer(Load<int64_t>(values_, number));
    case RecordType::kBytes:
      break;
  }
  const uint32_t begin = number == 0 ? 0 : Load<uint32_t>(values_, number - 1);
  return ColumnValue::Text(
      absl::string_view(texts_ + begin, Load<uint32_t>(values_, number) - begin));
}

}  // namespace pawl
