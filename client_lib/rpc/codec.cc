#include "client_lib/rpc/codec.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

using Fragment = ByteView::Fragment;

// Up to this, copying the bytes beside the small fields costs less than a fragment of their own.
constexpr size_t kMaxCopiedBytes = 256;
// Of a serialized RequestHeader with the fields we know: about 50. More are unknown fields.
constexpr size_t kMaxHeaderBytes = 4096;
constexpr size_t kMaxSmallMessageBytes = 1 << 20;
// Protobuf's own limit on nesting.
constexpr size_t kMaxGroupDepth = 100;

// The numbers of proto/parameter.proto.
enum RequestField : uint32_t { kHeader = 1, kSegments = 2 };
enum PushField : uint32_t {
  kPushTable = 1,
  kPushPartition = 2,
  kPushOrdinal = 3,
  kPushElementType = 4,
  kPushKeys = 5,
  kPushValues = 6
};
enum PullField : uint32_t { kPullTable = 1, kPullPartition = 2, kPullKeys = 3 };
enum ResponseField : uint32_t { kResults = 1 };
enum ResultField : uint32_t { kResultValues = 1 };

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroupBegin = 3, kGroupEnd = 4, kFixed32 = 5 };

constexpr uint32_t Tag(uint32_t field, WireType type) { return field << 3 | type; }

size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

// Fields that have their default are not written; tags of this file take one byte.
size_t VarintFieldSize(uint64_t value) { return value == 0 ? 0 : 1 + VarintSize(value); }
size_t BytesFieldSize(size_t size) { return size == 0 ? 0 : 1 + VarintSize(size) + size; }

size_t ContentSize(const PushSegmentView& segment) {
  return VarintFieldSize(segment.table) + VarintFieldSize(segment.partition) + VarintFieldSize(segment.ordinal) +
         VarintFieldSize(segment.element_type) + BytesFieldSize(segment.keys.size()) +
         BytesFieldSize(segment.values.size());
}

size_t ContentSize(const PullSegmentView& segment) {
  return VarintFieldSize(segment.table) + VarintFieldSize(segment.partition) + BytesFieldSize(segment.keys.size());
}

// Writes small things to memory of its own and notes where the large ones lie.
class Encoder {
 public:
  // `own_bytes` bounds what goes through the Put functions and small Bytes.
  Encoder(size_t own_bytes, std::shared_ptr<const void> owner) : owned_(std::make_shared<Owned>()) {
    owned_->memory.reset(new char[own_bytes]);
    owned_->borrowed = std::move(owner);
    begin_ = end_ = owned_->memory.get();
  }

  void PutVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) *end_++ = static_cast<char>(value | 0x80);
    *end_++ = static_cast<char>(value);
  }

  void PutVarintField(uint32_t field, uint64_t value) {
    if (value == 0) return;
    PutVarint(Tag(field, kVarint));
    PutVarint(value);
  }

  void PutLength(uint32_t field, size_t size) {
    PutVarint(Tag(field, kBytes));
    PutVarint(size);
  }

  void PutMessage(const google::protobuf::MessageLite& message) {
    end_ = reinterpret_cast<char*>(message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(end_)));
  }

  void PutBytesField(uint32_t field, const ByteView& bytes) {
    if (bytes.empty()) return;
    PutLength(field, bytes.size());
    if (bytes.size() <= kMaxCopiedBytes) {
      bytes.CopyTo(end_);
      end_ += bytes.size();
      return;
    }
    Flush();
    for (const Fragment& fragment : bytes.fragments()) bytes_.Append(fragment.data(), fragment.size());
  }

  OutgoingMessage Finish() && {
    Flush();
    return OutgoingMessage{std::move(bytes_), std::move(owned_)};
  }

 private:
  struct Owned {
    std::unique_ptr<char[]> memory;
    std::shared_ptr<const void> borrowed;
  };

  void Flush() {
    bytes_.Append(begin_, end_ - begin_);
    begin_ = end_;
  }

  std::shared_ptr<Owned> owned_;
  // What is written and not yet in bytes_.
  char* begin_;
  char* end_;
  ByteView bytes_;
};

// The tags, lengths and numbers of one segment: at most 52.
constexpr size_t kMaxOwnBytesInSegment = 64;

