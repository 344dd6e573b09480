#include "worker/data/stream/block_index.h"

#include <sys/stat.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/env.h"
#include "client_lib/base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "worker/data/readers/sample_reader.h"
#include "worker/data/sample_format.h"
#include "worker/data/sample_store.h"
#include "worker/data/stream/block_index.pb.h"

namespace pawl {
namespace {

// "PAWLIDX1", the size and the CRC32C of the message, little-endian, the message, dictionaries.
constexpr absl::string_view kMagic = "PAWLIDX1";
constexpr size_t kPrefixBytes = 16;
constexpr uint32_t kMaxDictionaryBytes = 64 * 1024;
// How much larger than wanted a block may be: by a sample, comments, or bytes that are no samples.
constexpr uint64_t kMaxExcessBytes = uint64_t{64} << 20;
// Changes when the same settings give other samples or blocks than before.
constexpr uint64_t kSettingsVersion = 2;

// Keeps what was read and not yet taken.
class KeepingSource final : public ByteSource {
 public:
  // INVALID_ARGUMENT naming `path` when it has to keep more than `max_bytes`.
  KeepingSource(ByteSource& source, const std::string& path, uint64_t max_bytes)
      : source_(source), path_(path), max_bytes_(max_bytes) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    PAWL_ASSIGN_OR_RETURN(const size_t count, source_.Read(out, size));
    kept_.append(out, count);
    dropped_and_kept_ += count;
    if (kept_.size() <= max_bytes_) return count;
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": the ", kept_.size(), " bytes before byte ", dropped_and_kept_,
                     " have no end of a sample; is this a file of samples?"));
  }

  // The bytes from the last Drop on.
  absl::string_view kept() const { return kept_; }
  void Drop(size_t bytes) { kept_.erase(0, bytes); }

 private:
  ByteSource& source_;
  const std::string& path_;
  const uint64_t max_bytes_;
  std::string kept_;
  uint64_t dropped_and_kept_ = 0;
};

class IndexMaker {
 public:
  IndexMaker(const Data& spec, const std::string& path, std::string* dictionaries)
      : spec_(spec),
        path_(path),
        dictionaries_(*dictionaries),
        block_bytes_(spec.block_bytes() == 0 ? kDefaultBlockBytes : spec.block_bytes()) {
    recorder_.spacing = kRestartBlocks * block_bytes_;
  }

