// Protobuf messages of what the codec has decoded.
#ifndef PAWL_CLIENT_LIB_RPC_TESTING_CODEC_MESSAGES_H_
#define PAWL_CLIENT_LIB_RPC_TESTING_CODEC_MESSAGES_H_

#include <string>

#include "client_lib/base/bytes.h"
#include "client_lib/rpc/codec.h"
#include "proto/parameter.pb.h"

namespace pawl {

inline std::string Flat(const ByteView& view) {
  std::string bytes(view.size(), '\0');
  view.CopyTo(bytes.data());
  return bytes;
}

inline PushRequest PushMessage(const RequestView& view) {
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

inline PullRequest PullMessage(const RequestView& view) {
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

inline PullResponse PullResponseMessage(const PullResponseView& view) {
  PullResponse response;
  for (const PullResultView& result : view.results) {
    PullResult& out = *response.add_results();
    out.set_values(Flat(result.values));
    out.set_slots(Flat(result.slots));
  }
  return response;
}

inline ScanResponse ScanResponseMessage(const ScanResponseView& view) {
  ScanResponse response;
  response.set_keys(Flat(view.keys));
  response.set_values(Flat(view.values));
  response.set_slots(Flat(view.slots));
  response.set_done(view.done);
  response.set_next_key(view.next_key);
  return response;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_TESTING_CODEC_MESSAGES_H_
