// Decodes gradients pushed in 16 bits to float32. Partitions, log and backups handle FLOAT32 only.
#ifndef PAWL_SERVER_DATA_PLANE_GRADIENT_DECODER_H_
#define PAWL_SERVER_DATA_PLANE_GRADIENT_DECODER_H_

#include <cstddef>
#include <memory>

#include "client_lib/rpc/codec.h"

namespace pawl {

// The size of a segment's values in FLOAT32, whatever their present type.
size_t FloatBytes(const SegmentView& segment);

// The bytes that DecodeSegment allocates for keys, floats and slots; 0 for a segment of FLOAT32.
size_t DecodedBytes(const SegmentView& segment);

// Returns the segment in FLOAT32. A segment of another type is copied, with its keys and slots,
// into memory owned by `owner`, so that it keeps neither the rest of the message nor the encoded
// values. A FLOAT32 segment still refers to the message. REQUIRES: TableSchema::CheckGradient or
// CheckAssignment has accepted it.
SegmentView DecodeSegment(const SegmentView& segment, std::shared_ptr<const void>& owner);

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_GRADIENT_DECODER_H_
