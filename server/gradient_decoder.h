// Gradients that were pushed in 16 bits, as the floats that everything behind the front door of a server works with: the
// partitions, the log and the backups know FLOAT32 alone.
#ifndef PAWL_SERVER_GRADIENT_DECODER_H_
#define PAWL_SERVER_GRADIENT_DECODER_H_

#include <cstddef>
#include <memory>

#include "client_lib/rpc/codec.h"

namespace pawl {

// Of a segment's values as FLOAT32, whatever they are now.
size_t FloatBytes(const PushSegmentView& segment);

// The memory that DecodeGradients takes: 0 if all segments are of FLOAT32.
size_t DecodedBytes(const PushRequestView& request);

// Makes all segments those of FLOAT32. What it decodes, and what `owner` kept alive, the new `owner` keeps alive.
// REQUIRES: the values of every segment are whole numbers of a type that there is (TableSchema::CheckGradient).
void DecodeGradients(PushRequestView& request, std::shared_ptr<const void>& owner);

}  // namespace pawl

#endif  // PAWL_SERVER_GRADIENT_DECODER_H_