size_t CopiedBytes(const ByteView& bytes) { return bytes.size() <= kMaxCopiedBytes ? bytes.size() : 0; }

// Reads a message that lies in fragments.
class Decoder {
 public:
  explicit Decoder(const ByteView& message) : next_(message.fragments().data()), left_(message.size()) {}

  bool done() const { return left_ == 0; }

  // The functions below return false for bytes that protobuf would not parse.

  bool ReadVarint(uint64_t* value, int max_bytes = 10) {
    uint64_t result = 0;
    for (int shift = 0; shift < 7 * max_bytes; shift += 7) {
      if (left_ == 0) return false;
      if (in_fragment_ == fragment_.size()) NextFragment();
      const uint8_t byte = static_cast<uint8_t>(fragment_[in_fragment_++]);
      --left_;
      result |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) {
        *value = result;
        return true;
      }
    }
    return false;
  }

  bool ReadTag(uint32_t* tag) {
    uint64_t value;
    if (!ReadVarint(&value, 5)) return false;
    *tag = static_cast<uint32_t>(value);
    return *tag >> 3 != 0;
  }

  bool ReadLength(size_t* size) {
    uint64_t value;
    if (!ReadVarint(&value, 5) || value > left_) return false;
    *size = static_cast<size_t>(value);
    return true;
  }

  // REQUIRES: size <= what is left.
  void ReadView(size_t size, ByteView* view) {
    left_ -= size;
    while (size > 0) {
      if (in_fragment_ == fragment_.size()) NextFragment();
      const size_t taken = std::min(size, fragment_.size() - in_fragment_);
      if (view != nullptr) view->Append(fragment_.data() + in_fragment_, taken);
      in_fragment_ += taken;
      size -= taken;
    }
  }

  // Skips the field whose tag was just read.
  bool SkipField(uint32_t tag) {
    absl::InlinedVector<uint32_t, 4> groups;
    for (;;) {
      size_t size = 0;
      uint64_t ignored;
      switch (tag & 7) {
        case kVarint:
          if (!ReadVarint(&ignored)) return false;
          break;
        case kFixed64:
          size = 8;
          break;
        case kFixed32:
          size = 4;
          break;
        case kBytes:
          if (!ReadLength(&size)) return false;
          break;
        case kGroupBegin:
          if (groups.size() == kMaxGroupDepth) return false;
          groups.push_back(tag >> 3);
          break;
        case kGroupEnd:
          if (groups.empty() || groups.back() != tag >> 3) return false;
          groups.pop_back();
          break;
        default:
          return false;
      }
      if (size > left_) return false;
      ReadView(size, nullptr);
      if (groups.empty()) return true;
      if (!ReadTag(&tag)) return false;
    }
  }

  // Restricts the reader to the next `size` bytes, until Leave gets what this returned.
  size_t Enter(size_t size) { return std::exchange(left_, size) - size; }
  void Leave(size_t outside) { left_ = outside; }

 private:
  void NextFragment() {
    fragment_ = *next_++;
    in_fragment_ = 0;
  }

  Fragment fragment_;
  size_t in_fragment_ = 0;
  const Fragment* next_;
  // Of the message or of what Enter restricted it to.
  size_t left_;
};

absl::Status Malformed(absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(message, " is not a valid protobuf message; see proto/parameter.proto"));
}

absl::Status CheckSize(const ByteView& message, absl::string_view name) {
  if (message.size() <= kMaxMessageBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " has ", message.size(), " bytes; the limit is ",
                                                 kMaxMessageBytes, "; send several messages"));
}

absl::Status TooManySegments(absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(message, " has more than ", kMaxSegmentsInMessage,
                                                 " segments, which is the limit; send several messages"));
}

absl::Status TwiceGiven(absl::string_view field) {
  return absl::InvalidArgumentError(absl::StrCat("the field `", field, "` comes twice in one segment; give it once"));
}

