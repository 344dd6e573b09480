// Protobuf's wire format, written and read piece by piece: for messages whose large fields are
// referred to in place (client_lib/rpc/codec.h) or belong to another message.
// https://protobuf.dev/programming-guides/encoding
#ifndef PAWL_CLIENT_LIB_RPC_WIRE_FORMAT_H_
#define PAWL_CLIENT_LIB_RPC_WIRE_FORMAT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "client_lib/base/bytes.h"
#include "client_lib/rpc/message.h"
#include "google/protobuf/message_lite.h"

namespace pawl {

// Up to this size, copying bytes next to the small fields costs less than a separate fragment.
inline constexpr size_t kMaxCopiedBytes = 256;
// Protobuf's own limit on nesting.
inline constexpr size_t kMaxGroupDepth = 100;

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroupBegin = 3,
  kGroupEnd = 4,
  kFixed32 = 5
};

constexpr uint32_t Tag(uint32_t field, WireType type) { return field << 3 | type; }

inline size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

// The zigzag encoding of sint32: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
inline uint32_t ZigZag(int32_t value) {
  return static_cast<uint32_t>(value) << 1 ^ (value < 0 ? ~0u : 0u);
}
inline int32_t UnZigZag(uint32_t value) {
  return static_cast<int32_t>(value >> 1 ^ (value & 1 ? ~0u : 0u));
}

// Fields with default values are not written. All tags of this file take one byte.
inline size_t VarintFieldSize(uint64_t value) { return value == 0 ? 0 : 1 + VarintSize(value); }
inline size_t BytesFieldSize(size_t size) { return size == 0 ? 0 : 1 + VarintSize(size) + size; }

// How many bytes of a bytes field WireEncoder copies.
inline size_t CopiedBytes(const ByteView& bytes) {
  return bytes.size() <= kMaxCopiedBytes ? bytes.size() : 0;
}

// Writes small fields to its own memory and refers to large ones in place.
class WireEncoder {
 public:
  // `own_bytes` bounds the total size of what the Put functions and small Bytes write.
  WireEncoder(size_t own_bytes, std::shared_ptr<const void> owner) {
    auto memory = std::make_shared_for_overwrite<char[]>(own_bytes);
    begin_ = end_ = memory.get();
    if (owner == nullptr) {
      owner_ = std::move(memory);
    } else {
      owner_ = std::make_shared<const Owned>(std::move(memory), std::move(owner));
    }
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
    end_ = reinterpret_cast<char*>(
        message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(end_)));
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
    for (const ByteView::Fragment& fragment : bytes.fragments())
      bytes_.Append(fragment.data(), fragment.size());
  }

  OutgoingMessage Finish() && {
    Flush();
    return OutgoingMessage{std::move(bytes_), std::move(owner_)};
  }

 private:
  // The encoder's memory and the owner of what it refers to.
  using Owned = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;

  void Flush() {
    bytes_.Append(begin_, end_ - begin_);
    begin_ = end_;
  }

  std::shared_ptr<const void> owner_;
  // Bytes written since the last flush to bytes_.
  char* begin_;
  char* end_;
  ByteView bytes_;
};

// Reads a message in fragments.
class WireDecoder {
 public:
  explicit WireDecoder(const ByteView& message)
      : next_(message.fragments().data()), left_(message.size()) {}

  bool done() const { return left_ == 0; }
  // The number of unread bytes.
  size_t left() const { return left_; }

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

  // REQUIRES: size is at most the number of remaining bytes.
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

  // Restricts the reader to the next `size` bytes, until Leave gets the returned value.
  size_t Enter(size_t size) { return std::exchange(left_, size) - size; }
  void Leave(size_t outside) { left_ = outside; }

 private:
  void NextFragment() {
    fragment_ = *next_++;
    in_fragment_ = 0;
  }

  ByteView::Fragment fragment_;
  size_t in_fragment_ = 0;
  const ByteView::Fragment* next_;
  // The end of the message, or of the part set by Enter.
  size_t left_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_WIRE_FORMAT_H_
