// The codec of the data plane's messages (proto/parameter.proto). It does not copy keys or values:
// small headers are encoded into memory of their own, keys and values are referred to in place. The
// bytes are exactly those that protobuf would write, which codec_test verifies.
#ifndef PAWL_CLIENT_LIB_RPC_CODEC_H_
#define PAWL_CLIENT_LIB_RPC_CODEC_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/bytes.h"
#include "client_lib/rpc/message.h"
#include "proto/parameter.pb.h"

namespace pawl {

class WireEncoder;

// Limits of the decoders, which answer INVALID_ARGUMENT beyond them.
inline constexpr size_t kMaxMessageBytes = 64u << 20;
inline constexpr size_t kMaxSegmentsInMessage = 16384;
// The limit of a page of a scan, unless a single row is larger.
inline constexpr size_t kMaxScanBytes = 4u << 20;

// A segment of a push or pull: some rows or blocks of one table in one partition. The client fills
// it in, the codec encodes and decodes it, and the server applies it; keys and values stay where
// they are. A segment of a pull has only a table, a partition, keys and with_slots.
struct SegmentView {
  uint32_t table = 0;
  uint32_t partition = 0;
  uint64_t ordinal = 0;
  ElementType element_type = ELEMENT_TYPE_UNSPECIFIED;
  ByteView keys = {};
  ByteView values = {};
  int32_t exponent = 0;
  PushEffect effect = APPLY_GRADIENT;
  // ASSIGN_WITH_SLOTS.
  ByteView slots = {};
  bool with_slots = false;
};

// A PushRequest or PullRequest.
struct RequestView {
  RequestHeader header;
  std::vector<SegmentView> segments;
};

// What a pull gives for one segment.
struct PullResultView {
  ByteView values;
  // Empty unless the segment asked for them.
  ByteView slots;
};

struct PullResponseView {
  std::vector<PullResultView> results;
};

// A ScanResponse.
struct ScanResponseView {
  ByteView keys;
  ByteView values;
  // Empty unless the request asked for them.
  ByteView slots;
  bool done = false;
  uint64_t next_key = 0;
};

// Encoders. The message borrows the memory that the views refer to, copies everything else, and
// keeps `owner` alive.
OutgoingMessage EncodePushRequest(const RequestHeader& header,
                                  absl::Span<const SegmentView> segments,
                                  std::shared_ptr<const void> owner = nullptr);
OutgoingMessage EncodePullRequest(const RequestHeader& header,
                                  absl::Span<const SegmentView> segments);
OutgoingMessage EncodePullResponse(absl::Span<const PullResultView> results,
                                   std::shared_ptr<const void> owner = nullptr);
OutgoingMessage EncodeScanResponse(const ScanResponseView& page,
                                   std::shared_ptr<const void> owner = nullptr);
// Encodes a PushRequest as a field of another message.
//
//   WireEncoder encoder(own + push.own_bytes(), owner);
//   encoder.PutLength(field, push.size());
//   push.Put(encoder);
//
// The arguments outlive it.
class PushRequestField {
 public:
  PushRequestField(const RequestHeader& header, absl::Span<const SegmentView> segments);

  size_t size() const { return size_; }
  // The bound of what Put writes to the encoder's own memory.
  size_t own_bytes() const { return own_bytes_; }
  void Put(WireEncoder& encoder) const;

 private:
  const RequestHeader& header_;
  const absl::Span<const SegmentView> segments_;
  size_t size_;
  size_t own_bytes_;
};

// Encodes any small message (PushResponse, EndStepRequest, ...) with protobuf.
OutgoingMessage EncodeSmall(const google::protobuf::MessageLite& message);

// Decoders of untrusted bytes. INVALID_ARGUMENT, with the reason, for bytes that protobuf would not
// parse or that exceed the limits above, and for repeated `bytes` fields. Unknown fields are
// skipped. The views point into `message`; the caller keeps its owner.
absl::StatusOr<RequestView> DecodePushRequest(const ByteView& message);
absl::StatusOr<RequestView> DecodePullRequest(const ByteView& message);
absl::StatusOr<PullResponseView> DecodePullResponse(const ByteView& message);
absl::StatusOr<ScanResponseView> DecodeScanResponse(const ByteView& message);
// Copies the bytes (at most 1 MiB) and parses them with protobuf.
absl::Status DecodeSmall(const ByteView& message, google::protobuf::MessageLite& out);
// The same for an answer of the scheduler, whose size only the channel limits. INTERNAL if it is
// malformed.
absl::Status DecodeControl(const ByteView& message, google::protobuf::MessageLite& out);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_CODEC_H_
