// Pawl's record files: columns of numbers, texts and lists of them, in blocks. README.md describes
// the bytes.
#ifndef PAWL_WORKER_DATA_RECORDS_RECORD_FILE_H_
#define PAWL_WORKER_DATA_RECORDS_RECORD_FILE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/readers/column_features.h"

namespace pawl {

inline constexpr absl::string_view kRecordMagic = "PAWLREC1";
// The magic, and the size and CRC-32 of the schema.
inline constexpr size_t kRecordHeadBytes = 16;
inline constexpr uint32_t kMaxSchemaBytes = 1 << 20;
inline constexpr size_t kRecordBlockHeadBytes = 36;
// A block is read, verified and decompressed as a whole.
inline constexpr uint32_t kMaxRecordBlockBytes = 16 << 20;
inline constexpr uint32_t kMaxRecordBlockRows = 1 << 16;
// Values of a column in a block.
inline constexpr uint32_t kMaxRecordBlockValues = 1 << 22;

enum class RecordType : uint8_t { kFloat32 = 1, kFloat64 = 2, kInt64 = 3, kBytes = 4 };

struct RecordColumn {
  std::string name;
  RecordType type = RecordType::kBytes;
  bool is_list = false;
};

struct RecordBlockHead {
  enum class Compression : uint8_t { kNone = 0, kZlib = 1, kZstd = 2 };

  // 0: the end of the file.
  uint32_t rows = 0;
  uint32_t stored_bytes = 0;
  uint32_t content_bytes = 0;
  Compression compression = Compression::kNone;
  uint32_t crc = 0;
  // Rows of the file before the block.
  uint64_t rows_before = 0;
};

// A column of a block. It refers to the block's content, and everything in it is in range.
class RecordChunk {
 public:
  // Parses the chunk at the start of *content, and removes it. False if it is malformed.
  bool Parse(const RecordColumn& column, uint32_t rows, absl::string_view* content);

  bool is_list() const { return ends_ != nullptr; }
  // REQUIRES: it is not a list.
  bool HasValue(uint32_t row) const {
    return presence_ == nullptr || (static_cast<uint8_t>(presence_[row / 8]) >> (row % 8) & 1) != 0;
  }
  // The values of the row are those from Begin(row) on, up to Begin(row + 1).
  uint32_t Begin(uint32_t row) const { return row == 0 ? 0 : Load<uint32_t>(ends_, row - 1); }

  // Values refer to distinct ones, which a dictionary has, or to themselves.
  uint32_t distinct() const { return distinct_; }
  uint32_t NumberOf(uint32_t value) const {
    switch (number_bytes_) {
      case 0:
        return value;
      case 1:
        return static_cast<uint8_t>(numbers_[value]);
      case 2:
        return Load<uint16_t>(numbers_, value);
      default:
        return Load<uint32_t>(numbers_, value);
    }
  }
  // REQUIRES: number < distinct().
  ColumnValue At(uint32_t number) const;

  bool HasAbsent() const { return presence_ != nullptr; }
  // For `count` rows from `first` on, sets every `stride`-th of *out to what `made` has for the
  // distinct value of the row. REQUIRES: it is not a list; `made` has distinct() elements.
  template <typename T>
  void Gather(const T* made, uint32_t first, uint32_t count, size_t stride, T* out) const {
    switch (number_bytes_) {
      case 0:
        for (uint32_t i = 0; i < count; ++i) out[i * stride] = made[first + i];
        break;
      case 1:
        GatherBy<uint8_t>(made, first, count, stride, out);
        break;
      case 2:
        GatherBy<uint16_t>(made, first, count, stride, out);
        break;
      default:
        GatherBy<uint32_t>(made, first, count, stride, out);
        break;
    }
  }

 private:
  template <typename T>
  static T Load(const char* array, size_t index) {
    T value;
    std::memcpy(&value, array + index * sizeof(T), sizeof(T));
    return value;
  }
  template <typename Number, typename T>
  void GatherBy(const T* made, uint32_t first, uint32_t count, size_t stride, T* out) const {
    for (uint32_t i = 0; i < count; ++i)
      out[i * stride] = made[Load<Number>(numbers_, size_t{first} + i)];
  }
  static bool IsAscending(const char* ends, uint32_t count);

  RecordType type_ = RecordType::kBytes;
  const char* presence_ = nullptr;
  const char* ends_ = nullptr;  // of the lists
  uint32_t distinct_ = 0;
  const char* values_ = nullptr;  // numbers, or the ends of texts
  const char* texts_ = nullptr;
  uint8_t number_bytes_ = 0;
  const char* numbers_ = nullptr;
};

// INVALID_ARGUMENT, without the name of the file, for bytes that are not as README.md says.
// `head` has kRecordHeadBytes.
absl::StatusOr<uint32_t> ParseRecordHead(absl::string_view head, uint32_t* schema_crc);
absl::StatusOr<std::vector<RecordColumn>> ParseRecordSchema(absl::string_view schema,
                                                            uint32_t schema_crc);
// `bytes` has kRecordBlockHeadBytes.
absl::StatusOr<RecordBlockHead> ParseRecordBlockHead(absl::string_view bytes);
// Verifies and decompresses the block; *content refers to `stored` or to *memory.
absl::Status UnpackRecordBlock(const RecordBlockHead& head, absl::string_view stored,
                               std::string* memory, absl::string_view* content);
absl::Status ParseRecordBlock(const std::vector<RecordColumn>& columns, uint32_t rows,
                              absl::string_view content, std::vector<RecordChunk>* chunks);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_RECORDS_RECORD_FILE_H_
