// Messages of the data plane. The first two bytes select the decoder and the fragment size; the
// rest is the message. Protobuf must read an accepted message in the same way. A refused message
// must be refused by protobuf too, or exceed a limit of the codec.
#include <cstdint>
#include <string>

#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/testing/codec_messages.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

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
      Compare(bytes, DecodePushRequest(fragments.view()), &PushMessage);
      break;
    case 1:
      Compare(bytes, DecodePullRequest(fragments.view()), &PullMessage);
      break;
    case 2:
      Compare(bytes, DecodePullResponse(fragments.view()), &PullResponseMessage);
      break;
    case 3: {
      EndStepRequest expected, actual;
      FuzzCheck(DecodeSmall(fragments.view(), actual).ok() == expected.ParseFromString(bytes),
                "equal to protobuf's result");
      break;
    }
    case 4:
      Compare(bytes, DecodeScanResponse(fragments.view()), &ScanResponseMessage);
      break;
  }
  return 0;
}

}  // namespace pawl