absl::Status ReadHeader(Decoder& decoder, absl::string_view name, RequestHeader* header) {
  size_t size;
  if (!decoder.ReadLength(&size)) return Malformed(name);
  if (size > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".header has ", size, " bytes; the limit is ", kMaxHeaderBytes));
  }
  ByteView view;
  decoder.ReadView(size, &view);
  char bytes[kMaxHeaderBytes];
  view.CopyTo(bytes);
  // A message given twice is merged, as protobuf does.
  RequestHeader part;
  if (!part.ParseFromArray(bytes, static_cast<int>(size))) return Malformed(absl::StrCat(name, ".header"));
  header->MergeFrom(part);
  return absl::OkStatus();
}

absl::Status ReadBytesOnce(Decoder& decoder, absl::string_view name, absl::string_view field, bool* seen,
                           ByteView* view) {
  size_t size;
  if (!decoder.ReadLength(&size)) return Malformed(name);
  if (std::exchange(*seen, true)) return TwiceGiven(field);
  decoder.ReadView(size, view);
  return absl::OkStatus();
}

absl::Status ReadSegment(Decoder& decoder, PushSegmentView* segment) {
  constexpr char kName[] = "PushSegment";
  bool keys_seen = false;
  bool values_seen = false;
  while (!decoder.done()) {
    uint32_t tag;
    uint64_t value = 0;
    if (!decoder.ReadTag(&tag)) return Malformed(kName);
    switch (tag) {
      case Tag(kPushTable, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->table = static_cast<uint32_t>(value);
        break;
      case Tag(kPushPartition, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->partition = static_cast<uint32_t>(value);
        break;
      case Tag(kPushOrdinal, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->ordinal = value;
        break;
      case Tag(kPushElementType, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->element_type = static_cast<ElementType>(static_cast<int32_t>(value));
        break;
      case Tag(kPushKeys, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "keys", &keys_seen, &segment->keys));
        break;
      case Tag(kPushValues, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "values", &values_seen, &segment->values));
        break;
      default:
        if (!decoder.SkipField(tag)) return Malformed(kName);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSegment(Decoder& decoder, PullSegmentView* segment) {
  constexpr char kName[] = "PullSegment";
  bool keys_seen = false;
  while (!decoder.done()) {
    uint32_t tag;
    uint64_t value = 0;
    if (!decoder.ReadTag(&tag)) return Malformed(kName);
    switch (tag) {
      case Tag(kPullTable, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->table = static_cast<uint32_t>(value);
        break;
      case Tag(kPullPartition, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->partition = static_cast<uint32_t>(value);
        break;
      case Tag(kPullKeys, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "keys", &keys_seen, &segment->keys));
        break;
      default:
        if (!decoder.SkipField(tag)) return Malformed(kName);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSegment(Decoder& decoder, ByteView* result) {
  constexpr char kName[] = "PullResult";
  bool values_seen = false;
  while (!decoder.done()) {
    uint32_t tag;
    if (!decoder.ReadTag(&tag)) return Malformed(kName);
    if (tag == Tag(kResultValues, kBytes)) {
      PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "values", &values_seen, result));
    } else if (!decoder.SkipField(tag)) {
      return Malformed(kName);
    }
  }
  return absl::OkStatus();
}

// Reads the repeated message field `segments_tag` and, if `header` is not null, the header.
template <typename Segment>
absl::Status ReadMessage(const ByteView& message, absl::string_view name, uint32_t segments_tag, RequestHeader* header,
                         std::vector<Segment>* segments) {
  PAWL_RETURN_IF_ERROR(CheckSize(message, name));
  Decoder decoder(message);
  while (!decoder.done()) {
    uint32_t tag;
    if (!decoder.ReadTag(&tag)) return Malformed(name);
    if (header != nullptr && tag == Tag(kHeader, kBytes)) {
      PAWL_RETURN_IF_ERROR(ReadHeader(decoder, name, header));
    } else if (tag == segments_tag) {
      if (segments->size() == kMaxSegmentsInMessage) return TooManySegments(name);
      size_t size;
      if (!decoder.ReadLength(&size)) return Malformed(name);
      const size_t outside = decoder.Enter(size);
      segments->emplace_back();
      PAWL_RETURN_IF_ERROR(ReadSegment(decoder, &segments->back()));
      decoder.Leave(outside);
    } else if (!decoder.SkipField(tag)) {
      return Malformed(name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

OutgoingMessage EncodePushRequest(const RequestHeader& header, absl::Span<const PushSegmentView> segments,
                                  std::shared_ptr<const void> owner) {
  const size_t header_size = header.ByteSizeLong();
  size_t own_bytes = kMaxOwnBytesInSegment + header_size;
  for (const PushSegmentView& segment : segments) {
    own_bytes += kMaxOwnBytesInSegment + CopiedBytes(segment.keys) + CopiedBytes(segment.values);
  }
  Encoder encoder(own_bytes, std::move(owner));
  encoder.PutLength(kHeader, header_size);
  encoder.PutMessage(header);
  for (const PushSegmentView& segment : segments) {
    encoder.PutLength(kSegments, ContentSize(segment));
    encoder.PutVarintField(kPushTable, segment.table);
    encoder.PutVarintField(kPushPartition, segment.partition);
    encoder.PutVarintField(kPushOrdinal, segment.ordinal);
    encoder.PutVarintField(kPushElementType, segment.element_type);
    encoder.PutBytesField(kPushKeys, segment.keys);
    encoder.PutBytesField(kPushValues, segment.values);
  }
  return std::move(encoder).Finish();
}

OutgoingMessage EncodePullRequest(const RequestHeader& header, absl::Span<const PullSegmentView> segments,
                                  std::shared_ptr<const void> owner) {
  const size_t header_size = header.ByteSizeLong();
  size_t own_bytes = kMaxOwnBytesInSegment + header_size;
  for (const PullSegmentView& segment : segments) own_bytes += kMaxOwnBytesInSegment + CopiedBytes(segment.keys);
  Encoder encoder(own_bytes, std::move(owner));
  encoder.PutLength(kHeader, header_size);
  encoder.PutMessage(header);
  for (const PullSegmentView& segment : segments) {
    encoder.PutLength(kSegments, ContentSize(segment));
    encoder.PutVarintField(kPullTable, segment.table);
    encoder.PutVarintField(kPullPartition, segment.partition);
    encoder.PutBytesField(kPullKeys, segment.keys);
  }
  return std::move(encoder).Finish();
}

OutgoingMessage EncodePullResponse(absl::Span<const ByteView> results, std::shared_ptr<const void> owner) {
  size_t own_bytes = 0;
  for (const ByteView& values : results) own_bytes += kMaxOwnBytesInSegment + CopiedBytes(values);
  Encoder encoder(own_bytes, std::move(owner));
  for (const ByteView& values : results) {
    encoder.PutLength(kResults, BytesFieldSize(values.size()));
    encoder.PutBytesField(kResultValues, values);
  }
  return std::move(encoder).Finish();
}

OutgoingMessage EncodeSmall(const google::protobuf::MessageLite& message) {
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  OutgoingMessage out;
  out.bytes.Append(bytes->data(), bytes->size());
  out.owner = std::move(bytes);
  return out;
}

absl::StatusOr<PushRequestView> DecodePushRequest(const ByteView& message) {
  PushRequestView view;
  PAWL_RETURN_IF_ERROR(
      ReadMessage(message, "PushRequest", Tag(kSegments, kBytes), &view.header, &view.segments));
  return view;
}

absl::StatusOr<PullRequestView> DecodePullRequest(const ByteView& message) {
  PullRequestView view;
  PAWL_RETURN_IF_ERROR(
      ReadMessage(message, "PullRequest", Tag(kSegments, kBytes), &view.header, &view.segments));
  return view;
}

absl::StatusOr<PullResponseView> DecodePullResponse(const ByteView& message) {
  PullResponseView view;
  PAWL_RETURN_IF_ERROR(ReadMessage(message, "PullResponse", Tag(kResults, kBytes), nullptr, &view.results));
  return view;
}

absl::Status DecodeSmall(const ByteView& message, google::protobuf::MessageLite& out) {
  if (message.size() > kMaxSmallMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(out.GetTypeName(), " has ", message.size(),
                                                   " bytes; the limit is ", kMaxSmallMessageBytes));
  }
  std::string bytes(message.size(), '\0');
  message.CopyTo(bytes.data());
  if (!out.ParseFromString(bytes)) return Malformed(out.GetTypeName());
  return absl::OkStatus();
}

}  // namespace pawl