  absl::StatusOr<BlockIndex> Make() {
    PAWL_ASSIGN_OR_RETURN(index_.version, VersionOf(path_));
    PAWL_ASSIGN_OR_RETURN(index_.compression, CompressionOf(path_));
    index_.settings = IndexSettings(spec_);
    PAWL_ASSIGN_OR_RETURN(const auto file, OpenDataFile(path_, &recorder_));
    KeepingSource source(*file, path_, block_bytes_ + kMaxExcessBytes);
    source_ = &source;
    if (index_.compression != Compression::kNone) index_.restarts.emplace_back();
    PAWL_RETURN_IF_ERROR(OpenReader(source));
    PAWL_RETURN_IF_ERROR(ReadAll());
    PAWL_ASSIGN_OR_RETURN(const FileVersion now, VersionOf(path_));
    if (now != index_.version) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": changed while its index was made"));
    }
    if (index_.samples() == 0 && !index_.bad_examples.empty())
      return absl::InvalidArgumentError(index_.bad_examples.front());
    if (index_.samples() == 0)
      return absl::InvalidArgumentError(absl::StrCat(path_, ": has no samples"));
    return std::move(index_);
  }

 private:
  absl::Status OpenReader(ByteSource& source) {
    PAWL_ASSIGN_OR_RETURN(const SampleLayout layout, LayoutOf(spec_));
    store_.shape = layout.shape;
    PAWL_ASSIGN_OR_RETURN(reader_, OpenSamples(spec_, source, path_));
    const uint64_t head_bytes = reader_->offset();
    index_.head = std::string(source_->kept().substr(0, head_bytes));
    // Without a header line the first record is a sample of the first block.
    if (spec_.format() == CSV && spec_.csv().no_header()) return absl::OkStatus();
    block_.offset = head_bytes;
    block_.lines_before = reader_->lines();
    source_->Drop(head_bytes);
    return absl::OkStatus();
  }

  absl::Status ReadAll() {
    for (;;) {
      const absl::StatusOr<bool> more = reader_->Next(&store_);
      if (!more.ok()) {
        if (!reader_->IsAtSample()) return more.status();
        ++block_.bad_samples;
        if (index_.bad_examples.size() < BadSamples::kMaxShown)
          index_.bad_examples.emplace_back(more.status().message());
      } else if (!*more) {
        break;
      }
      if (!reader_->IsAtBoundary()) continue;
      const uint64_t end = reader_->offset();
      if (end - block_.offset >= block_bytes_ || HasRestartBefore(end)) EndBlock(end);
    }
    if (store_.size() > 0 || block_.bad_samples > 0) EndBlock(reader_->offset());
    index_.most_entries = reader_->most_entries();
    return absl::OkStatus();
  }

  // Whether the next block could use a later restart point.
  bool HasRestartBefore(uint64_t offset) const {
    return !recorder_.points.empty() && recorder_.points.front().offset <= offset;
  }

  void EndBlock(uint64_t end) {
    block_.bytes = static_cast<uint32_t>(end - block_.offset);
    block_.crc = Crc32c(0, source_->kept().data(), block_.bytes);
    block_.samples = static_cast<uint32_t>(store_.size());
    Summarize();
    index_.blocks.push_back(block_);
    source_->Drop(block_.bytes);
    while (HasRestartBefore(end)) {
      // A point that a later one replaces needs no place.
      RestartPoint point = std::move(recorder_.points.front());
      recorder_.points.pop_front();
      if (!HasRestartBefore(end)) AddRestart(std::move(point));
    }
    block_ = {};
    block_.offset = end;
    block_.lines_before = reader_->lines();
    if (!index_.restarts.empty())
      block_.restart = static_cast<uint32_t>(index_.restarts.size() - 1);
    store_.Clear();
  }

  void AddRestart(RestartPoint point) {
    BlockIndex::Restart& restart = index_.restarts.emplace_back();
    if (!point.dictionary.empty()) {
      std::string packed(ZSTD_compressBound(point.dictionary.size()), '\0');
      packed.resize(ZSTD_compress(packed.data(), packed.size(), point.dictionary.data(),
                                  point.dictionary.size(), 3));
      restart.dictionary_at = dictionaries_.size();
      restart.dictionary_bytes = static_cast<uint32_t>(packed.size());
      dictionaries_ += packed;
      point.dictionary.clear();
    }
    restart.point = std::move(point);
  }

  void Summarize() {
    for (const float label : store_.labels) {
      if (!has_label_) index_.labels = {label, label, true};
      has_label_ = true;
      index_.labels.min = std::min(index_.labels.min, label);
      index_.labels.max = std::max(index_.labels.max, label);
      index_.labels.integers = index_.labels.integers && label == std::floor(label);
    }
  }

  const Data& spec_;
  const std::string& path_;
  std::string& dictionaries_;
  const uint64_t block_bytes_;
  RestartRecorder recorder_;
  KeepingSource* source_ = nullptr;
  std::unique_ptr<SampleReader> reader_;
  // The samples of the current block.
  SampleStore store_{std::numeric_limits<uint64_t>::max(), /*interns=*/false};
  DataBlock block_;
  bool has_label_ = false;
  BlockIndex index_;
};

uint64_t Hash(const void* bytes, size_t size, uint64_t seed) { return XXH64(bytes, size, seed); }

