// Gradients that were pushed in 16 bits, as the floats that everything behind the front door of a
// server works with: the partitions, the log and the backups know FLOAT32 alone.
#ifndef PAWL_SERVER_DATA_PLANE_GRADIENT_DECODER_H_
#define PAWL_SERVER_DATA_PLANE_GRADIENT_DECODER_H_

#include <cstddef>
#include <memory>

#include "client_lib/rpc/codec.h"

namespace pawl {

// Of a segment's values as FLOAT32, whatever they are now.
size_t FloatBytes(const PushSegmentView& segment);

// The memory that DecodeSegment takes, of keys and floats; 0 for a segment of FLOAT32.
size_t DecodedBytes(const PushSegmentView& segment);

// The same segment in FLOAT32. One that was not is copied, with its keys, into memory of its own,
// which `owner` keeps then: so that what is kept of a message pins neither the rest of it nor the
// values as they came. Of FLOAT32, it lies where it did. REQUIRES: TableSchema::CheckGradient has
// accepted it.
PushSegmentView DecodeSegment(const PushSegmentView& segment, std::shared_ptr<const void>& owner);

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_GRADIENT_DECODER_H_
