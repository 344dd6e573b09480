#include "server/storage/block_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr absl::string_view kMagic = "PAWLBLK\n";
// The file is synced regularly while it is written, so that the final sync is short and does not
// delay the log's syncs on the same disk.
constexpr uint64_t kSyncEveryBytes = 32u << 20;

std::string EncodeHeader(const BlockFileId& id) {
  std::string header(kBlockFileHeaderBytes, '\0');
  char* out = header.data();
  std::memcpy(out, kMagic.data(), kMagic.size());
  out += kMagic.size();
  out = PutNumber(out, kBlockFileVersion);
  out = PutNumber(out, static_cast<uint32_t>(id.kind));
  out = PutNumber(out, id.job_id);
  out = PutNumber(out, id.partition);
  out = PutNumber(out, uint32_t{0});
  out = PutNumber(out, id.index);
  out = PutNumber(out, id.mark);
  PutNumber(out, Crc32c(0, header.data(), kBlockFileHeaderBytes - 4));
  return header;
}

// The seed of a block's checksum: the file and the block's place in it, so that a block of another
// file or place is not accepted.
uint32_t BlockSeed(uint32_t id_crc, uint64_t block, uint32_t length) {
  char seed[16];
  PutNumber(PutNumber(PutNumber(seed, id_crc), block), length);
  return Crc32c(0, seed, sizeof(seed));
}

WritableFile::Fragment Fragment(absl::string_view bytes) { return {bytes.data(), bytes.size()}; }

absl::string_view KindName(BlockFileKind kind) {
  switch (kind) {
    case BlockFileKind::kSnapshot:
      return "snapshot";
    case BlockFileKind::kCheckpointPart:
      return "checkpoint part";
  }
  return "file of unknown kind";
}

// The end of a file, after a length of 0, which no block has.
struct Footer {
  uint64_t payload_bytes = 0;
  uint64_t blocks = 0;
  uint32_t file_crc = 0;
  uint32_t footer_crc = 0;
};

Footer TakeFooter(const char* footer) {
  const char* in = footer + 4;
  Footer says;
  says.payload_bytes = TakeNumber<uint64_t>(in);
  says.blocks = TakeNumber<uint64_t>(in);
  says.file_crc = TakeNumber<uint32_t>(in);
  says.footer_crc = TakeNumber<uint32_t>(in);
  return says;
}

}  // namespace

BlockFileWriter::BlockFileWriter(std::unique_ptr<WritableFile> file, const BlockFileId& id)
    : file_(std::move(file)), header_(EncodeHeader(id)) {}

absl::StatusOr<std::unique_ptr<BlockFileWriter>> BlockFileWriter::Create(Env& env,
                                                                         const std::string& path,
                                                                         const BlockFileId& id) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env.Create(path));
  std::unique_ptr<BlockFileWriter> writer(new BlockFileWriter(std::move(file), id));
  const WritableFile::Fragment header = Fragment(writer->header_);
  PAWL_RETURN_IF_ERROR(writer->Write(absl::MakeConstSpan(&header, 1)));
  return writer;
}