template <typename T>
uint64_t HashOf(T value, uint64_t seed) {
  return Hash(&value, sizeof(value), seed);
}

}  // namespace

absl::StatusOr<FileVersion> VersionOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return FileVersion{static_cast<uint64_t>(info.st_size),
                     int64_t{info.st_mtim.tv_sec} * 1000000000 + info.st_mtim.tv_nsec};
}

uint64_t BlockIndex::samples() const {
  uint64_t sum = 0;
  for (const DataBlock& block : blocks) sum += block.samples;
  return sum;
}

uint64_t BlockIndex::bad_samples() const {
  uint64_t sum = 0;
  for (const DataBlock& block : blocks) sum += block.bad_samples;
  return sum;
}

uint64_t BlockIndex::Identity() const {
  uint64_t hash = HashOf(settings, Hash(head.data(), head.size(), 0));
  for (const DataBlock& block : blocks) {
    hash = HashOf(block.offset, hash);
    hash = HashOf(uint64_t{block.crc} << 32 | block.bytes, hash);
    hash = HashOf(uint64_t{block.samples} << 32 | block.restart, hash);
  }
  return hash;
}

uint64_t IndexSettings(const Data& spec) {
  Data settings;
  settings.set_format(spec.format());
  settings.set_libsvm_fields(spec.libsvm_fields());
  settings.set_block_bytes(spec.block_bytes() == 0 ? kDefaultBlockBytes : spec.block_bytes());
  if (spec.has_csv()) *settings.mutable_csv() = spec.csv();
  if (spec.has_records()) *settings.mutable_records() = spec.records();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    settings.SerializeToCodedStream(&coded);
  }
  return Hash(bytes.data(), bytes.size(), kSettingsVersion);
}

absl::StatusOr<BlockIndex> MakeBlockIndex(const Data& spec, const std::string& path,
                                          std::string* dictionaries) {
  return IndexMaker(spec, path, dictionaries).Make();
}

absl::StatusOr<std::string> EncodeBlockIndex(const BlockIndex& index,
                                             absl::string_view dictionaries) {
  StoredBlockIndex stored;
  stored.set_file_bytes(index.version.bytes);
  stored.set_modified_ns(index.version.modified_ns);
  stored.set_compression(static_cast<uint32_t>(index.compression));
  stored.set_settings(index.settings);
  stored.set_head(index.head);
  for (const DataBlock& block : index.blocks) {
    StoredBlock& to = *stored.add_blocks();
    to.set_offset(block.offset);
    to.set_bytes(block.bytes);
    to.set_crc(block.crc);
    to.set_samples(block.samples);
    to.set_bad_samples(block.bad_samples);
    to.set_lines_before(block.lines_before);
    to.set_restart(block.restart);
  }
  for (const BlockIndex::Restart& restart : index.restarts) {
    StoredRestart& to = *stored.add_restarts();
    to.set_offset(restart.point.offset);
    to.set_file_offset(restart.point.file_offset);
    to.set_bits(restart.point.bits);
    to.set_dictionary_at(restart.dictionary_at);
    to.set_dictionary_bytes(restart.dictionary_bytes);
  }
  stored.set_least_label(index.labels.min);
  stored.set_largest_label(index.labels.max);
  stored.set_has_integer_labels(index.labels.integers);
  stored.set_most_entries(index.most_entries);
  for (const std::string& example : index.bad_examples) stored.add_bad_examples(example);
  const uint64_t total = kPrefixBytes + stored.ByteSizeLong() + dictionaries.size();
  if (total > kMaxIndexBytes) {
    return absl::InvalidArgumentError(absl::StrCat("its index would have ", total,
                                                   " bytes, more than ", kMaxIndexBytes,
                                                   "; raise data.block_bytes"));
  }
  const std::string message = stored.SerializeAsString();
  const auto size = static_cast<uint32_t>(message.size());
  const uint32_t crc = Crc32c(0, message.data(), message.size());
  std::string bytes(kMagic);
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  return absl::StrCat(bytes, message, dictionaries);
}

