// Messages of the data plane. The first two bytes select the decoder and the fragment size; the
// rest is the message. Protobuf must read an accepted message in the same way. A refused message
// must be refused by protobuf too, or exceed a limit of the codec.
#include <cstdint>
#include <string>

#include "client_lib/rpc/codec.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

std::string Flat(const ByteView& view) {
  std::string bytes(view.size(), '\0');
  view.CopyTo(bytes.data());
  return bytes;
}

PushRequest PushProto(const RequestView& view) {
  PushRequest request;
  *request.mutable_header() = view.header;
  for (const SegmentView& segment : view.segments) {
    PushSegment& out = *request.add_segments();
    out.set_table(segment.table);
    out.set_partition(segment.partition);
    out.set_ordinal(segment.ordinal);
    out.set_element_type(segment.element_type);
    out.set_keys(Flat(segment.keys));
    out.set_values(Flat(segment.values));
    out.set_exponent(segment.exponent);
    out.set_effect(segment.effect);
    out.set_slots(Flat(segment.slots));
  }
  return request;
}

PullRequest PullProto(const RequestView& view) {
  PullRequest request;
  *request.mutable_header() = view.header;
  for (const SegmentView& segment : view.segments) {
    PullSegment& out = *request.add_segments();
    out.set_table(segment.table);
    out.set_partition(segment.partition);
    out.set_keys(Flat(segment.keys));
    out.set_with_slots(segment.with_slots);
  }
  return request;
}

PullResponse ResponseProto(const PullResponseView& view) {
  PullResponse response;
  for (const PullResultView& result : view.results) {
    PullResult& out = *response.add_results();
    out.set_values(Flat(result.values));
    out.set_slots(Flat(result.slots));
  }
  return response;
}

ScanResponse ScanProto(const ScanResponseView& view) {
  ScanResponse response;
  response.set_keys(Flat(view.keys));
  response.set_values(Flat(view.values));
  response.set_slots(Flat(view.slots));
  response.set_done(view.done);
  response.set_next_key(view.next_key);
  return response;
}

void EnsureHeader(PushRequest& request) { request.mutable_header(); }
void EnsureHeader(PullRequest& request) { request.mutable_header(); }
void EnsureHeader(PullResponse&) {}
void EnsureHeader(ScanResponse&) {}

template <typename Message, typename View>
void Compare(const std::string& bytes, const absl::StatusOr<View>& view,
             Message (*to_proto)(const View&)) {
  Message expected;
  const bool parsed = expected.ParseFromString(bytes);
  if (!view.ok()) {
    FuzzCheck(view.status().code() == absl::StatusCode::kInvalidArgument,
              "refused as INVALID_ARGUMENT");
    FuzzCheck(!parsed || view.status().message().find("twice") != absl::string_view::npos ||
                  view.status().message().find("limit") != absl::string_view::npos,
              "refused for a reason");
    return;
  }
  FuzzCheck(parsed, "protobuf accepts it");
  EnsureHeader(expected);
  expected.DiscardUnknownFields();
  Message actual = to_proto(*view);
  actual.DiscardUnknownFields();
  FuzzCheck(actual.SerializeAsString() == expected.SerializeAsString(), "fields are equal");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Fragments fragments(bytes, 1 + data[1]);
  switch (data[0] % 5) {
    case 0:
      Compare(bytes, DecodePushRequest(fragments.view()), &PushProto);
      break;
    case 1:
      Compare(bytes, DecodePullRequest(fragments.view()), &PullProto);
      break;
    case 2:
      Compare(bytes, DecodePullResponse(fragments.view()), &ResponseProto);
      break;
    case 3: {
      EndStepRequest expected, actual;
      FuzzCheck(DecodeSmall(fragments.view(), actual).ok() == expected.ParseFromString(bytes),
                "equal to protobuf's result");
      break;
    }
    case 4:
      Compare(bytes, DecodeScanResponse(fragments.view()), &ScanProto);
      break;
  }
  return 0;
}

}  // namespace pawl