absl::Status BlockFileWriter::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (buffer_.empty() && bytes.size() >= kBlockBytes) {
      PAWL_RETURN_IF_ERROR(WriteBlock(bytes.substr(0, kBlockBytes)));
      bytes.remove_prefix(kBlockBytes);
      continue;
    }
    const size_t taken = std::min(bytes.size(), kBlockBytes - buffer_.size());
    buffer_.append(bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (buffer_.size() == kBlockBytes) {
      PAWL_RETURN_IF_ERROR(WriteBlock(buffer_));
      buffer_.clear();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockFileInfo> BlockFileWriter::Finish() {
  if (!buffer_.empty()) PAWL_RETURN_IF_ERROR(WriteBlock(buffer_));
  BlockFileInfo info;
  info.payload_bytes = payload_bytes_;
  info.crc32c = file_crc_;
  std::array<char, kBlockFileFooterBytes> footer;
  char* out = PutNumber(footer.data(), uint32_t{0});
  out = PutNumber(out, payload_bytes_);
  out = PutNumber(out, blocks_);
  out = PutNumber(out, file_crc_);
  PutNumber(out, Crc32c(file_crc_, footer.data(), kBlockFileFooterBytes - 4));
  const WritableFile::Fragment fragment(footer.data(), footer.size());
  PAWL_RETURN_IF_ERROR(file_->Append(absl::MakeConstSpan(&fragment, 1)));
  PAWL_RETURN_IF_ERROR(file_->Sync());
  info.file_bytes = file_->size();
  PAWL_RETURN_IF_ERROR(file_->Close());
  return info;
}

absl::Status BlockFileWriter::WriteBlock(absl::string_view payload) {
  const auto length = static_cast<uint32_t>(payload.size());
  uint32_t id_crc;
  std::memcpy(&id_crc, header_.data() + kBlockFileHeaderBytes - 4, 4);
  char block_header[kBlockHeaderBytes];
  PutNumber(PutNumber(block_header, length),
            Crc32c(BlockSeed(id_crc, blocks_, length), payload.data(), payload.size()));
  const std::array<WritableFile::Fragment, 2> fragments = {
      WritableFile::Fragment(block_header, kBlockHeaderBytes), Fragment(payload)};
  PAWL_RETURN_IF_ERROR(Write(fragments));
  ++blocks_;
  payload_bytes_ += payload.size();
  if (file_->size() - synced_bytes_ >= kSyncEveryBytes) {
    PAWL_RETURN_IF_ERROR(file_->Sync());
    synced_bytes_ = file_->size();
  }
  return absl::OkStatus();
}

absl::Status BlockFileWriter::Write(absl::Span<const WritableFile::Fragment> fragments) {
  for (const WritableFile::Fragment& fragment : fragments) {
    file_crc_ = Crc32c(file_crc_, fragment.data(), fragment.size());
  }
  return file_->Append(fragments);
}

absl::StatusOr<std::unique_ptr<BlockFileReader>> BlockFileReader::Open(
    Env& env, const std::string& path, const BlockFileId& expected) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<BlockFileReader> reader, OpenAny(env, path));
  PAWL_RETURN_IF_ERROR(reader->CheckId(expected));
  return reader;
}

absl::StatusOr<BlockFileId> BlockFileReader::ReadId(Env& env, const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<BlockFileReader> reader, OpenAny(env, path));
  return reader->id();
}

absl::StatusOr<std::unique_ptr<BlockFileReader>> BlockFileReader::OpenAny(Env& env,
                                                                          const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, env.OpenForRead(path));
  PAWL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  std::unique_ptr<BlockFileReader> reader(new BlockFileReader(path, std::move(file), size));
  PAWL_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

absl::Status BlockFileReader::ReadHeader() {
  char header[kBlockFileHeaderBytes];
  PAWL_RETURN_IF_ERROR(Read(header, sizeof(header), "the header"));
  offset_ = 0;  // for error messages
  if (absl::string_view(header, kMagic.size()) != kMagic)
    return Damaged("not a block file: its magic is wrong");
  const char* in = header + kMagic.size();
  const auto version = TakeNumber<uint32_t>(in);
  id_.kind = static_cast<BlockFileKind>(TakeNumber<uint32_t>(in));
  id_.job_id = TakeNumber<uint64_t>(in);
  id_.partition = TakeNumber<uint32_t>(in);
  const auto reserved = TakeNumber<uint32_t>(in);
  id_.index = TakeNumber<uint64_t>(in);
  id_.mark = TakeNumber<uint64_t>(in);
  id_crc_ = TakeNumber<uint32_t>(in);
  if (id_crc_ != Crc32c(0, header, kBlockFileHeaderBytes - 4))
    return Damaged("the header's checksum is wrong");
  if (version != kBlockFileVersion || reserved != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path_, " has version ", version,
                                                   " of its format; this program reads ",
                                                   kBlockFileVersion, ": use a newer one"));
  }
  offset_ = kBlockFileHeaderBytes;
  file_crc_ = Crc32c(0, header, kBlockFileHeaderBytes);
  return absl::OkStatus();
}