absl::StatusOr<BlockIndex> DecodeBlockIndex(absl::string_view bytes, uint64_t* dictionaries_begin) {
  const auto damaged = [] { return absl::InvalidArgumentError("is damaged or not an index"); };
  uint32_t size = 0, crc = 0;
  if (bytes.size() < kPrefixBytes || bytes.substr(0, kMagic.size()) != kMagic) return damaged();
  std::memcpy(&size, bytes.data() + 8, sizeof(size));
  std::memcpy(&crc, bytes.data() + 12, sizeof(crc));
  if (size > bytes.size() - kPrefixBytes) return damaged();
  const absl::string_view message = bytes.substr(kPrefixBytes, size);
  StoredBlockIndex stored;
  if (Crc32c(0, message.data(), message.size()) != crc ||
      !stored.ParseFromArray(message.data(), static_cast<int>(message.size())) ||
      stored.compression() > static_cast<uint32_t>(Compression::kZstd)) {
    return damaged();
  }
  *dictionaries_begin = kPrefixBytes + size;
  BlockIndex index;
  index.version = {stored.file_bytes(), stored.modified_ns()};
  index.compression = static_cast<Compression>(stored.compression());
  index.settings = stored.settings();
  index.head = stored.head();
  for (const StoredRestart& from : stored.restarts()) {
    if (from.bits() > 7 || from.dictionary_bytes() > kMaxDictionaryBytes) return damaged();
    BlockIndex::Restart& restart = index.restarts.emplace_back();
    restart.point.offset = from.offset();
    restart.point.file_offset = from.file_offset();
    restart.point.bits = static_cast<uint8_t>(from.bits());
    restart.dictionary_at = from.dictionary_at();
    restart.dictionary_bytes = from.dictionary_bytes();
  }
  index.blocks.reserve(static_cast<size_t>(stored.blocks_size()));
  for (const StoredBlock& from : stored.blocks()) {
    const bool has_restart = from.restart() < index.restarts.size() &&
                             index.restarts[from.restart()].point.offset <= from.offset();
    if (from.bytes() > std::numeric_limits<uint32_t>::max() ||
        (index.compression != Compression::kNone && !has_restart)) {
      return damaged();
    }
    index.blocks.push_back({.offset = from.offset(),
                            .lines_before = from.lines_before(),
                            .bytes = static_cast<uint32_t>(from.bytes()),
                            .crc = from.crc(),
                            .samples = from.samples(),
                            .bad_samples = from.bad_samples(),
                            .restart = from.restart()});
  }
  index.labels = {stored.least_label(), stored.largest_label(), stored.has_integer_labels()};
  index.most_entries = stored.most_entries();
  index.bad_examples.assign(stored.bad_examples().begin(), stored.bad_examples().end());
  return index;
}

absl::StatusOr<RestartPoint> LoadRestart(const BlockIndex::Restart& restart,
                                         const std::string& index_path,
                                         uint64_t dictionaries_begin) {
  RestartPoint point = restart.point;
  if (restart.dictionary_bytes == 0) return point;
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                        Env::Real().OpenForRead(index_path));
  std::string packed(restart.dictionary_bytes, '\0');
  PAWL_ASSIGN_OR_RETURN(const size_t count, file->Read(dictionaries_begin + restart.dictionary_at,
                                                       absl::MakeSpan(packed)));
  point.dictionary.resize(kMaxDictionaryBytes);
  const size_t size = ZSTD_decompress(point.dictionary.data(), point.dictionary.size(),
                                      packed.data(), packed.size());
  if (count < packed.size() || ZSTD_isError(size) != 0) {
    return absl::DataLossError(
        absl::StrCat(index_path, ": is damaged; delete it to have it made again"));
  }
  point.dictionary.resize(size);
  return point;
}

}  // namespace pawl