absl::Status BlockFileReader::CheckId(const BlockFileId& expected) const {
  if (id_.kind != expected.kind) return Damaged(absl::StrCat("it is a ", KindName(id_.kind)));
  if (id_.job_id != expected.job_id) {
    return Damaged(
        absl::StrCat("it belongs to job ", id_.job_id, ", not to job ", expected.job_id));
  }
  if (id_.partition != expected.partition) {
    return Damaged(
        absl::StrCat("it holds partition ", id_.partition, ", not ", expected.partition));
  }
  if (id_.index != expected.index) {
    return Damaged(absl::StrCat("it holds log index ", id_.index, ", not ", expected.index));
  }
  if (id_.kind == BlockFileKind::kCheckpointPart && id_.mark != expected.mark) {
    return Damaged(absl::StrCat("it belongs to step ", id_.mark, ", not to step ", expected.mark));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> BlockFileReader::NextBlock() {
  if (ended_) return absl::string_view();
  char block_header[kBlockHeaderBytes];
  PAWL_RETURN_IF_ERROR(Read(block_header, 4, "a block's length"));
  const char* in = block_header;
  const auto length = TakeNumber<uint32_t>(in);
  if (length == 0) {
    PAWL_RETURN_IF_ERROR(ReadFooter(block_header));
    ended_ = true;
    return absl::string_view();
  }
  if (length > kBlockBytes) {
    return Damaged(
        absl::StrCat("block ", blocks_, " has a length of ", length, ", more than ", kBlockBytes));
  }
  if (payload_bytes_ != blocks_ * kBlockBytes) {
    return Damaged(
        absl::StrCat("block ", blocks_, " follows a block shorter than ", kBlockBytes, " bytes"));
  }
  const uint64_t block_offset = offset_;
  offset_ += 4;
  PAWL_RETURN_IF_ERROR(Read(block_header + 4, 4, "a block's checksum"));
  offset_ += 4;
  const auto crc = TakeNumber<uint32_t>(in);
  buffer_.resize(length);
  PAWL_RETURN_IF_ERROR(Read(buffer_.data(), length, "a block's payload"));
  if (crc != Crc32c(BlockSeed(id_crc_, blocks_, length), buffer_.data(), length)) {
    offset_ = block_offset;
    return Damaged(absl::StrCat("the checksum of block ", blocks_, " is wrong"));
  }
  offset_ += length;
  ++blocks_;
  payload_bytes_ += length;
  file_crc_ = Crc32c(file_crc_, block_header, kBlockHeaderBytes);
  file_crc_ = Crc32c(file_crc_, buffer_.data(), length);
  return absl::string_view(buffer_);
}

absl::Status BlockFileReader::ReadFooter(const char* length_field) {
  char footer[kBlockFileFooterBytes];
  PAWL_RETURN_IF_ERROR(Read(footer, sizeof(footer), "the footer"));
  std::memcpy(footer, length_field, 4);
  const Footer says = TakeFooter(footer);
  if (says.footer_crc != Crc32c(file_crc_, footer, kBlockFileFooterBytes - 4)) {
    return Damaged("the footer's checksum is wrong");
  }
  if (says.payload_bytes != payload_bytes_ || says.blocks != blocks_ ||
      says.file_crc != file_crc_) {
    return Damaged("the footer does not agree with the blocks before it");
  }
  offset_ += kBlockFileFooterBytes;
  if (offset_ != file_bytes_) return Damaged("data follows the footer");
  info_ = {payload_bytes_, file_bytes_, file_crc_};
  return absl::OkStatus();
}

absl::StatusOr<BlockFileInfo> BlockFileReader::PeekInfo() {
  char footer[kBlockFileFooterBytes];
  if (file_bytes_ < kBlockFileHeaderBytes + sizeof(footer))
    return Damaged("the file ends within the footer");
  PAWL_RETURN_IF_ERROR(ReadAt(file_bytes_ - sizeof(footer), footer, sizeof(footer), "the footer"));
  const Footer says = TakeFooter(footer);
  if (says.footer_crc != Crc32c(says.file_crc, footer, kBlockFileFooterBytes - 4)) {
    return Damaged("the file does not end with a footer");
  }
  return BlockFileInfo{says.payload_bytes, file_bytes_, says.file_crc};
}

absl::Status BlockFileReader::Read(char* out, size_t size, absl::string_view what) {
  return ReadAt(offset_, out, size, what);
}

absl::Status BlockFileReader::ReadAt(uint64_t offset, char* out, size_t size,
                                     absl::string_view what) {
  PAWL_ASSIGN_OR_RETURN(const size_t count, file_->Read(offset, absl::MakeSpan(out, size)));
  if (count == size) return absl::OkStatus();
  return Damaged(absl::StrCat("the file ends within ", what));
}

absl::Status BlockFileReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, " is damaged at offset ", offset_, ": ", what));
}

absl::StatusOr<BlockFileInfo> VerifyBlockFile(Env& env, const std::string& path,
                                              const BlockFileId& expected,
                                              absl::FunctionRef<bool()> should_continue) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<BlockFileReader> reader,
                        BlockFileReader::Open(env, path, expected));
  while (true) {
    if (!should_continue())
      return absl::CancelledError(absl::StrCat("reading ", path, " was interrupted"));
    PAWL_ASSIGN_OR_RETURN(const absl::string_view block, reader->NextBlock());
    if (block.empty()) return reader->info();
  }
}

}  // namespace pawl
